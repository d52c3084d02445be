"""Replies made of buffers: sent as they are, with their length stated, never through an encoder or a copy.

A stated Content-Length lets uvicorn hand each buffer to the socket as it is; a chunked reply would be joined first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Piece = bytes | memoryview

# Below this, one copy is cheaper than one more call of the transport.
_JOIN_BELOW = 64 << 10

# How much of the rest of a refused body is received, and how long: in all, and without a byte coming.
_LINGER_BYTES = 256 << 20
_LINGER_SECONDS = 10.0
_PAUSE_SECONDS = 0.5


class PiecesResponse(Response):
    """A reply whose body is a sequence of byte buffers, each sent as one ASGI message."""

    def __init__(self, pieces: Iterable[Piece], media_type: str, headers: Mapping[str, str] | None = None) -> None:
        self.pieces = [piece for piece in pieces if len(piece)]
        length = sum(len(piece) for piece in self.pieces)
        if length <= _JOIN_BELOW:
            self.pieces = [b"".join(self.pieces)]
        super().__init__(None, headers={**(headers or {}), "content-length": str(length), "content-type": media_type})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and then each piece."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        last = len(self.pieces) - 1
        for index, piece in enumerate(self.pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": index < last})


class LastReply(Response):
    """A small reply after which the connection closes, to a client that may still be sending.

    The reply goes out at once. Closing then, with bytes of the client unread, would reset the connection, and a client
    that sends everything before it reads would never see why. So for a while what it sends is received and dropped.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply, drop what still comes until it ends, pauses or is too much, and complete the reply."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                dropped, more = 0, True
                while more and dropped < _LINGER_BYTES:
                    message = await asyncio.wait_for(receive(), _PAUSE_SECONDS)
                    dropped += len(message.get("body", b""))
                    more = message.get("more_body", False)
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def last_reply(reply: Response) -> LastReply:
    """Return a small reply as one that closes the connection."""
    return LastReply(reply.body, reply.status_code, {**reply.headers, "connection": "close"})


def json_text(value: Any) -> bytes:
    """Return `value` as compact JSON. For the small parts of a reply only."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def json_reply(model: BaseModel, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a model as a JSON reply. Fields that were never set are absent."""
    return Response(
        model.model_dump_json(exclude_unset=True).encode(), status_code, headers, media_type="application/json"
    )
