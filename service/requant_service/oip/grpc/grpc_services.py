"""gRPC's own services beside the protocol's: health, and reflection, by which clients get descriptions.

Their messages are in a pool of their own: a process that imports gRPC's packages for them has the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from requant.errors import UnknownNameError, excerpt
from requant_service.oip.grpc import inference_pb2
from requant_service.oip.grpc.statuses import NotFoundError, StatusCode
from requant_service.oip.grpc.wire_format import parse
from requant_service.runtime.request_context import RequestContext
from requant_service.runtime.runtime import HealthStatus, Runtime

_files = descriptor_pb2.FileDescriptorSet.FromString(Path(__file__).with_name("grpc_services.binpb").read_bytes())
_pool = descriptor_pool.DescriptorPool()
for _file in _files.file:
    _pool.Add(_file)

HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


_HealthRequest, _HealthResponse = (
    _message("grpc.health.v1.HealthCheckRequest"),
    _message("grpc.health.v1.HealthCheckResponse"),
)
_ReflectionRequest = _message("grpc.reflection.v1alpha.ServerReflectionRequest")
_ReflectionResponse = _message("grpc.reflection.v1alpha.ServerReflectionResponse")


class Health:
    """gRPC's health service: `services` are the names that it reports on, with one health for all.

    `changed` is called on the event loop when the state of the service has changed.
    """

    def __init__(self, running: Runtime, services: Iterable[str]) -> None:
        self._running = running
        self._services = frozenset(services)
        self._watching: dict[object, tuple[str, Callable[[bytes], None]]] = {}

    async def check(self, message: bytes | memoryview, _: RequestContext) -> bytes:
        """Return the state of a service."""
        service = parse(_HealthRequest, message).service
        if service not in self._services:
            listed = ", ".join(filter(None, sorted(self._services)))
            raise NotFoundError(UnknownNameError(f"no service is named {excerpt(service)!r}; available: {listed}"))
        return self._state(service)

    def subscribe(self, message: bytes | memoryview, send: Callable[[bytes], None]) -> Callable[[], None]:
        """Send the state of a service, and each change of it. Return what ends that."""
        service = parse(_HealthRequest, message).service
        key = object()
        self._watching[key] = service, send
        send(self._state(service))

        def end() -> None:
            self._watching.pop(key, None)

        return end

    def changed(self) -> None:
        """Send the state to all watchers."""
        for service, send in list(self._watching.values()):
            if service in self._services:
                send(self._state(service))

    def _state(self, service: str) -> bytes:
        if service not in self._services:
            status = _HealthResponse.SERVICE_UNKNOWN
        elif self._running.health is HealthStatus.READY:
            status = _HealthResponse.SERVING
        else:
            status = _HealthResponse.NOT_SERVING
        return bytes(_HealthResponse(status=status).SerializeToString())


async def reflect(services: Iterable[str], message: bytes | memoryview, _: RequestContext) -> bytes:
    """Return the answer to a question about `services`."""
    request = parse(_ReflectionRequest, message)
    reply = _ReflectionResponse(valid_host=request.host, original_request=request)
    question = request.WhichOneof("message_request")
    files = _file_of(question, getattr(request, question)) if question in _QUESTIONS else None
    if question == "list_services":
        for name in sorted(services):
            reply.list_services_response.service.add(name=name)
    elif files is not None:
        reply.file_descriptor_response.file_descriptor_proto.append(files)
    else:
        reply.error_response.error_code = StatusCode.NOT_FOUND
        reply.error_response.error_message = "not found"
    return bytes(reply.SerializeToString())


_QUESTIONS: Mapping[str, str] = {
    "file_by_filename": "FindFileByName",
    "file_containing_symbol": "FindFileContainingSymbol",
}


def _file_of(question: str, name: str) -> bytes | None:
    """Return the file that is asked for. None of them imports another."""
    for pool in (inference_pb2.DESCRIPTOR.pool, _pool):
        try:
            descriptor = getattr(pool, _QUESTIONS[question])(name)
        except KeyError:
            continue
        if descriptor.name in _FILES:
            return bytes(descriptor.serialized_pb)
    return None


_FILES = frozenset((inference_pb2.DESCRIPTOR.name, *(each.name for each in _files.file)))
