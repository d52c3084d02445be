"""One exchange of the `.npy` face, from the query to the reply.

What a query and a `.npy` header mean is worked out once and kept: a client sends the same ones again and again, and for
a small tensor that costs more than its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from core.errors import NpyError, UnsupportedError
from core.formats.elements import FLOATS, IntegerElement, Signedness
from core.mlir import print_type
from core.mlir.types import ElementType, TensorType, Type
from core.plan.conversion import Conversion
from core.plan.operands import bind, element_name, static_shape
from core.plan.packing import Packing, check_dense_bytes, dense_width
from core.plan.plan import Array, Plan
from core.plan.report import Report
from service.http.openapi_operation import BINARY
from service.http.problems import at, sides
from service.http.query import read_query
from service.http.request_body import BodyReader, require_media_type
from service.http.responses import BuffersResponse, Header, StreamedResponse
from service.npy_api import format as npy
from service.npy_api.query_fields import Query, choice
from service.operations.plan_bytes import plan_bytes
from service.operations.streaming import convert_arriving, convert_leaving, examine, keeps_output
from service.operations.types import read_query_type
from service.runtime.request_context import context_of, reserve_memory
from service.runtime.runtime import Runtime, require_ready

# The last is what `curl --data-binary` says of a file when it is told nothing else.
_MEDIA_TYPES = frozenset({BINARY, "application/x-npy", "application/x-binary", "application/x-www-form-urlencoded"})
_LONGEST_TYPE_HEADER = 2048
_TYPES = ("input_type", "output_type")


@dataclass(frozen=True, slots=True)
class NpyOperation:
    """What a route converts, and what its query may hold."""

    plan: Callable[[TensorType, Type | None, Query], Plan]
    fields: tuple[str, ...]
    required: tuple[str, ...]
    packs_input: bool = True
    packs_output: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A query, checked and read. One is kept for each, so that it is known by being the same object."""

    query: Query
    dense: bool
    input_type: Type | None
    output_type: Type | None
    characters: int


@dataclass(frozen=True, slots=True)
class _Planned:
    """What a query means for one `.npy` header: the conversion, the data that it takes, and the heads of the reply."""

    conversion: Conversion
    header: npy.NpyHeader
    data_bytes: int
    element: str
    reply_header: bytes
    reply_headers: tuple[Header, ...]


async def convert(request: Request, operation: NpyOperation) -> Response:
    """Check what needs no body, receive the header, plan, and convert the data while they arrive or leave."""
    running = require_ready(request)
    sent = context_of(request.scope).headers
    key = (
        request.scope["path"],
        request.scope["query_string"],
        sent.get(b"content-type"),
        sent.get(b"content-encoding"),
    )
    asked = running.asked.get(key)
    if asked is None:
        asked = await _ask(request, operation, running)
        running.asked.put(key, asked, plan_bytes(None, len(request.scope["query_string"])))
    reader = BodyReader(request.scope, request.receive, running.settings.max_binary_bytes)
    text, length = await _header_text(reader)
    header_bytes = reader.handed_out
    planned = running.planned.get((asked, text))
    if planned is None:
        planned = await _plan(npy.parse_header(text, length, running.settings.max_rank), asked, operation, running)
        running.planned.put((asked, text), planned, plan_bytes(planned.conversion.plan, asked.characters))
    conversion = planned.conversion
    if reader.declared is not None:
        _check_size(planned, reader.declared - header_bytes)
    elif planned.data_bytes > running.settings.max_binary_bytes:
        # More than can come: that it does not is all that is left to see.
        await reader.skip_rest()
        _check_size(planned, reader.received - header_bytes)
    if keeps_output(conversion):
        await reserve_memory(request.scope, conversion.output_bytes)
        tally, output = await convert_arriving(reader, conversion, running.executor)
        await reader.skip_rest()
        _check_size(planned, reader.received - header_bytes)
        headers = _headers(_counted(tally, planned, request, running), planned)
        return BuffersResponse([planned.reply_header, output.view(np.uint8).data], BINARY, headers)
    data = await reader.take(planned.data_bytes)
    await reader.skip_rest()
    _check_size(planned, reader.received - header_bytes)
    source = npy.as_dtype(planned.header, data, conversion.input_dtype, named=asked.input_type is not None)
    tally = await examine(source, conversion, running.executor)
    headers = _headers(_counted(tally, planned, request, running), planned)
    pieces = convert_leaving(source, conversion, running.executor)
    return StreamedResponse(planned.reply_header, pieces, conversion.output_bytes, BINARY, headers)


async def _header_text(reader: BodyReader) -> tuple[bytes, int]:
    """Take the header's text from a body, and the length that it should have."""
    text = npy.whole_header(await reader.next_bytes())
    if text is not None:
        reader.pass_over(npy.SHORT_START_BYTES + len(text))
        return text, len(text)
    start = await reader.head(npy.SHORT_START_BYTES)
    field_bytes = npy.length_field_bytes(start)
    field = start[npy.START_BYTES :]
    if len(field) < field_bytes:
        field += await reader.head(field_bytes - len(field))
    length = npy.header_length(field, field_bytes)
    return await reader.head(length), length


def _counted(tally: Array, planned: _Planned, request: Request, running: Runtime) -> Report:
    """Return the report of a conversion, and count what it says."""
    report = planned.conversion.plan.report(tally)
    operation = request.scope["path"].rpartition("/")[2]
    saturated = report.saturated_low + report.saturated_high
    running.metrics.converted(operation, report.profile, planned.element, report.elements, saturated)
    return report


async def _ask(request: Request, operation: NpyOperation, running: Runtime) -> _Asked:
    """Read what comes before the body."""
    query = read_query(request, operation.fields, operation.required)
    dense = choice(query, "packing", Packing, Packing.UNPACKED) is Packing.DENSE
    require_media_type(request.headers, _MEDIA_TYPES)
    characters = sum(len(query.get(name, "")) for name in (*_TYPES, "multipliers"))

    def read_types() -> list[Type | None]:
        settings = running.settings
        return [read_query_type(query[name], settings, f"/{name}") if name in query else None for name in _TYPES]

    input_type, output_type = await running.executor.run_text(characters, read_types)
    return _Asked(query, dense, input_type, output_type, characters)


async def _plan(header: npy.NpyHeader, asked: _Asked, operation: NpyOperation, running: Runtime) -> _Planned:
    """Plan for a header."""
    packs_input, packs_output = asked.dense and operation.packs_input, asked.dense and operation.packs_output

    def plan() -> _Planned:
        given = asked.input_type
        with at("/input_type"):
            if packs_input and isinstance(given, TensorType) and dense_width(given):
                # The .npy holds bytes; the shape of the tensor is the type's alone.
                bound = replace(given, shape=static_shape(given))
            else:
                bound = bind(_element_of(header) if given is None else given, header.shape)
        with at("/profile", UnsupportedError), sides(input="/input_type", output="/output_type"):
            made = operation.plan(bound, asked.output_type, asked.query)
        packed_in = dense_width(made.input_type) if packs_input else None
        packed_out = dense_width(made.output_type) if packs_output else None
        conversion = Conversion(made, packed_in, packed_out)
        npy.check_dtype(header, conversion.input_dtype, named=given is not None)
        if packed_in is not None:
            check_dense_bytes(header.elements, made.elements, packed_in)
        shape = static_shape(made.output_type)
        if packed_out is not None:
            shape = (conversion.output_bytes,)
        return _Planned(
            conversion,
            header,
            header.data_bytes,
            element_name(made.output_type.element),
            npy.write_header(conversion.output_dtype, shape),
            _reply_headers(made.profile, print_type(made.output_type)),
        )

    return await running.executor.run_text(asked.characters, plan)


def _check_size(planned: _Planned, found: int) -> None:
    if found != planned.data_bytes:
        header = planned.header
        raise NpyError(
            f"the .npy promises {header.elements} elements of {header.item_bytes} bytes, which is {header.data_bytes}; "
            f"the body has {found} bytes of data"
        )


def _element_of(header: npy.NpyHeader) -> ElementType:
    """Return the MLIR type that a numpy element kind stands for by itself."""
    if header.descr in npy.VOIDS:
        raise NpyError(f"the .npy holds anonymous elements ({header.descr!r}); name their type with input_type")
    dtype = np.dtype(header.descr)
    bits = dtype.itemsize * 8
    if dtype.kind == "f":
        return FLOATS[f"f{bits}"]
    return IntegerElement(bits, Signedness.UNSIGNED if dtype.kind == "u" else Signedness.SIGNLESS)


def _reply_headers(profile: str, type_text: str) -> tuple[Header, ...]:
    """Return the headers that are the same for all data."""
    headers = [(b"requant-profile", profile.encode("ascii"))]
    # An encoding of a tensor may hold any text, and a header may not.
    if len(type_text) <= _LONGEST_TYPE_HEADER and type_text.isascii() and type_text.isprintable():
        headers.append((b"requant-type", type_text.encode("ascii")))
    return tuple(headers)


def _headers(report: Report, planned: _Planned) -> tuple[Header, ...]:
    saturated = b"%d" % (report.saturated_low + report.saturated_high)
    return (*planned.reply_headers, (b"requant-saturated", saturated))
