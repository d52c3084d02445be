"""The three conversions in JSON, with each step of the arithmetic of each element."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.profiles import Operation
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.json_api.routes.convert import answer_conversion
from requant_service.json_api.schemas.conversions import DequantizeRequest, QuantizeRequest, RequantizeRequest
from requant_service.json_api.schemas.explain import (
    ExplainedDequantization,
    ExplainedQuantization,
    ExplainedRequantization,
)

router = APIRouter(prefix="/v1/explain", tags=["explain"], dependencies=[Depends(no_query)])


@router.post(
    "/quantize",
    **json_operation(
        "explainQuantize",
        "Explain: quantize",
        QuantizeRequest,
        ExplainedQuantization,
        example={
            "input": {"type": "tensor<3xf32>", "values": [0.25, 1.25, 70]},
            "output_type": "!quant.uniform<i8:f32, 0.5:3>",
            "profile": "onnx",
        },
    ),
)
async def explain_quantize(request: Request) -> Response:
    """Quantize up to 256 elements and return every arithmetic step of each.

    The steps are computed in exact arithmetic from the rules of the profile, and checked against the conversion itself.
    """
    return await answer_conversion(request, Operation.QUANTIZE, QuantizeRequest, explained=True)


@router.post(
    "/dequantize",
    **json_operation(
        "explainDequantize",
        "Explain: dequantize",
        DequantizeRequest,
        ExplainedDequantization,
        example={"input": {"type": "tensor<3x!quant.uniform<i8:f32, 0.1:3>>", "values": [3, 4, -128]}},
    ),
)
async def explain_dequantize(request: Request) -> Response:
    """Dequantize up to 256 elements and return every arithmetic step of each."""
    return await answer_conversion(request, Operation.DEQUANTIZE, DequantizeRequest, explained=True)


@router.post(
    "/requantize",
    **json_operation(
        "explainRequantize",
        "Explain: requantize",
        RequantizeRequest,
        ExplainedRequantization,
        example={
            "input": {"type": "tensor<3x!quant.uniform<i32:f32, 0.001>>", "values": [875, -875, 100000]},
            "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
            "scheme": "arm_vector",
        },
    ),
)
async def explain_requantize(request: Request) -> Response:
    """Requantize up to 256 elements and return every arithmetic step of each.

    The steps are those of the scheme: the factor, its multiplier and shift, and every intermediate value.
    """
    return await answer_conversion(request, Operation.REQUANTIZE, RequantizeRequest, explained=True)
