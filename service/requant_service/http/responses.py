"""Responses: of byte buffers that are sent as they are, of pydantic models, and of content that never changes.

Buffers are sent with their length stated, never through an encoder or a copy. With a Content-Length uvicorn hands each
to the socket as it is; a chunked body would be joined first. Content that stays the same as long as the process lives
is made once, with a strong ETag (RFC 9110 8.8.3).
"""

from __future__ import annotations

import asyncio
import gzip
import json
from base64 import b64encode
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from requant_service.runtime.request_context import RequestContext, context_of, reserve_memory

Buffer = bytes | memoryview
Header = tuple[bytes, bytes]

# Up to here one copy is cheaper than one more call of the transport, and hashing than a change of thread.
_SMALL = 64 << 10
_COPIED = 4 << 10
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
        # Starlette's own takes and encodes strings, and searches for fields that are already set.
        self.status_code = 200
        self.background = None
        self.buffers = list(buffers)
        length = self.length = sum(map(len, self.buffers))
        described = (b"content-length", b"%d" % length), (b"content-type", media_type.encode("latin-1"))
        self.raw_headers = [*headers, *described]

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
                    # The system accepts megabytes in one call. A fast client must not make others wait.
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
        self._content = head, buffers, length, media_type, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and then each buffer. Sending waits for the client."""
        head, buffers, length, media_type, headers = self._content
        if _wants_digest(scope):
            # The digest precedes the body, so the body has to be kept.
            await reserve_memory(scope, len(head) + length)
            response = BuffersResponse([head, *[buffer async for buffer in buffers]], media_type, headers)
            await response(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": head, "more_body": True})
        async for buffer in buffers:
            await send({"type": "http.response.body", "body": buffer, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _wants_digest(scope: Scope) -> bool:
    """Return whether `Want-Repr-Digest` asks for SHA-256, with any preference but 0 (RFC 9530)."""
    field = context_of(scope).headers.get(b"want-repr-digest")
    if field is None:
        return False
    wishes = [wish.partition(b"=") for wish in field.split(b",")]
    return any(name.strip().lower() == b"sha-256" and preference.strip() != b"0" for name, _, preference in wishes)


def bytes_of(array: NDArray[Any]) -> Buffer:
    """Return the bytes of a contiguous array: its own memory, unless it is so small that a copy costs less."""
    return array.tobytes() if array.nbytes <= _COPIED else array.view(np.uint8).data


def json_text(value: Any) -> bytes:
    """Return `value` as compact JSON. For the small parts of a response only."""
    return _COMPACT.encode(value).encode()


def plain_text(value: Any) -> bytes:
    """Return `value`, in which there are no floats, as compact JSON, in a quarter of the time."""
    return to_json(value)


def numbers_text(numbers: NDArray[np.float64] | NDArray[np.int64]) -> bytes:
    """Return numbers as a JSON list."""
    return to_json(numbers.reshape(-1).tolist())


def records_text(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Return records of numbers and texts as a JSON list, numbers as in other lists."""
    return to_json(records)


def model_text(model: BaseModel) -> bytes:
    """Return a model as JSON. Fields that were never set are absent."""
    return model.model_dump_json(exclude_unset=True).encode()


def json_list_response(models: Iterable[BaseModel]) -> Response:
    """Return models as a JSON list."""
    return Response(b"[" + b",".join(map(model_text, models)) + b"]", media_type="application/json")


def json_response(model: BaseModel, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a model as a JSON response."""
    return Response(model_text(model), status_code, headers, media_type="application/json")


_JSON = "application/json"
_DIGITS = 32
_GZIP = {"content-encoding": "gzip", "vary": "accept-encoding"}

PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""The headers of a page that loads only its own files. Icons may be in data: URLs."""


class StaticContent:
    """Content that `make` returns when it is first requested, in a thread, as it may take a second.

    `compressed`: it is sent with gzip to clients that accept it, compressed once.
    """

    def __init__(
        self,
        make: Callable[[], bytes],
        media_type: str = _JSON,
        headers: Mapping[str, str] | None = None,
        *,
        compressed: bool = False,
    ) -> None:
        self._make = make
        self._media_type = media_type
        self._headers = headers
        self._lock = Lock()
        self._content: tuple[bytes, str] | None = None
        self._gzip = StaticContent(self._compress, media_type, {**(headers or {}), **_GZIP}) if compressed else None

    async def response(self, request: Request) -> Response:
        """Return the reply to a request: the content, or 304 for a client that has it."""
        if self._gzip is not None and accepts_gzip(request):
            return await self._gzip.response(request)
        content = self._content
        if content is None:
            content = await asyncio.to_thread(self._content_once)
        body, tag = content
        headers = self._headers if self._gzip is None else {**(self._headers or {}), "vary": "accept-encoding"}
        return _reply(request, body, tag, self._media_type, headers)

    def _compress(self) -> bytes:
        return gzip.compress(self._content_once()[0], mtime=0)

    def _content_once(self) -> tuple[bytes, str]:
        with self._lock:
            content = self._content
            if content is None:
                body = self._make()
                content = self._content = body, entity_tag(body)
            return content


def accepts_gzip(request: Request) -> bool:
    """Return whether Accept-Encoding names gzip, with another weight than zero (RFC 9110 12.5.3)."""
    codings = ",".join(request.headers.getlist("accept-encoding")).lower()
    for each in codings.split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() == "gzip":
            return weight.strip().removeprefix("q=").strip("0.") != "" or not weight
    return False


def static_json(make: Callable[[], BaseModel]) -> StaticContent:
    """Return a model as content that never changes."""
    return StaticContent(lambda: model_text(make()))


def tagged_json(request: Request, model: BaseModel, headers: Mapping[str, str] | None = None) -> Response:
    """Return a model that changes rarely, with its ETag, or 304 for a client that has it."""
    body = model_text(model)
    return _reply(request, body, entity_tag(body), _JSON, headers)


def entity_tag(body: bytes) -> str:
    """Return a strong ETag: equal for equal bytes, on every replica."""
    return f'"{sha256(body).hexdigest()[:_DIGITS]}"'


def _reply(request: Request, body: bytes, tag: str, media_type: str, headers: Mapping[str, str] | None) -> Response:
    # no-cache: may be stored, and is revalidated each time, which costs a 304.
    described = {"etag": tag, "cache-control": "no-cache", **(headers or {})}
    if _has(request, tag):
        return Response(status_code=304, headers=described)
    return Response(body, headers=described, media_type=media_type)


def _has(request: Request, tag: str) -> bool:
    """Return whether If-None-Match names the tag. It compares weakly (RFC 9110 13.1.2)."""
    listed = ",".join(request.headers.getlist("if-none-match"))
    # Our tags have no commas in them.
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in listed.split(","))
