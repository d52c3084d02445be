"""The body of a JSON request: received completely, within its limits, and parsed into a model; its faults as errors."""

from __future__ import annotations

import gc
import re
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import Scope

from requant.errors import FieldFault, InvalidRequestError, LimitError, MalformedRequestError, RequantError, excerpt
from requant.errors.names import did_you_mean
from requant.mlir.diagnostics import EXAMPLE_TYPE
from requant_service.http.json_document import SLICE_TOKENS, JsonDocument, SlicedDocument, Text
from requant_service.http.problems import pointer
from requant_service.http.request_body import BodyReader, require_media_type
from requant_service.runtime.executor import TOKENS_PER_CHARACTER
from requant_service.runtime.request_context import context_of, reserve_memory
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

MEDIA_TYPE = "application/json"
_MEDIA_TYPES = frozenset({MEDIA_TYPE})

Model = TypeVar("Model", bound=BaseModel)

# Strings of at least this length are skipped when tokens are counted: base64 and types, which have few or none.
_LONG_TEXT = 4096
# At most so many strings are skipped.
_MAX_TEXTS = 256
# Tokens are counted on the event loop in bodies of up to this length.
_MAX_COUNTED_INLINE = 256 << 10
# Memory for a byte of a body (its text, the decoded base64, results in f64, and those as base64), for a byte of a type,
# and for a token, of which the parser makes an object. The tokens of a long body are not counted yet, but limited.
_BYTES_FOR_BYTE = 8
_BYTES_FOR_TYPE_BYTE = 16
_LONG_TYPE_BYTES = 1 << 20
_BYTES_FOR_TOKEN = 100


async def receive_json(request: Request, model: type[Model], running: Runtime) -> tuple[Model, JsonDocument]:
    """Receive the body of a JSON route. Return it as a model and as it was received."""
    document = await receive_document(request, running)
    return await parse_document(request, document, model, running), document


async def receive_document(request: Request, running: Runtime) -> JsonDocument:
    """Receive the body of a JSON route."""
    require_media_type(context_of(request.scope).headers, _MEDIA_TYPES)
    return JsonDocument(await BodyReader(request.scope, request.receive, running.settings.max_json_bytes).text())


async def parse_document(request: Request, document: JsonDocument, model: type[Model], running: Runtime) -> Model:
    """Parse a body into a model.

    Tokens are counted first: at 100 bytes for an empty list, a parser makes half a gigabyte of 8 MiB of brackets.
    """
    settings = running.settings
    weight = tokens_of(document.text)
    await reserve_for_objects(request.scope, document.body, weight, settings.max_json_tokens)
    tokens = weight if len(document.text) <= _MAX_COUNTED_INLINE else None
    read = partial(_read_document, document, model, settings, tokens)
    return await running.executor.run_text(weight // TOKENS_PER_CHARACTER, read)


def reserve_for_objects(scope: Scope, body: Text, weight: int, max_tokens: int) -> Awaitable[None]:
    """Reserve memory for the objects that a body is parsed into, and for the arrays that are made of them."""
    return reserve_memory(scope, bytes_for_objects(body, weight, max_tokens))


def bytes_for_objects(body: Text, weight: int, max_tokens: int) -> int:
    """Return about how many bytes a JSON text becomes when it is parsed. `weight`: `tokens_of` it."""
    bytes_of_types = _BYTES_FOR_TYPE_BYTE * min(len(body), _LONG_TYPE_BYTES)
    bytes_of_tokens = _BYTES_FOR_TOKEN * min(weight, max_tokens)
    return _BYTES_FOR_BYTE * len(body) + bytes_of_types + bytes_of_tokens


def tokens_of(body: Text) -> int:
    """Return about how many tokens of JSON take as long to parse as this body."""
    # A long string costs little, but finding out that it is one takes time too.
    return token_bound(body) if len(body) <= _MAX_COUNTED_INLINE else len(body)


def _read_document(document: JsonDocument, model: type[Model], settings: Settings, tokens: int | None) -> Model:
    try:
        return read_json(document.text, model, settings, tokens)
    except MalformedRequestError:
        # Again with all characters, which the message counts.
        return read_json(document.body, model, settings)


def read_json(body: Text, model: type[Model], settings: Settings, tokens: int | None = None) -> Model:
    """Parse a body into a model. Of a repeated field the last one counts. `tokens`: its `token_bound`, if known."""
    limit, tokens = settings.max_json_tokens, token_bound(body) if tokens is None else tokens
    if tokens > limit:
        detail = f"the JSON has more than {limit} quotes, commas and brackets (counted twice); send tensors as data"
        raise LimitError(detail, limit=limit)
    # Finding that there are none takes a tenth of the time of counting.
    if body.find(b"\\") >= 0 and body.count(b"\\") > limit:
        raise LimitError(f"the JSON has more than {limit} backslashes; send tensors as data", limit=limit)
    parsed = _read(body, model, settings, in_slices=tokens > SLICE_TOKENS)
    if isinstance(parsed, RequantError):
        raise parsed
    return parsed


def _read(body: Text, model: type[Model], settings: Settings, *, in_slices: bool) -> Model | RequantError:
    """Return an error instead of raising it: it would keep pydantic's, and that one the whole document, alive."""
    document = None
    try:
        if in_slices:
            with _without_garbage_collection():
                document = SlicedDocument(body)
                return _validated(document.value, model)
        return _validated(from_json(body, cache_strings=False), model)
    except ValidationError as error:
        return invalid_request(error, model, settings.max_values)
    except ValueError as error:
        return MalformedRequestError(_not_json(body, error))
    finally:
        if document is not None:
            document.release()


def _validated(value: Any, model: type[Model]) -> Model:
    # As `model_validate` without its options, which take as long to look at as a small request to validate.
    validated: Model = model.__pydantic_validator__.validate_python(value)
    return validated


def _not_json(body: Text, error: ValueError) -> str:
    if not body.strip():
        return "the body is empty; this route reads a JSON object"
    if body.startswith(b"\x93NUMPY"):
        return "the body is a .npy file, not JSON; the routes under /v1/npy read those"
    if body.lstrip()[:1] not in b"{[":
        return f"the body is not JSON: {error}; it begins with neither {{ nor [. curl sends a file as `-d @body.json`"
    return f"the body is not JSON: {error}"


def token_bound(body: Text) -> int:
    """Return the number of quotes and commas, and twice that of opening brackets, which cost a parser most.

    An upper bound: those inside of strings are counted too. Only long strings without an escape, such as base64 and
    types, are skipped if they are among the first: finding their end is quicker than counting.
    """
    if len(body) < _LONG_TEXT:
        return _count(body, 0, len(body))
    bound, at = 0, 0
    for _ in range(_MAX_TEXTS):
        begin = body.find(b'"', at) + 1
        end = body.find(b'"', begin) if begin else -1
        if end < 0:
            break
        if body.find(b"\\", at, end) >= 0:
            # The quote may be escaped, and what looks like the next string may lie between strings.
            break
        bound += _count(body, at, end + 1) if end - begin < _LONG_TEXT else _count(body, at, begin) + 1
        at = end + 1
    return bound + _count(body, at, len(body))


def _count(body: Text, begin: int, end: int) -> int:
    single = body.count(b'"', begin, end) + body.count(b",", begin, end)
    return single + 2 * (body.count(b"[", begin, end) + body.count(b"{", begin, end))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the cyclic collector, which would traverse the growing document many times. JSON has no cycles."""
    pause = gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


_MAX_FAULTS = 16
# Faults that the message itself names.
_MAX_NAMED = 3
# Faults come from schemas and say nothing of the input; a list of names may be long.
_LONGEST_DETAIL = 400

# Other systems pass these beside the tensor.
IN_THE_TYPE = ("scale", "scales", "zero_point", "zero_points", "dtype")
_QUOTED = re.compile("'([^']*)'")
# Pydantic's messages about Python types, in terms of JSON.
_IN_JSON = {
    "model_type": "input should be an object",
    "dict_type": "input should be an object",
    "string_type": "input should be a string",
    "list_type": "input should be an array",
}


def invalid_request(
    error: ValidationError, model: type[BaseModel], max_values: int, within: Sequence[str] = ()
) -> RequantError:
    """Return what pydantic found wrong with the fields of `model` as our own error, without the input.

    `within`: where in the request it stands that was read as the model.
    `max_values` is the limit that a list of values has passed before it was found too long here.
    """
    faults_of_fields = error.errors(include_url=False)
    if faults_of_fields[0]["type"] == "too_long":
        place = faults_of_fields[0]["loc"]
        if "values" in place:
            place, limit = place[: place.index("values") + 1], max_values
        else:
            limit = faults_of_fields[0]["ctx"]["max_length"]
        return LimitError(f"a list has more than {limit} entries", limit=limit, pointer=pointer(*within, *place))
    listed: set[str] = set()
    faults = [_fault(item, model, listed, within) for item in faults_of_fields[:_MAX_FAULTS]]
    named = "; ".join(f"{fault.pointer or 'the body'}: {fault.detail}" for fault in faults[:_MAX_NAMED])
    more = f" (and {len(faults_of_fields) - _MAX_NAMED} more)" if len(faults_of_fields) > _MAX_NAMED else ""
    return InvalidRequestError(named + more, tuple(faults))


def _fault(item: Any, model: type[BaseModel], listed: set[str], within: Sequence[str]) -> FieldFault:
    """Return one fault. `listed`: the objects whose fields a fault has listed already, which gets this one's."""
    location, kind, value = item["loc"], item["type"], item["input"]
    place = pointer(*within, *location)
    if kind == "extra_forbidden" and location:
        parent = pointer(*within, *location[:-1])
        known = fields_at(model, location[:-1])
        suggestion = did_you_mean(str(location[-1]), known)
        choices = "" if parent in listed else f"; available: {', '.join(known)}"
        listed.add(parent)
        if choices and location[-1] in IN_THE_TYPE and "output_type" in known:
            choices = f"; it is part of the type: {EXAMPLE_TYPE}"
        detail = f"unknown field, {suggestion}" if suggestion else f"unknown field{choices}"
        if excerpt(place) != place:
            # Too long to be shown, or unprintable.
            place = parent
    else:
        detail = _IN_JSON.get(kind) or item["msg"][:1].lower() + item["msg"][1:]
        if kind == "enum" and isinstance(value, str):
            suggestion = did_you_mean(value, _QUOTED.findall(item["ctx"]["expected"]))
            detail += f"; {suggestion}" if suggestion else ""
        if kind == "model_type" and (known := fields_at(model, location)):
            tensor = {"type", "data", "values"}.issubset(known)
            detail += " with type, and either values or data" if tensor else f" with {', '.join(known)}"
        if kind == "string_type" and location and str(location[-1]).endswith("type"):
            detail += f', such as "{EXAMPLE_TYPE}"'
    detail = detail if len(detail) <= _LONGEST_DETAIL else detail[: _LONGEST_DETAIL - 3] + "..."
    return FieldFault(excerpt(place), kind, detail)


def fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Return the names of the fields of the object at a place in a model; none where no object is described."""
    annotation: Any = model
    for key in location:
        if isinstance(key, int):
            annotation = next((each for each in map(_model_in, get_args(annotation)) if each is not None), None)
        else:
            field = getattr(annotation, "model_fields", {}).get(key)
            annotation = None if field is None else field.annotation
            annotation = _model_in(annotation) or annotation
    annotation = _model_in(annotation)
    return [] if annotation is None else list(annotation.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that an annotation is, perhaps with metadata, but not that of a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = get_args(annotation)
    return _model_in(inner[0]) if inner and hasattr(annotation, "__metadata__") else None
