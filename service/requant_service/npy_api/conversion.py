"""Conversions of `.npy` files and of tensors in safetensors files: one file in, one file out, the rest in the query.

What a query and a file's header mean is worked out once and kept: a client sends the same ones again and again, and for
a small tensor that costs more than its arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from requant.errors import InvalidRequestError
from requant.profiles import Operation
from requant_service.http.openapi_operation import BINARY
from requant_service.http.request_body import BodyReader, media_type, require_media_type
from requant_service.http.responses import Header
from requant_service.npy_api import format as npy
from requant_service.npy_api.derivation import OutputFormat, check_output_format, quantize_deriving, read_output_format
from requant_service.npy_api.reading import NpyArray, long_header_text, short_header_text
from requant_service.npy_api.replies import file_response, npy_head, reply_headers
from requant_service.npy_api.safetensors_body import (
    MEDIA_TYPES,
    SAFETENSORS,
    SafetensorsTensor,
    asks_for_safetensors,
    begins_safetensors,
    header_text,
    read_tensor,
)
from requant_service.operations.calibration.options import flat_pointers
from requant_service.operations.conversion_call import (
    PlannedConversion,
    WholeConversion,
    plan_bytes,
    planned_conversion,
)
from requant_service.operations.conversion_query import ConversionQuery, read_conversion_query
from requant_service.operations.conversion_run import convert_body
from requant_service.runtime.request_context import context_of
from requant_service.runtime.runtime import Runtime, require_ready

# The last is the default of `curl --data-binary`.
_MEDIA_TYPES = frozenset(
    {BINARY, "application/x-npy", "application/x-binary", *MEDIA_TYPES, "application/x-www-form-urlencoded"}
)

SentArray: TypeAlias = NpyArray | SafetensorsTensor


class _DecodedQuery(NamedTuple):
    """A query, read, the file that it asks for, the tensor that it names, and whether it leaves scales open."""

    query: ConversionQuery
    output: OutputFormat
    tensor: str | None
    derives: bool


@dataclass(frozen=True, slots=True)
class _File:
    """What a query means for one header: the conversion, what it takes of the body, and the head of the reply."""

    planned: PlannedConversion
    array: SentArray
    bytes_before: int
    bytes_left: int
    reply_head: bytes
    reply_headers: tuple[Header, ...]
    reply_media_type: str


async def convert_npy(request: Request, operation: Operation) -> Response:
    """Check what needs no body, receive the header, plan, and convert the data while they arrive or leave."""
    running, scope = require_ready(request), request.scope
    sent = context_of(scope).headers
    key = (scope["path"], scope["query_string"], sent.get(b"content-type"), sent.get(b"content-encoding"))
    decoded: _DecodedQuery | None = running.decoded.get(key)
    if decoded is None:
        require_media_type(sent, _MEDIA_TYPES)
        decoded = await _read_query(request, operation, running)
        running.decoded.put(key, decoded, plan_bytes(None, len(scope["query_string"])))
    reader = BodyReader(scope, request.receive, running.settings.max_binary_bytes)
    text = await short_header_text(reader)
    if text is None:
        start = await reader.head(npy.SHORT_START_BYTES)
        if begins_safetensors(start, media_type(sent)):
            accept = request.headers.get("accept", "")
            return await _convert_safetensors(reader, start, key, decoded, accept, running)
        text, length = await long_header_text(reader, start)
    else:
        length = len(text)
    if decoded.tensor is not None:
        detail = "names a tensor of a safetensors file; the body is a .npy file"
        raise InvalidRequestError.of_field("/tensor", "extra_forbidden", detail, message=f"tensor: {detail}")
    if decoded.derives:
        array = NpyArray(npy.parse_header(text, length, running.settings.max_rank))
        with flat_pointers():
            return await _derive(reader, array, decoded, BINARY, running)
    file: _File | None = running.decoded.get((*key, text))
    if file is None:
        array = NpyArray(npy.parse_header(text, length, running.settings.max_rank))
        file = await _plan(array, decoded.query, BINARY, running)
        running.decoded.put((*key, text), file, plan_bytes(file.planned.plan, decoded.query.characters))
    return await _convert(reader, file, running)


async def _convert_safetensors(
    reader: BodyReader,
    start: bytes,
    key: tuple[object, ...],
    decoded: _DecodedQuery,
    accept: str,
    running: Runtime,
) -> Response:
    """Convert a tensor of a safetensors file whose first bytes are `start`. What short headers mean is kept."""
    text = await header_text(reader, start)
    reply = SAFETENSORS if asks_for_safetensors(accept) else BINARY
    key = (*key, reply, SAFETENSORS, text)
    kept = len(text) <= npy.MAX_HEADER_BYTES
    file: _File | None = running.decoded.get(key) if kept else None
    if file is not None:
        return await _convert(reader, file, running)
    tensor = await read_tensor(text, decoded.tensor, reader, running)
    if decoded.derives:
        with flat_pointers():
            return await _derive(reader, tensor, decoded, reply, running)
    file = await _plan(tensor, decoded.query, reply, running)
    if kept:
        running.decoded.put(key, file, plan_bytes(file.planned.plan, decoded.query.characters))
    return await _convert(reader, file, running)


async def _convert(reader: BodyReader, file: _File, running: Runtime) -> Response:
    """Convert what follows the header."""
    header_bytes = reader.consumed

    def check(body_bytes: int) -> None:
        if body_bytes - header_bytes != file.bytes_left:
            file.array.check_size(body_bytes - header_bytes)

    if reader.declared is not None:
        check(reader.declared)
    elif file.bytes_left > running.settings.max_binary_bytes:
        await reader.skip_rest()  # more than can come: that it does not is all that is left to see
        check(reader.received)
    if file.bytes_before:
        await reader.skip(file.bytes_before)
    converted = await convert_body(reader, file.planned, running, check)
    return file_response(converted, file.reply_head, file.reply_headers, file.reply_media_type)


async def _read_query(request: Request, operation: Operation, running: Runtime) -> _DecodedQuery:
    others = ("tensor", "output") if operation is Operation.QUANTIZE else ("tensor",)
    with flat_pointers():
        query, given = await read_conversion_query(request, operation, running, others)
    output = read_output_format(given)
    check_output_format(output, query.conversion)
    return _DecodedQuery(query, output, given.get("tensor"), query.conversion.leaves_scales_open)


async def _derive(
    reader: BodyReader, array: SentArray, decoded: _DecodedQuery, reply: str, running: Runtime
) -> Response:
    """Receive all of a tensor, find scales for it, and quantize it. `reply`: the media type of a file without them."""
    header_bytes, query = reader.consumed, decoded.query
    call = array.called(query)
    with array.advising(call):
        planned = await planned_conversion(call, query.characters, running)
    assert isinstance(planned, WholeConversion)
    array.check_dtype(call, planned.input_dtype)
    if reader.declared is not None:
        array.check_size(reader.declared - header_bytes)
    await reader.skip(array.bytes_before)
    data = await reader.take(array.data_bytes)
    await reader.skip_rest()
    array.check_size(reader.received - header_bytes)
    source, head = data.view(planned.input_dtype), partial(_head, array, reply)
    with array.advising(call):
        return await quantize_deriving(planned, source, decoded.output, running, reader.reserve, head, reply)


def _head(array: SentArray, reply: str, planned: PlannedConversion) -> bytes:
    """Return the bytes of the reply before its elements."""
    if reply == SAFETENSORS and isinstance(array, SafetensorsTensor):
        return array.head_of_reply(planned)
    return npy_head(planned)


async def _plan(array: SentArray, query: ConversionQuery, reply: str, running: Runtime) -> _File:
    """Plan for a header. `reply`: the media type of the reply."""
    call = array.called(query)
    with flat_pointers(), array.advising(call):
        planned = await planned_conversion(call, query.characters, running)
    assert isinstance(planned, PlannedConversion)
    array.check_dtype(call, planned.input_dtype)
    array.check_dense(planned)
    head = _head(array, reply, planned)
    return _File(planned, array, array.bytes_before, array.bytes_left, head, reply_headers(planned), reply)
