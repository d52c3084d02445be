"""A JSON request: received whole, within its limits, and read into a model."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from core.errors import LimitError, MalformedRequestError, RequantError
from service.lifespan import Runtime
from service.problems import invalid_request
from service.receive import BodyReader, require_media_type
from service.settings import Settings

MEDIA_TYPE = "application/json"

Model = TypeVar("Model", bound=BaseModel)

# From here on the collector would go through the growing document many times while it is read.
_MANY_TOKENS = 10_000


async def receive_json(request: Request, model: type[Model], running: Runtime) -> tuple[Model, bytes]:
    """Receive the body of a JSON route. Return it as a model and as it came.

    Tokens are counted first. A parser takes the whole text, at 100 bytes for an empty list, in one call that lets no
    other thread run: 8 MiB of brackets would stop the service for a second and take half a gigabyte.
    """
    settings = running.settings
    require_media_type(request.headers, {MEDIA_TYPE})
    reader = BodyReader(request.scope, request.receive, settings.max_json_bytes)
    body = (await reader.rest()).tobytes()
    tokens = checked_tokens(body, settings)
    return await running.compute.texts(tokens, lambda: read_json(body, model, settings)), body


def checked_tokens(body: bytes, settings: Settings) -> int:
    """Return how many tokens a body has at most, or refuse it for its number of them."""
    tokens, limit = token_bound(body), settings.max_json_tokens
    if tokens > limit:
        raise LimitError(
            f"the JSON has more than {limit} quotes, commas and brackets (counted twice); send tensors as data",
            limit=limit,
        )
    return tokens


def read_json(body: bytes, model: type[Model], settings: Settings) -> Model:
    """Read a body into a model. Of a field that is there twice, the last one counts."""
    with _uncollected(token_bound(body) > _MANY_TOKENS):
        found = _read(body, model, settings)
    if isinstance(found, RequantError):
        raise found
    return found


def _read(body: bytes, model: type[Model], settings: Settings) -> Model | RequantError:
    """Return an error instead of raising it: it would keep pydantic's, and that one the whole document, alive."""
    try:
        return model.model_validate(from_json(body, cache_strings=False))
    except ValidationError as error:
        return invalid_request(error, settings.max_values)
    except ValueError as error:
        return MalformedRequestError(f"the body is not JSON: {error}")


def token_bound(body: bytes) -> int:
    """Return how many quotes and commas there are, and twice how many opening brackets, which cost a parser most.

    Those inside of strings are counted with the others: a bound from above, for the price of looking at each byte.
    """
    return body.count(b'"') + body.count(b",") + 2 * (body.count(b"[") + body.count(b"{"))


@contextmanager
def _uncollected(pause: bool) -> Iterator[None]:
    """Keep the cyclic garbage collector from running, if `pause` says so. What is read has no cycles."""
    pause = pause and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()
