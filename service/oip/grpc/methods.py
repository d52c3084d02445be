"""The methods of the service, and of gRPC's own services for health and reflection: each with its handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from core.errors import UnimplementedError, UnknownNameError, excerpt
from service.oip.grpc import descriptions, shared_memory
from service.oip.grpc import inference_pb2 as pb
from service.oip.grpc.calls import Calls, Choice, NotFoundError, ServicerContext
from service.oip.grpc.inference import infer
from service.oip.grpc.inference_reply import failed_in_stream, in_stream
from service.oip.grpc.inference_request import parse
from service.oip.models.model import Model
from service.oip.models.registry import model_named
from service.runtime.request_context import RequestContext
from service.runtime.runtime import HealthStatus, Runtime

SERVICE = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
HEALTH_SERVICES = ("", SERVICE)
"""What gRPC's health service tells the health of."""

_HEALTH, _REFLECTION = health.SERVICE_NAME, reflection.SERVICE_NAME

_NO_REPOSITORY = "the models are part of the service; they are neither loaded nor unloaded"
_UNIMPLEMENTED = {
    "ModelStatistics": "model statistics are not implemented; metrics are at GET /metrics over HTTP",
    "RepositoryModelLoad": _NO_REPOSITORY,
    "RepositoryModelUnload": _NO_REPOSITORY,
    "TraceSetting": "traces are a setting of the service; clients cannot change it",
    "LogSettings": "logs are settings of the service; clients cannot change them",
}

OPEN_METHODS = (f"/{SERVICE}/ServerLive", f"/{SERVICE}/ServerReady", f"/{_HEALTH}/Check", f"/{_HEALTH}/Watch")
"""The methods of probes: they say nothing but whether work is taken."""


def handlers(running: Runtime, calls: Calls, servicer: Any) -> Mapping[str, Choice]:
    """Return what chooses the handler of a call, for all methods by their paths.

    `servicer` is that of gRPC's health service.
    """
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
    works = {
        **{f"/{SERVICE}/{name}": partial(_await, *answer) for name, answer in awaited.items()},
        **{f"/{SERVICE}/{name}": partial(_answer, *answer) for name, answer in answers.items()},
        **{f"/{SERVICE}/{name}": partial(_refuse, detail) for name, detail in _UNIMPLEMENTED.items()},
        f"/{SERVICE}/ModelInfer": partial(infer, running),
        f"/{_HEALTH}/Check": partial(_answer, health_pb2.HealthCheckRequest, partial(_check_health, running)),
    }
    reflector = reflection.aio.ReflectionServicer((SERVICE, _HEALTH, _REFLECTION))
    stream, watch, reflect = f"/{SERVICE}/ModelStreamInfer", f"/{_HEALTH}/Watch", f"/{_REFLECTION}/ServerReflectionInfo"
    return {
        **{path: calls.unary(path, work) for path, work in works.items()},
        stream: calls.stream(stream, partial(_infer_in_stream, running), failed_in_stream),
        watch: calls.watch(watch, partial(_watch_health, servicer), health_pb2.HealthCheckResponse.SerializeToString),
        reflect: calls.stream(reflect, partial(_reflect, reflector)),
    }


def health_status(running: Runtime) -> Any:
    """Return the state of the service in the words of gRPC's health service."""
    return health_pb2.HealthCheckResponse.SERVING if _is_ready(running) else health_pb2.HealthCheckResponse.NOT_SERVING


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


def _check_health(running: Runtime, given: Any) -> Any:
    if given.service not in HEALTH_SERVICES:
        listed = ", ".join(filter(None, HEALTH_SERVICES))
        raise NotFoundError(UnknownNameError(f"no service is named {excerpt(given.service)!r}; available: {listed}"))
    return health_pb2.HealthCheckResponse(status=health_status(running))


async def _answer(kind: Any, answer: Callable[[Any], Any], message: bytes, _: RequestContext) -> bytes:
    return bytes(answer(parse(kind, message)).SerializeToString())


async def _await(kind: Any, answer: Callable[[Any], Awaitable[Any]], message: bytes, _: RequestContext) -> bytes:
    return bytes((await answer(parse(kind, message))).SerializeToString())


async def _refuse(detail: str, message: bytes, _: RequestContext) -> bytes:
    raise UnimplementedError(detail)


async def _infer_in_stream(running: Runtime, message: bytes, request: RequestContext) -> bytes:
    return in_stream(await infer(running, message, request))


async def _watch_health(servicer: Any, message: bytes, context: ServicerContext) -> None:
    await servicer.Watch(parse(health_pb2.HealthCheckRequest, message), context)


async def _reflect(servicer: Any, message: bytes, _: RequestContext) -> bytes:
    async def one() -> AsyncIterator[Any]:
        yield parse(reflection_pb2.ServerReflectionRequest, message)

    replies = [reply.SerializeToString() async for reply in servicer.ServerReflectionInfo(one(), None)]
    return bytes(replies[0])
