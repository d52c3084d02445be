"""The gRPC server: it starts and stops with the service, and publishes its state in gRPC's own health service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from requant_service.http2.connection import ConnectionLimits
from requant_service.http2.listener import Http2Listener
from requant_service.oip.grpc.calls import Calls
from requant_service.oip.grpc.grpc_services import Health
from requant_service.oip.grpc.methods import HEALTH_SERVICES, methods
from requant_service.runtime.runtime import HealthStatus, Runtime

_log = logging.getLogger("uvicorn.error")


@asynccontextmanager
async def serving_grpc(running: Runtime) -> AsyncIterator[None]:
    """Serve gRPC until the service stops. Raise OSError if the port cannot be used."""
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
    listener = Http2Listener(limits, calls.open_stream)
    certificate = running.certificate
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        await listener.listen(
            settings.host, settings.grpc_port, None if certificate is None else certificate.h2_context
        )
    except OSError:
        raise OSError(f"grpc_port: cannot listen on {address}:{settings.grpc_port}") from None
    _log.info("gRPC on %s:%d%s.", address, settings.grpc_port, "" if certificate is None else " with TLS")
    loop = asyncio.get_running_loop()

    def changed(_: HealthStatus) -> None:
        loop.call_soon_threadsafe(health.changed)

    running.status_listeners.append(changed)
    stopping = asyncio.create_task(_stop(listener, calls, running))
    try:
        yield
    finally:
        running.closing.set()
        await stopping
        running.status_listeners.remove(changed)


async def _stop(listener: Http2Listener, calls: Calls, running: Runtime) -> None:
    """Stop when the service accepts no more: streams at once, and calls that are under way have their time."""
    await running.closing.wait()
    calls.stop_streams(listener.connections)
    await listener.stop(running.settings.shutdown_seconds)
