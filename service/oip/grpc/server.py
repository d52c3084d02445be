"""The gRPC server: it starts and stops with the service, and says in gRPC's own health service how that is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health

from service.oip.grpc.calls import Calls, Choice
from service.oip.grpc.methods import HEALTH_SERVICES, OPEN_METHODS, handlers, health_status
from service.runtime.certificate import Certificate, CertificateFiles
from service.runtime.runtime import HealthStatus, Runtime
from service.runtime.settings import Settings

_log = logging.getLogger("uvicorn.error")
# grpcio's own log.
_grpc_log = logging.getLogger("grpc._cython.cygrpc")

_MOST_CALLS_OF_CONNECTION = 128
# A client that is not there any more is found out within the sum of both.
_PING_SECONDS = 60
_PONG_SECONDS = 20
# How long a connection lasts before its client is asked to make a new one, and how long its calls may go on then. So a
# client that does not read its reply cannot keep that in memory for ever.
_CONNECTION_SECONDS = 3600
_LAST_CALLS_SECONDS = 600


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    def __init__(self, found: Mapping[str, Choice]) -> None:
        self._found = found

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler | None:
        choose = self._found.get(handler_call_details.method)
        return None if choose is None else choose(handler_call_details.invocation_metadata)


def _is_telling(record: logging.LogRecord) -> bool:
    """Return whether a line is not about a client that left while its reply was being sent."""
    return record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError)


@asynccontextmanager
async def serving_grpc(running: Runtime) -> AsyncIterator[None]:
    """Serve gRPC until the service stops. Raise OSError if the port cannot be used."""
    settings = running.settings
    calls = Calls(running, OPEN_METHODS, _CONNECTION_SECONDS + _LAST_CALLS_SECONDS)
    servicer = health.aio.HealthServicer()
    server = grpc.aio.server(
        handlers=[_Methods(handlers(running, calls, servicer))],
        options=_options(settings, calls.most_bytes),
    )
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        if running.certificate is None:
            server.add_insecure_port(f"{address}:{settings.grpc_port}")
        else:
            server.add_secure_port(f"{address}:{settings.grpc_port}", _credentials(running.certificate))
    except RuntimeError:
        raise OSError(f"grpc_port: cannot listen on {address}:{settings.grpc_port}") from None
    _grpc_log.addFilter(_is_telling)
    async with _telling_health(running, servicer):
        await server.start()
        _log.info("gRPC on %s:%d%s.", address, settings.grpc_port, " with TLS" if running.certificate else "")
        stopping = asyncio.create_task(_stop(server, calls, running))
        try:
            yield
        finally:
            running.closing.set()
            await stopping


async def _stop(server: Any, calls: Calls, running: Runtime) -> None:
    """Stop the server when the service accepts no more, and give the calls that are under way their time."""
    await running.closing.wait()
    calls.close()
    await server.stop(running.settings.shutdown_seconds)


@asynccontextmanager
async def _telling_health(running: Runtime, servicer: Any) -> AsyncIterator[None]:
    """Tell those who watch the health of the service what becomes of it."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    async def tell() -> None:
        while True:
            for name in HEALTH_SERVICES:
                await servicer.set(name, health_status(running))
            await changed.wait()
            changed.clear()

    def listener(_: HealthStatus) -> None:
        loop.call_soon_threadsafe(changed.set)

    running.status_listeners.append(listener)
    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        running.status_listeners.remove(listener)
        telling.cancel()


def _credentials(certificate: Certificate) -> grpc.ServerCredentials:
    """Return credentials with the certificate as it is at each handshake."""
    used = certificate.current

    def configuration(files: CertificateFiles) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(files.key, files.certificate)])

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        if certificate.current is used:
            return None
        used = certificate.current
        return configuration(used)

    return grpc.dynamic_ssl_server_credentials(configuration(used), changed)


def _options(settings: Settings, most_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", most_bytes),
        # What a reply takes is reserved, and refused if that is too much.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", settings.max_head_bytes),
        ("grpc.absolute_max_metadata_size", settings.max_head_bytes),
        ("grpc.max_concurrent_streams", _MOST_CALLS_OF_CONNECTION),
        ("grpc.max_connection_idle_ms", 1000 * settings.keep_alive_seconds),
        ("grpc.max_connection_age_ms", 1000 * _CONNECTION_SECONDS),
        ("grpc.max_connection_age_grace_ms", 1000 * _LAST_CALLS_SECONDS),
        ("grpc.keepalive_time_ms", 1000 * _PING_SECONDS),
        ("grpc.keepalive_timeout_ms", 1000 * _PONG_SECONDS),
        # Another process on the same port would get a part of the connections.
        ("grpc.so_reuseport", 0),
    ]
