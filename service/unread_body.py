"""What becomes of a request's body that nobody read when its reply is ready: a bounded part of it is taken, no more.

A refusal often comes before the body: no such path, a wrong query, a limit. uvicorn then takes in whatever still comes,
for as long as it comes, before it reads the next request. Closing at once is no better: with bytes of the client unread
that resets the connection, and a client that sends everything before it reads never sees why it was refused.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A rest of at most this many bytes, stated by the client, is left to uvicorn: the connection stays usable.
_SMALL_REST = 64 << 10

# How much of a longer rest is received and dropped, and how long: in all, and without a byte coming.
_LINGER_BYTES = 256 << 20
_LINGER_SECONDS = 10.0
_PAUSE_SECONDS = 0.5


class UnreadBody:
    """Pure ASGI middleware: after a reply that came before the end of a long body, the connection closes.

    The reply goes out at once. Then what the client sends is dropped until it ends, pauses or is too much.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through, and see how much of the body is left when the reply begins."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(Headers(scope=scope), receive)
        closes = False

        async def send_and_end(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start":
                closes = body.is_long()
                if closes:
                    MutableHeaders(scope=message)["connection"] = "close"
            elif closes and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await body.drop()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self.app(scope, body.receive, send_and_end)


class _Body:
    """The body of one request, counted as it is received."""

    def __init__(self, headers: Headers, receive: Receive) -> None:
        self._receive = receive
        self._received = 0
        chunked = "transfer-encoding" in headers
        # Whether the client waits to be told to go on: then nobody knows if the body will follow.
        self._waits = "expect" in headers
        self._declared = None if chunked else int(headers.get("content-length", "0"))
        self._ended = self._declared == 0

    async def receive(self) -> Message:
        """Receive the next message."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        return message

    def is_long(self) -> bool:
        """Return whether more may come than is left to uvicorn."""
        if self._ended:
            return False
        return self._waits or self._declared is None or self._declared - self._received > _SMALL_REST

    async def drop(self) -> None:
        """Receive what still comes, within the bounds, without keeping it."""
        most = self._received + _LINGER_BYTES
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                while not self._ended and self._received < most:
                    await asyncio.wait_for(self.receive(), _PAUSE_SECONDS)
        except TimeoutError:
            pass
