"""The `.npy` face of the three conversions: one file in, one file out, types in the query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from core.dequantize import plan_dequantize
from core.elements import FLOATS, IntegerElement, Signedness
from core.errors import NpyError, ParameterError, UnsupportedError
from core.mlir import print_type
from core.mlir.types import ElementType, TensorType, Type
from core.operands import bind, static_shape
from core.packing import Packing, dense_width, pack, unpack
from core.parameters.schemes import scheme_named
from core.plan import Plan
from core.quantize import NanPolicy, plan_quantize, rounding_named
from core.report import Report
from core.requantize import plan_requantize
from service.codecs import npy
from service.conversion_models import SATURATE
from service.lifespan import require_ready
from service.operation import BINARY, SCHEMAS, npy_operation, query_parameter
from service.problems import at, sides
from service.query import read_query
from service.query_fields import Query, boolean, choice, multipliers, natural
from service.receive import BodyReader, require_media_type
from service.replies import PiecesResponse
from service.type_text import read_type

router = APIRouter(prefix="/v1/npy", tags=["npy"])

# The last is what `curl --data-binary` says of a file when it is told nothing else.
_MEDIA_TYPES = frozenset({BINARY, "application/x-npy", "application/x-binary", "application/x-www-form-urlencoded"})
_LONGEST_TYPE_HEADER = 2048
_TYPES = ("input_type", "output_type")
_FIELDS = (*_TYPES, "profile", "packing")
_REQUANTIZE_FIELDS = (*_FIELDS, "scheme", "multipliers", "axis")
_QUANTIZE_FIELDS = (*_FIELDS, "rounding", "nan", "seed", "saturate")

Planner = Callable[[TensorType, Type | None, Query], Plan]


def _parameters(
    output_type: str, input_type: str, profile: str, *more: dict[str, object], required: tuple[str, ...]
) -> list[dict[str, object]]:
    profile_schema = {"$ref": f"{SCHEMAS}ProfileName", "default": profile}
    return [
        query_parameter("output_type", output_type, required="output_type" in required),
        query_parameter("input_type", input_type, required="input_type" in required),
        query_parameter("profile", f"Default: {profile}.", schema=profile_schema),
        query_parameter("packing", _PACKING, schema={"$ref": f"{SCHEMAS}Packing", "default": "unpacked"}),
        *more,
    ]


_PACKING = "How numbers narrower than a byte are kept. Dense ones are a .npy of bytes; name the whole tensor type then."
_OVERRIDES: tuple[dict[str, object], ...] = (
    query_parameter("rounding", "Replaces the profile's rounding.", schema={"$ref": f"{SCHEMAS}RoundingName"}),
    query_parameter("nan", "What becomes of NaN.", schema={"$ref": f"{SCHEMAS}NanPolicy", "default": "profile"}),
    query_parameter(
        "seed", "Of stochastic rounding.", schema={"type": "integer", "format": "int64", "minimum": 0, "default": 0}
    ),
    query_parameter("saturate", SATURATE, schema={"type": "boolean"}),
)
_SCALINGS: tuple[dict[str, object], ...] = (
    query_parameter("scheme", "Replaces the profile's.", schema={"$ref": f"{SCHEMAS}SchemeName"}),
    query_parameter(
        "multipliers",
        "Used instead of derived ones: one, or one for each channel, as multiplier:shift with commas between.",
    ),
    query_parameter(
        "axis",
        "The dimension that several multipliers go along, if no type says it.",
        schema={"type": "integer", "format": "int32", "minimum": 0, "maximum": 255},
    ),
)
_STORED = "MLIR text, percent-encoded (a + as %2B). A bare quantized type takes its shape from the .npy."


@router.post(
    "/quantize",
    **npy_operation(
        "quantizeNpy",
        _parameters(
            _STORED,
            "MLIR text. Default: the element type and shape of the .npy.",
            "stablehlo",
            *_OVERRIDES,
            required=("output_type",),
        ),
    ),
)
async def quantize_npy(request: Request) -> Response:
    """Quantize a .npy of real numbers to the type that you name."""

    def plan(input_type: TensorType, output_type: Type | None, query: Query) -> Plan:
        assert output_type is not None
        rounding = None
        if "rounding" in query:
            with at("/rounding"):
                rounding = rounding_named(query["rounding"])
        return plan_quantize(
            input_type,
            output_type,
            query.get("profile", "stablehlo"),
            rounding=rounding,
            nan=choice(query, "nan", NanPolicy, NanPolicy.PROFILE),
            seed=natural(query, "seed", (1 << 63) - 1, "2^63 - 1") or 0,
            saturate=boolean(query, "saturate"),
        )

    return await _convert(request, ("output_type",), plan, fields=_QUANTIZE_FIELDS, packs_input=False)


@router.post(
    "/dequantize",
    **npy_operation(
        "dequantizeNpy",
        _parameters(
            "MLIR text. Default: the expressed type of the input.", _STORED, "stablehlo", required=("input_type",)
        ),
    ),
)
async def dequantize_npy(request: Request) -> Response:
    """Turn a .npy of stored numbers back into the real numbers that they stand for."""

    def plan(input_type: TensorType, output_type: Type | None, query: Query) -> Plan:
        return plan_dequantize(input_type, output_type, query.get("profile", "stablehlo"))

    return await _convert(request, ("input_type",), plan, packs_output=False)


@router.post(
    "/requantize",
    **npy_operation(
        "requantizeNpy",
        _parameters(
            _STORED,
            f"{_STORED} Default: the integers and shape of the .npy, which need multipliers.",
            "litert",
            *_SCALINGS,
            required=("output_type",),
        ),
    ),
)
async def requantize_npy(request: Request) -> Response:
    """Move a .npy of stored numbers, or accumulators, to another scale in integer arithmetic."""

    def plan(input_type: TensorType, output_type: Type | None, query: Query) -> Plan:
        assert output_type is not None
        with at("/scheme"):
            scheme = scheme_named(query["scheme"]).name if "scheme" in query else None
        given, axis = multipliers(query), natural(query, "axis", 255, "255")
        with at("/multipliers", ParameterError):
            return plan_requantize(
                input_type, output_type, query.get("profile", "litert"), given, scheme=scheme, axis=axis
            )

    return await _convert(request, ("output_type",), plan, fields=_REQUANTIZE_FIELDS)


async def _convert(
    request: Request,
    required: tuple[str, ...],
    plan_for: Planner,
    *,
    fields: tuple[str, ...] = _FIELDS,
    packs_input: bool = True,
    packs_output: bool = True,
) -> Response:
    """Check what needs no body, receive the header, plan, receive the data to where they are used, run and reply."""
    running = require_ready(request)
    settings = running.settings
    query = read_query(request, fields, required)
    dense = choice(query, "packing", Packing, Packing.UNPACKED) is Packing.DENSE
    require_media_type(request.headers, _MEDIA_TYPES)
    characters = sum(len(query.get(name, "")) for name in (*_TYPES, "multipliers"))

    def read_types() -> list[Type | None]:
        limit = settings.max_query_type_bytes
        return [read_type(query[name], limit, f"/{name}") if name in query else None for name in _TYPES]

    input_type, output_type = await running.compute.texts(characters, read_types)
    reader = BodyReader(request.scope, request.receive, settings.max_binary_bytes)
    header, header_bytes = await _receive_header(reader, settings.max_rank)
    if reader.declared is not None:
        _check_size(header, reader.declared - header_bytes)

    def decide() -> tuple[Plan, str]:
        with at("/input_type"):
            if dense and packs_input and isinstance(input_type, TensorType) and dense_width(input_type):
                # The .npy holds bytes; the shape of the tensor is the type's alone.
                bound = replace(input_type, shape=static_shape(input_type))
            else:
                bound = bind(_element_of(header) if input_type is None else input_type, header.shape)
        with at("/profile", UnsupportedError), sides(input="/input_type", output="/output_type"):
            plan = plan_for(bound, output_type, query)
        return plan, print_type(plan.output_type)

    plan, type_text = await running.compute.texts(characters, decide)
    data = await reader.take(header.data_bytes)
    _check_size(header, len(data) + await reader.skip_rest())
    packed_in = dense_width(plan.input_type) if dense and packs_input else None
    packed_out = dense_width(plan.output_type) if dense and packs_output else None
    stored = plan.input_dtype if packed_in is None else np.dtype(np.uint8)
    received = npy.as_dtype(header, data, stored, named=input_type is not None)

    def convert() -> Response:
        source = received if packed_in is None else unpack(received, packed_in, plan.elements, plan.input_dtype)
        target = np.empty(plan.elements, plan.output_dtype)
        report = plan.run(source, target)
        shape = tuple(dimension or 0 for dimension in plan.output_type.shape or ())
        if packed_out is not None:
            target = pack(target, packed_out)
            shape = target.shape
        return _reply(type_text, shape, report, target)

    return await running.compute.arrays(len(data), convert)


async def _receive_header(reader: BodyReader, max_rank: int) -> tuple[npy.NpyHeader, int]:
    """Return the header and how many bytes of the body it took."""
    field_bytes = npy.length_field_bytes((await reader.take(npy.START_BYTES)).tobytes())
    length = npy.header_length((await reader.take(field_bytes)).tobytes(), field_bytes)
    header = npy.parse_header((await reader.take(length)).tobytes(), length, max_rank)
    return header, npy.START_BYTES + field_bytes + length


def _check_size(header: npy.NpyHeader, found: int) -> None:
    if found != header.data_bytes:
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


def _reply(text: str, shape: tuple[int, ...], report: Report, target: NDArray[Any]) -> Response:
    headers = {
        "requant-profile": report.profile,
        "requant-saturated": str(report.saturated_low + report.saturated_high),
    }
    # An encoding of a tensor may hold any text, and a header may not.
    if len(text) <= _LONGEST_TYPE_HEADER and text.isascii() and text.isprintable():
        headers["requant-type"] = text
    return PiecesResponse([npy.write_header(target.dtype, shape), target.view(np.uint8).data], BINARY, headers)
