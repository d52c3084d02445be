"""The methods of the service, and of gRPC's own services for health and reflection, with the work on their messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from requant.errors import UnimplementedError, UnknownNameError
from requant_service.oip.grpc import descriptions, shared_memory
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.grpc.calls import Message, Method, MethodKind, Work
from requant_service.oip.grpc.grpc_services import HEALTH, REFLECTION, Health, reflect
from requant_service.oip.grpc.inference import infer
from requant_service.oip.grpc.inference_reply import failed_in_stream, in_stream
from requant_service.oip.grpc.inference_request import parse
from requant_service.oip.grpc.statuses import NotFoundError
from requant_service.oip.models.model import Model
from requant_service.oip.models.registry import model_named
from requant_service.runtime.request_context import RequestContext
from requant_service.runtime.runtime import HealthStatus, Runtime

SERVICE = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
HEALTH_SERVICES = ("", SERVICE)
"""What gRPC's health service tells the health of."""

_NO_REPOSITORY = "the models are part of the service; they are neither loaded nor unloaded"
_UNIMPLEMENTED = {
    "ModelStatistics": "model statistics are not implemented; metrics are at GET /metrics over HTTP",
    "RepositoryModelLoad": _NO_REPOSITORY,
    "RepositoryModelUnload": _NO_REPOSITORY,
    "TraceSetting": "traces are a setting of the service; clients cannot change it",
    "LogSettings": "logs are settings of the service; clients cannot change them",
}

# Methods that need no token: they say nothing but whether work is taken.
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
        "ModelReady": (pb.ModelReadyRequest, lambda given: pb.ModelReadyResponse(ready=_model_ready(running, given))),
        "ServerMetadata": (
            pb.ServerMetadataRequest,
            lambda _: descriptions.server_metadata(shared_memory=running.shared_memory is not None),
        ),
        "ModelMetadata": (pb.ModelMetadataRequest, lambda given: descriptions.model_metadata(_model(given))),
        "ModelConfig": (pb.ModelConfigRequest, lambda given: descriptions.model_config(_model(given))),
        "RepositoryIndex": (
            pb.RepositoryIndexRequest,
            lambda given: descriptions.repository_index(running.status, ready_only=given.ready),
        ),
    }
    awaited: Mapping[str, tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
        "SystemSharedMemoryStatus": (pb.SystemSharedMemoryStatusRequest, partial(shared_memory.status, running)),
        "SystemSharedMemoryRegister": (pb.SystemSharedMemoryRegisterRequest, partial(shared_memory.register, running)),
        "SystemSharedMemoryUnregister": (
            pb.SystemSharedMemoryUnregisterRequest,
            partial(shared_memory.unregister, running),
        ),
        "CudaSharedMemoryStatus": (pb.CudaSharedMemoryStatusRequest, shared_memory.cuda_status),
        "CudaSharedMemoryRegister": (pb.CudaSharedMemoryRegisterRequest, shared_memory.cuda_register),
        "CudaSharedMemoryUnregister": (pb.CudaSharedMemoryUnregisterRequest, shared_memory.cuda_unregister),
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
    most = min(settings.max_binary_bytes + settings.max_json_bytes, running.memory_budget.budget)
    yield Method(f"/{SERVICE}/ModelInfer", most, work=partial(infer, running))
    yield Method(
        f"/{SERVICE}/ModelStreamInfer",
        most,
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
    return running.status is HealthStatus.READY


def _model_ready(running: Runtime, given: pb.ModelReadyRequest) -> bool:
    """Return whether a model can be used. One that does not exist cannot, which is no error for Triton's clients."""
    try:
        _model(given)
    except NotFoundError:
        return False
    return _is_ready(running)


def _model(given: Any) -> Model:
    try:
        return model_named(given.name, given.version or None)[0]
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
