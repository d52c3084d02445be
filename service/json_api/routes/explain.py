"""The three conversions in JSON, with every step of the arithmetic of each element."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.profiles import Operation
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.json_api.routes.convert import answer_conversion
from service.json_api.schemas.conversions import QuantizeRequest
from service.json_api.schemas.explain import ExplainedQuantization

router = APIRouter(prefix="/v1/explain", tags=["explain"], dependencies=[Depends(no_query)])


@router.post(
    "/quantize",
    **json_operation(
        "explainQuantize",
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
    """Quantize at most 256 elements and show how each one became what it is.

    The steps are worked out in exact arithmetic from the rules of the profile, and compared with the conversion itself.
    """
    return await answer_conversion(request, Operation.QUANTIZE, QuantizeRequest, explained=True)
