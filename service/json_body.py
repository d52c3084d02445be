"""A JSON request: received whole, within its limit, and read into a model."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from core.errors import LimitError
from service.problems import invalid_request
from service.receive import BodyReader, require_media_type
from service.settings import Settings

MEDIA_TYPE = "application/json"

Model = TypeVar("Model", bound=BaseModel)


async def receive_json(request: Request, settings: Settings) -> bytes:
    """Receive the body of a JSON route."""
    require_media_type(request.headers, {MEDIA_TYPE})
    reader = BodyReader(request.scope, request.receive, settings.max_json_bytes)
    return (await reader.rest()).tobytes()


def read_json(body: bytes, model: type[Model], settings: Settings) -> Model:
    """Read a body into a model. Of a field that is there twice, the last one counts.

    Tokens are counted first. A parser takes the whole text before it looks for fields, at 300 bytes for an empty list
    and microseconds for an unknown field: 8 MiB of those would hold the event loop for seconds and a gigabyte.
    """
    if token_count(body) > settings.max_json_tokens:
        limit = settings.max_json_tokens
        raise LimitError(
            f"the JSON has more than {limit} strings, commas and brackets; send tensors as data", limit=limit
        )
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise invalid_request(error) from None


def token_count(body: bytes) -> int:
    """Return how many strings, commas and opening brackets a JSON text has, those inside of strings not counted."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    pieces = body.split(b'"')
    outside = b"".join(pieces[::2])
    return len(pieces) // 2 + sum(outside.count(mark) for mark in (b",", b"[", b"{"))
