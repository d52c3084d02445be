"""A JSON request: received whole, within its limits, and read into a model."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import Scope

from core.errors import LimitError, MalformedRequestError, RequantError
from service.http.json_document import JsonDocument
from service.http.json_slices import SLICE_TOKENS, SlicedDocument, Text
from service.http.problems import invalid_request
from service.http.request_body import BodyReader, require_media_type
from service.runtime.executor import TOKENS_PER_CHARACTER
from service.runtime.request_context import reserve_memory
from service.runtime.runtime import Runtime
from service.runtime.settings import Settings

MEDIA_TYPE = "application/json"

Model = TypeVar("Model", bound=BaseModel)

# A text from here on is looked for before tokens are counted: base64 and types are long, and have few or none.
_LONG_TEXT = 4096
# So many texts are looked at one by one.
_MOST_TEXTS = 256
# The tokens of a body up to here are counted on the loop.
_QUICKLY_COUNTED = 256 << 10
# Memory for a byte of a body: the text in it, what base64 stands for, results in f64, and those as base64; for a byte
# of a type; and for a token, of which a parser makes an object. The tokens of a long body
# are not counted yet: there are no more than are read at all.
_BYTES_FOR_BYTE = 8
_BYTES_FOR_TYPE_BYTE = 16
_LONG_TYPE_BYTES = 1 << 20
_BYTES_FOR_TOKEN = 100


async def receive_json(request: Request, model: type[Model], running: Runtime) -> tuple[Model, JsonDocument]:
    """Receive the body of a JSON route. Return it as a model and as it came.

    Tokens are counted first. At 100 bytes for an empty list, a parser makes half a gigabyte of 8 MiB of brackets.
    """
    settings = running.settings
    require_media_type(request.headers, {MEDIA_TYPE})
    document = JsonDocument(await BodyReader(request.scope, request.receive, settings.max_json_bytes).text())
    weight = tokens_of(document.text)
    await reserve_for_objects(request.scope, document.body, weight, settings.max_json_tokens)
    read = partial(_read_document, document, model, settings)
    return await running.executor.run_text(weight // TOKENS_PER_CHARACTER, read), document


async def reserve_for_objects(scope: Scope, body: Text, weight: int, most_tokens: int) -> None:
    """Hold memory for what a body is read into, and for the arrays that are made of that."""
    bytes_of_types = _BYTES_FOR_TYPE_BYTE * min(len(body), _LONG_TYPE_BYTES)
    bytes_of_tokens = _BYTES_FOR_TOKEN * min(weight, most_tokens)
    await reserve_memory(scope, _BYTES_FOR_BYTE * len(body) + bytes_of_types + bytes_of_tokens)


def tokens_of(body: Text) -> int:
    """Return about how many tokens of JSON cost as much to read as this body does."""
    # A long text costs little, but to see that it is one takes a while too.
    return token_bound(body) if len(body) <= _QUICKLY_COUNTED else len(body)


def _read_document(document: JsonDocument, model: type[Model], settings: Settings) -> Model:
    try:
        return read_json(document.text, model, settings)
    except MalformedRequestError:
        # So that the message counts all characters.
        return read_json(document.body, model, settings)


def read_json(body: Text, model: type[Model], settings: Settings) -> Model:
    """Read a body into a model. Of a field that is there twice, the last one counts."""
    limit, tokens = settings.max_json_tokens, token_bound(body)
    if tokens > limit:
        detail = f"the JSON has more than {limit} quotes, commas and brackets (counted twice); send tensors as data"
        raise LimitError(detail, limit=limit)
    # To find none takes a tenth of the time of counting.
    if body.find(b"\\") >= 0 and body.count(b"\\") > limit:
        raise LimitError(f"the JSON has more than {limit} backslashes; send tensors as data", limit=limit)
    if tokens <= SLICE_TOKENS:
        found = _read(body, model, settings)
    else:
        with _uncollected():
            found = _read_in_slices(body, model, settings)
    if isinstance(found, RequantError):
        raise found
    return found


def _read(body: Text, model: type[Model], settings: Settings) -> Model | RequantError:
    """Return an error instead of raising it: it would keep pydantic's, and that one the whole document, alive."""
    try:
        return model.model_validate(from_json(body, cache_strings=False))
    except ValidationError as error:
        return invalid_request(error, settings.max_values)
    except ValueError as error:
        return MalformedRequestError(f"the body is not JSON: {error}")


def _read_in_slices(body: Text, model: type[Model], settings: Settings) -> Model | RequantError:
    """Do as `_read` does, without keeping other threads from running for long."""
    try:
        document = SlicedDocument(body)
    except ValueError as error:
        return MalformedRequestError(f"the body is not JSON: {error}")
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        return invalid_request(error, settings.max_values)
    finally:
        document.release()


def token_bound(body: Text) -> int:
    """Return how many quotes and commas there are, and twice how many opening brackets, which cost a parser most.

    A bound from above: those inside of strings are counted with the others. Only long texts without any escape, such as
    base64 and types, are left out when they come among the first: to look for their end is quicker than to count.
    """
    if len(body) < _LONG_TEXT:
        return _count(body, 0, len(body))
    bound, at = 0, 0
    for _ in range(_MOST_TEXTS):
        begin = body.find(b'"', at) + 1
        end = body.find(b'"', begin) if begin else -1
        if end < 0:
            break
        if body.find(b"\\", at, end) >= 0:
            # Perhaps the text goes on, and what seems to be the next one lies between texts.
            break
        bound += _count(body, at, end + 1) if end - begin < _LONG_TEXT else _count(body, at, begin) + 1
        at = end + 1
    return bound + _count(body, at, len(body))


def _count(body: Text, begin: int, end: int) -> int:
    single = body.count(b'"', begin, end) + body.count(b",", begin, end)
    return single + 2 * (body.count(b"[", begin, end) + body.count(b"{", begin, end))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the cyclic garbage collector from running: it would go through the growing document many times.

    What is read has no cycles.
    """
    pause = gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()
