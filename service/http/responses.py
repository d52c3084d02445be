"""Replies made of buffers: sent as they are, with their length stated, never through an encoder or a copy.

A stated Content-Length lets uvicorn hand each buffer to the socket as it is; a chunked reply would be joined first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.http.digest import digest_field, wants_digest
from service.runtime.memory_budget import reserve_memory

Piece = bytes | memoryview
Header = tuple[bytes, bytes]

# Below this, one copy is cheaper than one more call of the transport.
_JOIN_BELOW = 64 << 10
# A longer piece is sent in parts of this size.
_SENT_AT_ONCE = 256 << 10

_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class SizedResponse(Response):
    """A reply whose length is known: the base of those that send their body by themselves."""

    def __init__(self, length: int, media_type: str, headers: Sequence[Header]) -> None:
        # Response's own __init__ takes longer than all the rest of a small reply.
        self.length = length
        self.status_code = 200
        self.background = None
        self.body = b""
        described = [(b"content-length", b"%d" % length), (b"content-type", media_type.encode("ascii"))]
        self.raw_headers = [*headers, *described]

    async def _begin(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})


class BuffersResponse(SizedResponse):
    """A reply whose body is a sequence of byte buffers, each sent as one ASGI message."""

    def __init__(self, pieces: Iterable[Piece], media_type: str, headers: Sequence[Header] = ()) -> None:
        self.pieces = [piece for piece in pieces if piece]
        length = sum(map(len, self.pieces))
        if length <= _JOIN_BELOW:
            self.pieces = [b"".join(self.pieces)]
        super().__init__(length, media_type, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and then each piece."""
        if wants_digest(scope):
            self.raw_headers.append(await digest_field(self.pieces, self.length))
        await self._begin(send)
        if len(self.pieces) == 1 and len(self.pieces[0]) <= _JOIN_BELOW:
            await send({"type": "http.response.body", "body": self.pieces[0], "more_body": False})
            return
        for piece in self.pieces:
            for at in range(0, len(piece), _SENT_AT_ONCE):
                part = piece if len(piece) <= _SENT_AT_ONCE else memoryview(piece)[at : at + _SENT_AT_ONCE]
                await send({"type": "http.response.body", "body": part, "more_body": True})
                if len(part) == _SENT_AT_ONCE:
                    # The system takes megabytes in one call. A client that takes all does not make the others wait.
                    await asyncio.sleep(0)
        # Sending waits until what came before has left: so long the reply's memory is in use.
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class StreamedResponse(SizedResponse):
    """A reply of a head and `length` more bytes, whose pieces are made while it is sent: as the client takes them."""

    def __init__(
        self,
        head: bytes,
        pieces: AsyncIterable[Piece],
        length: int,
        media_type: str,
        headers: Sequence[Header] = (),
    ) -> None:
        self.head = head
        self.pieces = pieces
        self.media, self.headers_given = media_type, headers
        super().__init__(len(head) + length, media_type, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and then each piece. Sending waits for the client."""
        if wants_digest(scope):
            # What has to be known before the first byte leaves has to be kept.
            await reserve_memory(scope, self.length)
            kept = BuffersResponse([self.head, *[piece async for piece in self.pieces]], self.media, self.headers_given)
            await kept(scope, receive, send)
            return
        await self._begin(send)
        await send({"type": "http.response.body", "body": self.head, "more_body": True})
        async for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def json_text(value: Any) -> bytes:
    """Return `value` as compact JSON. For the small parts of a reply only."""
    return _COMPACT.encode(value).encode()


def model_text(model: BaseModel) -> bytes:
    """Return a model as JSON. Fields that were never set are absent."""
    return model.model_dump_json(exclude_unset=True).encode()


def json_list_response(models: Iterable[BaseModel]) -> Response:
    """Return models as a JSON list."""
    return Response(b"[" + b",".join(map(model_text, models)) + b"]", media_type="application/json")


def json_response(model: BaseModel, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a model as a JSON reply."""
    return Response(model_text(model), status_code, headers, media_type="application/json")
