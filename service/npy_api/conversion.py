"""Conversions of `.npy` files: one file in, one file out, the rest in the query.

What a query and a `.npy` header mean is worked out once and kept: a client sends the same ones again and again, and for
a small tensor that costs more than its arithmetic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from core.errors import at
from core.plan.packing import check_dense_bytes
from core.profiles import Operation
from service.http.openapi_operation import BINARY
from service.http.request_body import BodyReader, require_media_type
from service.http.responses import Header
from service.npy_api import format as npy
from service.npy_api.derivation import OutputFormat, check_output_format, quantize_deriving, read_output_format
from service.npy_api.reading import advising_numpy, check_size, element_of, header_text
from service.npy_api.replies import npy_head, npy_response, reply_headers
from service.operations.calibration.options import flat_pointers
from service.operations.calibration.quantization import plan_derivation
from service.operations.conversion_call import PlannedConversion, planned_conversion
from service.operations.conversion_query import ConversionQuery, read_conversion_query
from service.operations.conversion_run import convert_body
from service.operations.plan_bytes import plan_bytes
from service.runtime.request_context import context_of, reserve_memory
from service.runtime.runtime import Runtime, require_ready

# The last is the default of `curl --data-binary`.
_MEDIA_TYPES = frozenset({BINARY, "application/x-npy", "application/x-binary", "application/x-www-form-urlencoded"})


Reserve = Callable[[int], Awaitable[None]]


class _Asked(NamedTuple):
    """A query, read, and the file that it asks for."""

    query: ConversionQuery
    output: OutputFormat


@dataclass(frozen=True, slots=True)
class _File:
    """What a query means for one `.npy` header: the conversion, the data that it takes, and the head of the reply."""

    planned: PlannedConversion
    header: npy.NpyHeader
    data_bytes: int
    reply_header: bytes
    reply_headers: tuple[Header, ...]


async def convert_npy(request: Request, operation: Operation) -> Response:
    """Check what needs no body, receive the header, plan, and convert the data while they arrive or leave."""
    running, scope = require_ready(request), request.scope
    sent = context_of(scope).headers
    key = (scope["path"], scope["query_string"], sent.get(b"content-type"), sent.get(b"content-encoding"))
    asked: _Asked | None = running.asked.get(key)
    if asked is None:
        require_media_type(request.headers, _MEDIA_TYPES)
        asked = await _read_query(request, operation, running)
        running.asked.put(key, asked, plan_bytes(None, len(scope["query_string"])))
    query = asked.query
    reader = BodyReader(scope, request.receive, running.settings.max_binary_bytes)
    text, length = await header_text(reader)
    header_bytes = reader.handed_out
    if query.conversion.leaves_scales_open:
        header = npy.parse_header(text, length, running.settings.max_rank)
        with flat_pointers():
            return await _derive(reader, header, asked, running, partial(reserve_memory, scope))
    file: _File | None = running.asked.get((*key, text))
    if file is None:
        file = await _plan(npy.parse_header(text, length, running.settings.max_rank), query, running)
        running.asked.put((*key, text), file, plan_bytes(file.planned.plan, query.characters))

    async def end() -> None:
        await reader.skip_rest()
        check_size(file.header, reader.received - header_bytes)

    if reader.declared is not None:
        check_size(file.header, reader.declared - header_bytes)
    elif file.data_bytes > running.settings.max_binary_bytes:
        await end()  # more than can come: that it does not is all that is left to see
    found = await convert_body(reader, file.planned, running, partial(reserve_memory, scope), end)
    return npy_response(found, file.reply_header, file.reply_headers)


async def _read_query(request: Request, operation: Operation, running: Runtime) -> _Asked:
    others = ("output",) if operation is Operation.QUANTIZE else ()
    with flat_pointers():
        query, given = await read_conversion_query(request, operation, running, others)
    output = read_output_format(given)
    check_output_format(output, query.conversion)
    return _Asked(query, output)


async def _derive(
    reader: BodyReader, header: npy.NpyHeader, asked: _Asked, running: Runtime, reserve: Reserve
) -> Response:
    """Receive all of a file, find scales for it, and quantize it."""
    header_bytes, query = reader.handed_out, asked.query
    named = query.conversion.input_type is not None
    with at("/input_type"):
        call = query.call(header.shape, None if named else element_of(header))
    with advising_numpy(header, call):
        derivation = await plan_derivation(call, query.characters, running)
    npy.check_dtype(header, derivation.dtype, named=named)
    if reader.declared is not None:
        check_size(header, reader.declared - header_bytes)
    data = await reader.take(header.data_bytes)
    await reader.skip_rest()
    check_size(header, reader.received - header_bytes)
    with advising_numpy(header, call):
        return await quantize_deriving(derivation, data.view(derivation.dtype), asked.output, running, reserve)


async def _plan(header: npy.NpyHeader, query: ConversionQuery, running: Runtime) -> _File:
    """Plan for a header."""
    named = query.conversion.input_type is not None
    with at("/input_type"):
        call = query.call(header.shape, None if named else element_of(header))
    with flat_pointers(), advising_numpy(header, call):
        planned = await planned_conversion(call, query.characters, running)
    npy.check_dtype(header, planned.input_dtype, named=named)
    if planned.packed_in is not None:
        check_dense_bytes(header.elements, planned.elements, planned.packed_in)
    return _File(planned, header, header.data_bytes, npy_head(planned), reply_headers(planned))
