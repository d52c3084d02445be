"""Replies that stay the same as long as the process lives: made once, as bytes, with a strong ETag (RFC 9110 8.8.3)."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping
from hashlib import sha256
from threading import Lock

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from requant_service.http.responses import model_text

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
        self._made: tuple[bytes, str] | None = None
        self._gzip = StaticContent(self._compress, media_type, {**(headers or {}), **_GZIP}) if compressed else None

    async def response(self, request: Request) -> Response:
        """Return the reply to a request: the content, or 304 for a client that has it."""
        if self._gzip is not None and accepts_gzip(request):
            return await self._gzip.response(request)
        made = self._made
        if made is None:
            made = await asyncio.to_thread(self._made_once)
        body, tag = made
        headers = self._headers if self._gzip is None else {**(self._headers or {}), "vary": "accept-encoding"}
        return _reply(request, body, tag, self._media_type, headers)

    def _compress(self) -> bytes:
        return gzip.compress(self._made_once()[0], mtime=0)

    def _made_once(self) -> tuple[bytes, str]:
        with self._lock:
            made = self._made
            if made is None:
                body = self._make()
                made = self._made = body, entity_tag(body)
            return made


def accepts_gzip(request: Request) -> bool:
    """Return whether Accept-Encoding names gzip, with another weight than zero (RFC 9110 12.5.3)."""
    given = ",".join(request.headers.getlist("accept-encoding")).lower()
    for each in given.split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() == "gzip":
            return weight.strip().removeprefix("q=").strip("0.") != "" or not weight
    return False


def static_json(make: Callable[[], BaseModel]) -> StaticContent:
    """Return a model as content that never changes."""
    return StaticContent(lambda: model_text(make()))


def tagged_json(request: Request, model: BaseModel) -> Response:
    """Return a model that changes now and then, with its ETag, or 304 for a client that has it."""
    body = model_text(model)
    return _reply(request, body, entity_tag(body), _JSON, None)


def entity_tag(body: bytes) -> str:
    """Return a strong ETag: equal for equal bytes, on every replica."""
    return f'"{sha256(body).hexdigest()[:_DIGITS]}"'


def _reply(request: Request, body: bytes, tag: str, media_type: str, headers: Mapping[str, str] | None) -> Response:
    # no-cache: may be kept, and is asked for again each time, which costs a 304.
    described = {"etag": tag, "cache-control": "no-cache", **(headers or {})}
    if _has(request, tag):
        return Response(status_code=304, headers=described)
    return Response(body, headers=described, media_type=media_type)


def _has(request: Request, tag: str) -> bool:
    """Return whether If-None-Match names the tag. It compares weakly (RFC 9110 13.1.2)."""
    given = ",".join(request.headers.getlist("if-none-match"))
    # Our tags have no commas in them.
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in given.split(","))
