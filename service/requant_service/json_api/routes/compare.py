"""Two tensors compared: where they differ, by how many steps or ulps, and how large the error is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.comparison.comparison import Comparison, ComparisonReport, plan_comparison
from requant.errors import pointers_for_sides
from requant_service.http.json_body import receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import json_response
from requant_service.json_api.schemas.comparison import CompareRequest, ComparisonReply
from requant_service.json_api.tensors import read_elements
from requant_service.operations.types import read_tensor_type
from requant_service.runtime.runtime import require_ready

router = APIRouter(tags=["ops"], dependencies=[Depends(no_query)])

_TYPE = "tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>"
_EXAMPLE = {"a": {"type": _TYPE, "values": [3, 4, 0, 127]}, "b": {"type": _TYPE, "values": [3, 5, 0, 100]}}


@router.post(
    "/v1/compare", **json_operation("compare", "Compare two tensors", CompareRequest, ComparisonReply, example=_EXAMPLE)
)
async def compare(request: Request) -> Response:
    """Compare two tensors of the same shape."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, CompareRequest, running)

    def decide() -> Comparison:
        a_type = read_tensor_type(call.a.type, settings, "/a/type")
        b_type = read_tensor_type(call.b.type, settings, "/b/type")
        with pointers_for_sides(a="/a/type", b="/b/type"):
            return plan_comparison(a_type, b_type)

    def run() -> Response:
        a, b = (
            read_elements(tensor, side.tensor, side.dtype, name, body, settings)
            for name, tensor, side in (("a", call.a, planned.a), ("b", call.b, planned.b))
        )
        return json_response(_reply(planned.run(a, b, call.max_reported)))

    planned = await running.executor.run_text(len(call.a.type) + len(call.b.type), decide)
    return await running.executor.run_array(len(body), run)


def _reply(report: ComparisonReport) -> ComparisonReply:
    found = asdict(report, dict_factory=_stated)
    return ComparisonReply(equal=report.equal, **found.pop("error"), **found)


def _stated(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if value is not None}
