"""The `.npy` face of the three conversions: one file in, one file out, types in the query."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from core.convert.dequantize import plan_dequantize
from core.convert.quantize import NanPolicy, plan_quantize, rounding_named
from core.convert.requantize import plan_requantize
from core.errors import ParameterError
from core.mlir.types import TensorType, Type
from core.plan.plan import Plan
from core.schemes import scheme_named
from service.http.openapi_operation import SCHEMAS, npy_operation, query_parameter
from service.http.problems import at
from service.json_api.schemas.conversions import SATURATE
from service.npy_api.conversion import NpyOperation, convert
from service.npy_api.query_fields import Query, boolean, choice, multipliers, natural

router = APIRouter(prefix="/v1/npy", tags=["npy"])

_FIELDS = ("input_type", "output_type", "profile", "packing")
_REQUANTIZE_FIELDS = (*_FIELDS, "scheme", "multipliers", "axis")
_QUANTIZE_FIELDS = (*_FIELDS, "rounding", "nan", "seed", "saturate")


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


_PACKING = (
    "How elements of widths other than 8, 16 or 32 bits, such as i4 or i12, are stored. Dense elements are a .npy "
    "of bytes, and the type must then be a whole tensor type."
)
_OVERRIDES: tuple[dict[str, object], ...] = (
    query_parameter("rounding", "Replaces the profile's rounding.", schema={"$ref": f"{SCHEMAS}RoundingName"}),
    query_parameter("nan", "The result of NaN.", schema={"$ref": f"{SCHEMAS}NanPolicy", "default": "profile"}),
    query_parameter(
        "seed",
        "Seed of stochastic rounding.",
        schema={"type": "integer", "format": "int64", "minimum": 0, "default": 0},
    ),
    query_parameter("saturate", SATURATE, schema={"type": "boolean"}),
)
_SCALINGS: tuple[dict[str, object], ...] = (
    query_parameter("scheme", "Replaces the profile's scheme.", schema={"$ref": f"{SCHEMAS}SchemeName"}),
    query_parameter(
        "multipliers",
        "Replace the derived multipliers: one, or one per channel, as comma-separated multiplier:shift pairs.",
    ),
    query_parameter(
        "axis",
        "The dimension of several multipliers, if no type states it.",
        schema={"type": "integer", "format": "int32", "minimum": 0, "maximum": 255},
    ),
)
_STORED = "MLIR text, percent-encoded (+ as %2B). A bare quantized type takes its shape from the .npy file."


def _plan_quantize(input_type: TensorType, output_type: Type | None, query: Query) -> Plan:
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


def _plan_dequantize(input_type: TensorType, output_type: Type | None, query: Query) -> Plan:
    return plan_dequantize(input_type, output_type, query.get("profile", "stablehlo"))


def _plan_requantize(input_type: TensorType, output_type: Type | None, query: Query) -> Plan:
    assert output_type is not None
    with at("/scheme"):
        scheme = scheme_named(query["scheme"]).name if "scheme" in query else None
    given, axis = multipliers(query), natural(query, "axis", 255, "255")
    with at("/multipliers", ParameterError):
        return plan_requantize(input_type, output_type, query.get("profile", "litert"), given, scheme=scheme, axis=axis)


_QUANTIZE = NpyOperation(_plan_quantize, _QUANTIZE_FIELDS, ("output_type",), packs_input=False)
_DEQUANTIZE = NpyOperation(_plan_dequantize, _FIELDS, ("input_type",), packs_output=False)
_REQUANTIZE = NpyOperation(_plan_requantize, _REQUANTIZE_FIELDS, ("output_type",))


@router.post(
    "/quantize",
    **npy_operation(
        "quantizeNpy",
        _parameters(
            _STORED,
            "MLIR text. Default: the element type and shape of the .npy file.",
            "stablehlo",
            *_OVERRIDES,
            required=_QUANTIZE.required,
        ),
    ),
)
async def quantize_npy(request: Request) -> Response:
    """Quantize a .npy file to a given type."""
    return await convert(request, _QUANTIZE)


@router.post(
    "/dequantize",
    **npy_operation(
        "dequantizeNpy",
        _parameters(
            "MLIR text. Default: the expressed type of the input.", _STORED, "stablehlo", required=_DEQUANTIZE.required
        ),
    ),
)
async def dequantize_npy(request: Request) -> Response:
    """Dequantize a .npy file."""
    return await convert(request, _DEQUANTIZE)


@router.post(
    "/requantize",
    **npy_operation(
        "requantizeNpy",
        _parameters(
            _STORED,
            f"{_STORED} Default: the integers and shape of the .npy, which need multipliers.",
            "litert",
            *_SCALINGS,
            required=_REQUANTIZE.required,
        ),
    ),
)
async def requantize_npy(request: Request) -> Response:
    """Requantize a .npy file of quantized values or accumulators to another scale."""
    return await convert(request, _REQUANTIZE)
