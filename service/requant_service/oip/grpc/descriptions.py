"""What the service says of itself and its models, as messages: made of the same descriptions as over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

from requant_service.oip import metadata
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.models.model import Model
from requant_service.oip.models.registry import MODELS
from requant_service.oip.schemas import TensorMetadata
from requant_service.runtime.runtime import HealthStatus


def server_metadata(*, shared_memory: bool) -> pb.ServerMetadataResponse:
    """Return name, version and extensions of the server."""
    said = metadata.server_metadata(shared_memory=shared_memory)
    return pb.ServerMetadataResponse(name=said.name, version=said.version, extensions=said.extensions)


def model_metadata(model: Model) -> pb.ModelMetadataResponse:
    """Return inputs and outputs of a model. The message has no place for the rest of its description."""
    said = metadata.model_metadata(model)
    return pb.ModelMetadataResponse(
        name=said.name,
        versions=said.versions,
        platform=said.platform,
        inputs=map(_tensor, said.inputs),
        outputs=map(_tensor, said.outputs),
    )


def _tensor(said: TensorMetadata) -> pb.ModelMetadataResponse.TensorMetadata:
    return pb.ModelMetadataResponse.TensorMetadata(name=said.name, datatype=said.datatype, shape=said.shape)


def model_config(model: Model) -> pb.ModelConfigResponse:
    """Return a model as Triton configures its own."""
    said = metadata.model_metadata(model)
    optional = {slot.name for slot in model.inputs if slot.optional}
    config = pb.ModelConfig(
        name=said.name,
        platform=said.platform,
        backend=metadata.NAME,
        input=[
            pb.ModelInput(name=each.name, data_type=_data_type(each), dims=each.shape, optional=each.name in optional)
            for each in said.inputs
        ],
        output=[pb.ModelOutput(name=each.name, data_type=_data_type(each), dims=each.shape) for each in said.outputs],
    )
    return pb.ModelConfigResponse(config=config)


def _data_type(said: TensorMetadata) -> str:
    return f"TYPE_{said.datatype}"


def repository_index(status: HealthStatus, *, ready_only: bool) -> pb.RepositoryIndexResponse:
    """Return every version of every model, and its state."""
    return pb.RepositoryIndexResponse(models=_index(status) if status is HealthStatus.READY or not ready_only else ())


def _index(status: HealthStatus) -> Iterator[pb.RepositoryIndexResponse.ModelIndex]:
    usable = status is HealthStatus.READY
    state, reason = ("READY", "") if usable else ("UNAVAILABLE", f"the service is {status}")
    for model in MODELS.values():
        for version in model.versions:
            yield pb.RepositoryIndexResponse.ModelIndex(name=model.name, version=version, state=state, reason=reason)
