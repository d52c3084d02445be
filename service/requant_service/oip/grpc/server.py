"""The gRPC server: it starts and stops with the service, and publishes its state in gRPC's own health service."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from requant_service.http2.connection import ConnectionLimits
from requant_service.http2.listener import Http2Listener
from requant_service.oip.grpc.calls import Calls
from requant_service.oip.grpc.grpc_services import Health
from requant_service.oip.grpc.methods import HEALTH_SERVICES, methods
from requant_service.runtime.listening import BACKLOG, CannotListenError, bound_sockets
from requant_service.runtime.runtime import HealthStatus, Runtime
from requant_service.runtime.settings import Settings
from requant_service.runtime.shared_numbers import CountedConnections

_log = logging.getLogger("uvicorn.error")


def bind_grpc(settings: Settings) -> list[socket.socket]:
    """Return the sockets of gRPC. Raise CannotListenError."""
    assert settings.grpc_port is not None
    try:
        return bound_sockets(settings.host, settings.grpc_port)
    except OSError as error:
        raise CannotListenError("grpc_port", _address(settings), error) from None


def _address(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.grpc_port}"


def log_grpc(settings: Settings) -> None:
    """Log where gRPC is served."""
    _log.info("gRPC on %s%s.", _address(settings), "" if settings.tls_certificate is None else " with TLS")


@asynccontextmanager
async def serving_grpc(running: Runtime) -> AsyncIterator[None]:
    """Serve gRPC until the service stops, on a port or, as a worker, on what the supervisor hands over.

    Raise CannotListenError if the port cannot be used.
    """
    settings = running.settings
    assert settings.grpc_port is not None
    health = Health(running, HEALTH_SERVICES)
    calls = Calls(running, methods(running, health))
    limits = ConnectionLimits(
        head_bytes=settings.max_head_bytes,
        header_fields=settings.max_header_fields,
        head_seconds=settings.head_seconds,
        write_seconds=settings.body_seconds,
        idle_seconds=settings.keep_alive_seconds,
    )
    certificate = running.certificate
    tls = None if certificate is None else certificate.h2_context
    listener = Http2Listener(limits, calls.open_stream, tls, CountedConnections(running.numbers))
    if running.numbers.are_shared:
        running.serve_grpc = listener.serve_accepted
    else:
        await listener.listen(bind_grpc(settings), BACKLOG)
        log_grpc(settings)
    loop = asyncio.get_running_loop()

    def changed(_: HealthStatus) -> None:
        loop.call_soon_threadsafe(health.changed)

    running.status_listeners.append(changed)
    running.tick_listeners.append(calls.make_room_elsewhere)
    stopping = asyncio.create_task(_stop(listener, calls, running))
    try:
        yield
    finally:
        running.closing.set()
        await stopping
        running.status_listeners.remove(changed)
        running.tick_listeners.remove(calls.make_room_elsewhere)


async def _stop(listener: Http2Listener, calls: Calls, running: Runtime) -> None:
    """Stop when the service accepts no more: streams at once, and calls that are under way have their time."""
    await running.closing.wait()
    calls.stop_streams(listener.connections)
    await listener.stop(running.settings.shutdown_seconds)
