"""The methods of the service, and of gRPC's own services for health and reflection, with the work on their messages.

Descriptions of the service and its models are made of the same data as over HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from requant.errors import UnimplementedError, UnknownNameError
from requant_service.oip import metadata
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.grpc.calls import Message, Method, MethodKind, Work
from requant_service.oip.grpc.grpc_services import HEALTH, REFLECTION, Health, reflect
from requant_service.oip.grpc.inference import failed_in_stream, in_stream, infer
from requant_service.oip.grpc.statuses import NotFoundError
from requant_service.oip.grpc.wire_format import parse
from requant_service.oip.models.model import Model
from requant_service.oip.models.registry import model_named
from requant_service.oip.schemas import TensorMetadata
from requant_service.oip.shared_memory import registered_regions, without_cuda
from requant_service.runtime.request_context import RequestContext
from requant_service.runtime.runtime import HealthStatus, Runtime

SERVICE = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
HEALTH_SERVICES = ("", SERVICE)
"""The names that gRPC's health service reports on."""

_NO_REPOSITORY = "the models are part of the service; they are neither loaded nor unloaded"
_UNIMPLEMENTED = {
    "ModelStatistics": "model statistics are not implemented; metrics are at GET /metrics over HTTP",
    "RepositoryModelLoad": _NO_REPOSITORY,
    "RepositoryModelUnload": _NO_REPOSITORY,
    "TraceSetting": "traces are a setting of the service; clients cannot change it",
    "LogSettings": "logs are settings of the service; clients cannot change them",
}

# Methods that need no token: they reveal only whether the service takes work.
_OPEN_METHODS = frozenset(("ServerLive", "ServerReady"))
MAX_OPEN_BYTES = 1 << 10
"""The length of a message to a method that needs no token."""
MAX_SHORT_BYTES = 16 << 10
"""The length of a message that only names something."""


def methods(running: Runtime, health: Health) -> Iterator[Method]:
    """Yield all methods."""
    answers: Mapping[str, tuple[Any, Callable[[Any], Any]]] = {
        "ServerLive": (pb.ServerLiveRequest, lambda _: pb.ServerLiveResponse(live=True)),
        "ServerReady": (pb.ServerReadyRequest, lambda _: pb.ServerReadyResponse(ready=_is_ready(running))),
        "ModelReady": (
            pb.ModelReadyRequest,
            lambda request: pb.ModelReadyResponse(ready=_model_ready(running, request)),
        ),
        "ServerMetadata": (
            pb.ServerMetadataRequest,
            lambda _: _server_metadata(shared_memory=running.shared_memory is not None),
        ),
        "ModelMetadata": (pb.ModelMetadataRequest, lambda request: _model_metadata(_model(request))),
        "ModelConfig": (pb.ModelConfigRequest, lambda request: _model_config(_model(request))),
        "RepositoryIndex": (
            pb.RepositoryIndexRequest,
            lambda request: _repository_index(running.health, ready_only=request.ready),
        ),
    }
    awaited: Mapping[str, tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
        "SystemSharedMemoryStatus": (pb.SystemSharedMemoryStatusRequest, partial(_shared_memory_status, running)),
        "SystemSharedMemoryRegister": (pb.SystemSharedMemoryRegisterRequest, partial(_register_region, running)),
        "SystemSharedMemoryUnregister": (
            pb.SystemSharedMemoryUnregisterRequest,
            partial(_unregister_regions, running),
        ),
        "CudaSharedMemoryStatus": (pb.CudaSharedMemoryStatusRequest, _cuda_status),
        "CudaSharedMemoryRegister": (pb.CudaSharedMemoryRegisterRequest, _cuda_register),
        "CudaSharedMemoryUnregister": (pb.CudaSharedMemoryUnregisterRequest, _cuda_unregister),
    }
    works: dict[str, Work] = {
        **{name: partial(_await, *answer) for name, answer in awaited.items()},
        **{name: partial(_answer, *answer) for name, answer in answers.items()},
        **{name: partial(_refuse, detail) for name, detail in _UNIMPLEMENTED.items()},
    }
    for name, work in works.items():
        is_open = name in _OPEN_METHODS
        yield Method(f"/{SERVICE}/{name}", MAX_OPEN_BYTES if is_open else MAX_SHORT_BYTES, work=work, is_open=is_open)
    settings = running.settings
    max_bytes = min(settings.max_binary_bytes + settings.max_json_bytes, running.memory_budget.budget)
    yield Method(f"/{SERVICE}/ModelInfer", max_bytes, work=partial(infer, running))
    yield Method(
        f"/{SERVICE}/ModelStreamInfer",
        max_bytes,
        MethodKind.STREAM,
        work=partial(_infer_in_stream, running),
        failed=failed_in_stream,
    )
    yield Method(f"/{HEALTH}/Check", MAX_OPEN_BYTES, work=health.check, is_open=True)
    yield Method(f"/{HEALTH}/Watch", MAX_OPEN_BYTES, MethodKind.WATCH, subscribe=health.subscribe, is_open=True)
    yield Method(
        f"/{REFLECTION}/ServerReflectionInfo",
        MAX_SHORT_BYTES,
        MethodKind.STREAM,
        work=partial(reflect, (SERVICE, HEALTH, REFLECTION)),
    )


def _is_ready(running: Runtime) -> bool:
    return running.health is HealthStatus.READY


def _model_ready(running: Runtime, request: pb.ModelReadyRequest) -> bool:
    """Return whether a model can be used. One that does not exist cannot, which is no error for Triton's clients."""
    try:
        _model(request)
    except NotFoundError:
        return False
    return _is_ready(running)


def _model(request: Any) -> Model:
    try:
        return model_named(request.name, request.version or None)[0]
    except UnknownNameError as error:
        raise NotFoundError(error) from None


async def _answer(kind: Any, answer: Callable[[Any], Any], message: Message, _: RequestContext) -> bytes:
    return bytes(answer(parse(kind, message)).SerializeToString())


async def _await(kind: Any, answer: Callable[[Any], Awaitable[Any]], message: Message, _: RequestContext) -> bytes:
    return bytes((await answer(parse(kind, message))).SerializeToString())


async def _refuse(detail: str, message: Message, _: RequestContext) -> bytes:
    raise UnimplementedError(detail)


async def _infer_in_stream(running: Runtime, message: Message, request: RequestContext) -> bytes:
    return in_stream(await infer(running, message, request))


def _server_metadata(*, shared_memory: bool) -> pb.ServerMetadataResponse:
    """Return name, version and extensions of the server."""
    described = metadata.server_metadata(shared_memory=shared_memory)
    return pb.ServerMetadataResponse(name=described.name, version=described.version, extensions=described.extensions)


def _model_metadata(model: Model) -> pb.ModelMetadataResponse:
    """Return inputs and outputs of a model. The message has no place for the rest of its description."""
    described = metadata.model_metadata(model)
    return pb.ModelMetadataResponse(
        name=described.name,
        versions=described.versions,
        platform=described.platform,
        inputs=map(_tensor, described.inputs),
        outputs=map(_tensor, described.outputs),
    )


def _tensor(described: TensorMetadata) -> pb.ModelMetadataResponse.TensorMetadata:
    return pb.ModelMetadataResponse.TensorMetadata(
        name=described.name, datatype=described.datatype, shape=described.shape
    )


def _model_config(model: Model) -> pb.ModelConfigResponse:
    """Return a model as Triton configures its own."""
    described = metadata.model_metadata(model)
    optional = {slot.name for slot in model.inputs if slot.optional}
    config = pb.ModelConfig(
        name=described.name,
        platform=described.platform,
        backend=metadata.NAME,
        input=[
            pb.ModelInput(name=each.name, data_type=_data_type(each), dims=each.shape, optional=each.name in optional)
            for each in described.inputs
        ],
        output=[
            pb.ModelOutput(name=each.name, data_type=_data_type(each), dims=each.shape) for each in described.outputs
        ],
    )
    return pb.ModelConfigResponse(config=config)


def _data_type(described: TensorMetadata) -> str:
    return f"TYPE_{described.datatype}"


def _repository_index(status: HealthStatus, *, ready_only: bool) -> pb.RepositoryIndexResponse:
    """Return every version of every model, and its state."""
    if ready_only and status is not HealthStatus.READY:
        return pb.RepositoryIndexResponse()
    models = (
        pb.RepositoryIndexResponse.ModelIndex(
            name=each.name, version=each.version, state=each.state, reason=each.reason
        )
        for each in metadata.repository_index(status)
    )
    return pb.RepositoryIndexResponse(models=models)


async def _shared_memory_status(
    running: Runtime, request: pb.SystemSharedMemoryStatusRequest
) -> pb.SystemSharedMemoryStatusResponse:
    """Return the region of a name, or all of them."""
    regions = registered_regions(running)
    try:
        statuses = [regions.status(request.name)] if request.name else regions.statuses()
    except UnknownNameError as error:
        raise NotFoundError(error) from None
    reply = pb.SystemSharedMemoryStatusResponse()
    for each in statuses:
        region = reply.regions[each.name]
        region.name, region.key = each.name, each.key
        region.offset, region.byte_size = each.offset, each.byte_size
    return reply


async def _register_region(
    running: Runtime, request: pb.SystemSharedMemoryRegisterRequest
) -> pb.SystemSharedMemoryRegisterResponse:
    """Register a part of an object as a region."""
    registered_regions(running).register(request.name, request.key, request.offset, request.byte_size)
    return pb.SystemSharedMemoryRegisterResponse()


async def _unregister_regions(
    running: Runtime, request: pb.SystemSharedMemoryUnregisterRequest
) -> pb.SystemSharedMemoryUnregisterResponse:
    """Forget the region of a name, or all of them."""
    regions = registered_regions(running)
    if request.name:
        try:
            work, byte_count = partial(regions.unregister, request.name), regions.status(request.name).byte_size
            await running.executor.run_array(byte_count, work)
        except UnknownNameError as error:
            raise NotFoundError(error) from None
    else:
        await running.executor.run_array(regions.mapped_bytes, regions.unregister_all)
    return pb.SystemSharedMemoryUnregisterResponse()


async def _cuda_status(request: pb.CudaSharedMemoryStatusRequest) -> pb.CudaSharedMemoryStatusResponse:
    """Return that there are no regions."""
    if request.name:
        raise without_cuda()
    return pb.CudaSharedMemoryStatusResponse()


async def _cuda_register(request: pb.CudaSharedMemoryRegisterRequest) -> pb.CudaSharedMemoryRegisterResponse:
    """Refuse."""
    raise without_cuda()


async def _cuda_unregister(request: pb.CudaSharedMemoryUnregisterRequest) -> pb.CudaSharedMemoryUnregisterResponse:
    """Forget all regions: there are none."""
    if request.name:
        raise without_cuda()
    return pb.CudaSharedMemoryUnregisterResponse()
