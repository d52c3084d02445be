"""What holds for every route.

HEAD is answered like GET, and each reply carries the request's id and the two headers that keep browsers and caches
from guessing.
"""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def request_id(scope: Scope) -> str:
    """Return the id of the request: the client's own `X-Request-Id` when it is a plain short one, else a new one."""
    state = scope.setdefault("state", {})
    if "request_id" not in state:
        given = Headers(scope=scope).get("x-request-id", "")
        state["request_id"] = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
    found: str = state["request_id"]
    return found


def common_headers(scope: Scope) -> dict[str, str]:
    """Return the headers that belong on every reply to this request."""
    return {"x-request-id": request_id(scope), "x-content-type-options": "nosniff", "cache-control": "no-store"}


class CommonHeaders:
    """Pure ASGI middleware that adds the common headers to each reply, unless the reply has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through and add to the head of the reply."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = common_headers(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = MutableHeaders(scope=message)
                for name, value in headers.items():
                    present.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


class HeadLikeGet:
    """Pure ASGI middleware that gives HEAD requests to the routes as GET; uvicorn leaves the body out of the reply."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Change the method in a copy: the scope itself is also the server's."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)
