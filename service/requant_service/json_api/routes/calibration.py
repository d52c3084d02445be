"""Scales and zero points from data."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.calibration.methods.search import Calibration, CalibrationRequest, plan_calibration
from requant.errors import TypeFitError, default_pointer
from requant.mlir.types import TensorType
from requant.plan.operands import float_element, static_shape
from requant_service.http.json_body import receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import json_response
from requant_service.json_api.schemas.calibration import TensorParametersReply, TensorParametersRequest
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.json_api.tensors import read_elements
from requant_service.operations.parameters import finished_parameters, read_expressed, read_storage
from requant_service.operations.types import read_tensor_type
from requant_service.runtime.runtime import require_ready
from requant_service.runtime.settings import Settings

router = APIRouter(prefix="/v1/parameters", tags=["params"], dependencies=[Depends(no_query)])

_EXAMPLE = {
    "input": {"type": "tensor<6xf32>", "values": [-1.5, -0.25, 0.0, 0.5, 0.75, 2.0]},
    "storage": "i8",
    "granularity": "per_tensor",
    "method": "mse",
    "scheme": "torch_observer",
}


@router.post(
    "/tensor",
    **json_operation(
        "deriveFromTensor",
        "Scale and zero point from a tensor",
        TensorParametersRequest,
        TensorParametersReply,
        example=_EXAMPLE,
    ),
)
async def derive_from_tensor(request: Request) -> Response:
    """Calibrate: find ranges in data by the method of a system, and derive scales and zero points."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, TensorParametersRequest, running)
    tensors = [call.input] if "input" in call.model_fields_set else call.inputs
    paths = ["input"] if "input" in call.model_fields_set else [f"inputs/{index}" for index in range(len(tensors))]

    def work() -> Response:
        dtype, target = search.element.tensor_dtype, search.target
        arrays = tuple(
            read_elements(tensor, search.tensor, dtype, path, body, settings)
            for tensor, path in zip(tensors, paths, strict=True)
        )
        ranges, found = search.run(arrays, tuple(f"/{path}" for path in paths))
        return json_response(
            TensorParametersReply(
                **finished_parameters(target.rule, target.expressed, found, target.granularity),
                method=search.method.name,
                minimums=ranges.minimums.tolist(),
                maximums=ranges.maximums.tolist(),
                left_out=ranges.left_out,
            )
        )

    search = await running.executor.run_text(
        sum(len(tensor.type) for tensor in tensors), lambda: _decide(call, tensors, paths, settings)
    )
    return await running.executor.run_array(search.weight(len(body), settings.inline_bytes), work)


def _decide(call: TensorParametersRequest, tensors: list[Tensor], paths: list[str], settings: Settings) -> Calibration:
    tensor = _common_type(tensors, paths, settings)
    with default_pointer(f"/{paths[0]}/type"):
        static_shape(tensor)
        float_element(tensor, "input")
    storage = read_storage(call.storage)
    expressed = read_expressed(call.expressed) if "expressed" in call.model_fields_set else None
    request = CalibrationRequest.of(call.given() | {"granularity": call.granularity})
    return plan_calibration(request, tensor, storage, expressed)


def _common_type(tensors: list[Tensor], paths: list[str], settings: Settings) -> TensorType:
    """Return the type of all tensors, or raise TypeFitError for the first that has another."""
    first = read_tensor_type(tensors[0].type, settings, f"/{paths[0]}/type")
    for tensor, path in zip(tensors[1:], paths[1:], strict=True):
        pointer = f"/{path}/type"
        if tensor.type != tensors[0].type and read_tensor_type(tensor.type, settings, pointer) != first:
            raise TypeFitError("the tensors must have one type; this one differs from the first", pointer=pointer)
    return first
