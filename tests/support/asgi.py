"""The application without a server: a request as the ASGI messages that one would give, and the reply as it came."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.types import Message

from requant_service.app import Application, create_app
from requant_service.runtime.runtime import HealthStatus, Runtime
from requant_service.runtime.settings import Settings


def ready_app(**settings: Any) -> Application:
    """Return an application that takes work. Kernels are compiled by their first call."""
    app = create_app(Settings(**settings))
    runtime: Runtime = app.state.runtime
    runtime.status = HealthStatus.READY
    return app


@dataclass(slots=True)
class Reply:
    """What the application sent."""

    messages: list[Message] = field(default_factory=list)

    @property
    def status(self) -> int:
        found: int = self.messages[0]["status"]
        return found

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])


async def post(
    app: Application,
    path: str,
    query: dict[str, str],
    chunks: Iterable[bytes],
    *,
    declared: int | None,
    complete: bool = True,
    keep: bool = True,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> Reply:
    """Send a body in these chunks; `declared` is its Content-Length, None for chunked coding.

    A body that is not `complete` ends in a disconnect. Unless `keep`, the reply's bytes are dropped.
    """
    reply, source = Reply(), iter(chunks)
    header = (b"transfer-encoding", b"chunked") if declared is None else (b"content-length", b"%d" % declared)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(query).encode(),
        "headers": [header, *headers],
        "server": None,
        "client": None,
    }
    ended = False

    async def receive() -> Message:
        nonlocal ended
        await asyncio.sleep(0)
        if ended:
            return {"type": "http.disconnect"}
        chunk = next(source, None)
        if chunk is not None:
            return {"type": "http.request", "body": chunk, "more_body": True}
        ended = True
        return {"type": "http.request", "body": b"", "more_body": False} if complete else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if not keep and "body" in message:
            message = {**message, "body": b""}
        reply.messages.append(message)

    await app(scope, receive, send)
    return reply
