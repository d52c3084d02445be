"""Responses made of byte buffers: sent as they are, with their length stated, never through an encoder or a copy.

With a Content-Length uvicorn hands each buffer to the socket as it is; a chunked body would be joined first.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from requant_service.runtime.request_context import RequestContext, context_of, reserve_memory

Buffer = bytes | memoryview
Header = tuple[bytes, bytes]

# Up to here one copy is cheaper than one more call of the transport, and hashing than a change of thread.
_SMALL = 64 << 10
# A longer buffer is sent in parts of this size.
_PART = 256 << 10
_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def common_headers(context: RequestContext) -> tuple[Header, ...]:
    """Return the header fields that belong on every response to a request."""
    return (
        (b"x-request-id", context.request_id.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    )


class BuffersResponse(Response):
    """A response whose body is a sequence of buffers, each sent as it is."""

    def __init__(self, buffers: Iterable[Buffer], media_type: str, headers: Sequence[Header] = ()) -> None:
        # Not Starlette's, which takes texts, encodes them, and looks for fields that may be there already.
        self.status_code = 200
        self.background = None
        self.buffers = list(buffers)
        self.length = sum(map(len, self.buffers))
        content = ((b"content-length", b"%d" % self.length), (b"content-type", media_type.encode("latin-1")))
        self.raw_headers = [*headers, *content]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and then each buffer."""
        if _wants_digest(scope):
            self.raw_headers.append(await self._digest())
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self.length <= _SMALL:
            await send({"type": "http.response.body", "body": b"".join(self.buffers)})
            return
        for buffer in self.buffers:
            for at in range(0, len(buffer), _PART):
                part = buffer if len(buffer) <= _PART else memoryview(buffer)[at : at + _PART]
                await send({"type": "http.response.body", "body": part, "more_body": True})
                if len(part) == _PART:
                    # The system takes megabytes in one call. A client that takes all must not make others wait.
                    await asyncio.sleep(0)
        # Sending waits until what came before has left, so the memory of the response is in use until then.
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _digest(self) -> Header:
        """Return the header field `Repr-Digest` (RFC 9530): proof that the bytes are those that were computed."""

        def compute() -> bytes:
            digest = sha256()
            for buffer in self.buffers:
                digest.update(buffer)
            return b"sha-256=:%s:" % b64encode(digest.digest())

        return b"repr-digest", compute() if self.length <= _SMALL else await asyncio.to_thread(compute)


class StreamedResponse(Response):
    """A response of `head` and `length` more bytes, which are made while it is sent: as fast as the client takes it."""

    def __init__(
        self,
        head: bytes,
        buffers: AsyncIterable[Buffer],
        length: int,
        media_type: str,
        headers: Sequence[Header] = (),
    ) -> None:
        super().__init__(headers={"content-length": str(len(head) + length)}, media_type=media_type)
        self.raw_headers[:0] = headers
        self._made = head, buffers, length, media_type, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and then each buffer. Sending waits for the client."""
        head, buffers, length, media_type, headers = self._made
        if _wants_digest(scope):
            # What has to be known before the first byte is sent has to be kept.
            await reserve_memory(scope, len(head) + length)
            kept = BuffersResponse([head, *[buffer async for buffer in buffers]], media_type, headers)
            await kept(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": head, "more_body": True})
        async for buffer in buffers:
            await send({"type": "http.response.body", "body": buffer, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _wants_digest(scope: Scope) -> bool:
    """Return whether `Want-Repr-Digest` asks for SHA-256, with any preference but 0 (RFC 9530)."""
    field = context_of(scope).headers.get(b"want-repr-digest")
    wishes = [] if field is None else [wish.partition(b"=") for wish in field.split(b",")]
    return any(name.strip().lower() == b"sha-256" and preference.strip() != b"0" for name, _, preference in wishes)


def json_text(value: Any) -> bytes:
    """Return `value` as compact JSON. For the small parts of a response only."""
    return _COMPACT.encode(value).encode()


def model_text(model: BaseModel) -> bytes:
    """Return a model as JSON. Fields that were never set are absent."""
    return model.model_dump_json(exclude_unset=True).encode()


def json_list_response(models: Iterable[BaseModel]) -> Response:
    """Return models as a JSON list."""
    return Response(b"[" + b",".join(map(model_text, models)) + b"]", media_type="application/json")


def json_response(model: BaseModel, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a model as a JSON response."""
    return Response(model_text(model), status_code, headers, media_type="application/json")
