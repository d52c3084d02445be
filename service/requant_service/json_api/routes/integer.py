"""Matrix products, convolutions and additions of quantized tensors in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from requant.errors import sides
from requant.integer.add import AddPlan, plan_add
from requant.integer.conv2d import plan_conv2d
from requant.integer.matmul import plan_matmul
from requant.integer.product import ProductPlan
from requant.mlir.types import TensorType
from requant.plan.packing import Packing
from requant_service.http.json_body import MEDIA_TYPE, receive_json
from requant_service.http.openapi_operation import json_operation
from requant_service.http.query import no_query
from requant_service.http.responses import Buffer, BuffersResponse, json_text
from requant_service.json_api.schemas.integer import (
    AddReply,
    AddRequest,
    Conv2dRequest,
    MatmulRequest,
    ProductReply,
    ProductRequest,
)
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.json_api.tensors import output_pieces, read_elements
from requant_service.operations.integer import IntegerOperation, convolution_window, plan_integer
from requant_service.operations.types import read_tensor_type, read_type
from requant_service.runtime.request_context import reserve_memory
from requant_service.runtime.runtime import require_ready

router = APIRouter(tags=["integer"], dependencies=[Depends(no_query)])

Call = TypeVar("Call", bound=MatmulRequest | Conv2dRequest | AddRequest)
PlanFor = Callable[..., ProductPlan | AddPlan]


async def _answer(
    request: Request,
    model: type[Call],
    fields: Mapping[str, str],
    plan_for: PlanFor,
    options_of: Callable[[Call], dict[str, Any]],
) -> Response:
    """Receive, plan, compute and reply. `fields`: the field of each operand; those that are absent have none."""
    running = require_ready(request)
    settings = running.settings
    call, body = await receive_json(request, model, running)
    fields = {side: field for side, field in fields.items() if field in call.model_fields_set}
    tensors: dict[str, Tensor] = {side: getattr(call, field) for side, field in fields.items()}
    dense = call.packing is Packing.DENSE

    def decide() -> IntegerOperation:
        pointers = {side: f"/{field}/type" for side, field in fields.items()} | {"output": "/output_type"}
        types = {side: read_tensor_type(each.type, settings, pointers[side]) for side, each in tensors.items()}
        output = read_type(call.output_type, settings.max_type_bytes, "/output_type")
        options = {"profile": call.profile, **options_of(call)}
        return plan_integer(plan_for, types, output, options, traced=call.trace, pointers=pointers, settings=settings)

    characters = len(call.output_type) + sum(len(each.type) for each in tensors.values())
    operation = await running.executor.run_text(characters, decide)
    await reserve_memory(request.scope, operation.byte_count)

    def compute() -> Response:
        plan, operands = operation.plan, {}
        for side, tensor in tensors.items():
            type_, integers = plan.operand(side)
            # A bias is never packed.
            packed = dense and side != "bias" and not tensor.in_values
            operands[side] = read_elements(tensor, type_, integers.dtype, fields[side], body, settings, dense=packed)
        with sides(**{side: f"/{field}" for side, field in fields.items()}):
            result = operation.run(operands)
        in_values = tensors["lhs"].in_values

        def shown(type_: TensorType, elements: Any) -> list[Buffer]:
            packed = dense and not in_values and type_ == plan.output_type
            return output_pieces(type_, elements, in_values=in_values, dense=packed)

        pieces: list[Buffer] = [b'{"output":', *shown(plan.output_type, result.output)]
        pieces.append(b',"report":' + json_text(result.report))
        if result.trace is not None:
            multipliers = [asdict(each) for each in result.trace.multipliers]
            pieces.append(b',"trace":{"multipliers":' + json_text(multipliers))
            for stage in result.trace.stages:
                pieces += [b"," + json_text(stage.name) + b":", *shown(stage.tensor, stage.elements)]
            pieces.append(b"}")
        return BuffersResponse([*pieces, b"}"], MEDIA_TYPE)

    return await running.executor.run_array(max(len(body), operation.weight), compute)


def _product_options(call: ProductRequest) -> dict[str, Any]:
    return call.given("scheme", "accumulator", "overflow")


_MATMUL = {
    "lhs": {"type": "tensor<2x3x!quant.uniform<i8:f32, 0.5:-1>>", "values": [1, 2, 3, -4, 5, -6]},
    "rhs": {
        "type": "tensor<3x2x!quant.uniform<i8<-127:127>:f32:1, {0.25, 0.125}>>",
        "values": [10, -20, 30, 40, -50, 60],
    },
    "bias": {"type": "tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.0625}>>", "values": [100, -100]},
    "output_type": "!quant.uniform<i8:f32, 0.5:3>",
    "trace": True,
}


@router.post("/v1/matmul", **json_operation("matmul", "Matmul", MatmulRequest, ProductReply, example=_MATMUL))
async def matmul(request: Request) -> Response:
    """Multiply quantized matrices: accumulate, correct for zero points, add a bias, scale, add a zero point, clamp."""

    fields = {"lhs": "lhs", "rhs": "rhs", "bias": "bias"}
    return await _answer(request, MatmulRequest, fields, plan_matmul, _product_options)


_CONV2D = {
    "input": {
        "type": "tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5:-1>>",
        "values": [0, 1, 2, 3, 4, 5, 6, 7, 8],
    },
    "weights": {"type": "tensor<1x2x2x1x!quant.uniform<i8<-127:127>:f32, 0.25>>", "values": [1, 2, -3, 4]},
    "bias": {"type": "tensor<1xi32>", "values": [10]},
    "output_type": "!quant.uniform<i8:f32, 0.5:3>",
    "padding": "same_upper",
    "trace": True,
}


@router.post("/v1/conv2d", **json_operation("conv2d", "Conv2d", Conv2dRequest, ProductReply, example=_CONV2D))
async def conv2d(request: Request) -> Response:
    """Convolve a quantized input with quantized weights. The stages are those of matmul."""

    fields = {"lhs": "input", "rhs": "weights", "bias": "bias"}
    return await _answer(request, Conv2dRequest, fields, plan_conv2d, _convolution_options)


def _convolution_options(call: Conv2dRequest) -> dict[str, Any]:
    window = convolution_window(
        layout=call.layout,
        weights_layout=call.weights_layout,
        strides=call.strides,
        dilations=call.dilations,
        padding=call.padding,
        pads=call.pads,
        groups=call.groups,
    )
    return {"window": window, **_product_options(call)}


_ADD = {
    "lhs": {"type": "tensor<4x!quant.uniform<i8:f32, 0.5:-1>>", "values": [3, -5, 127, 0]},
    "rhs": {"type": "tensor<4x!quant.uniform<i8:f32, 0.25:2>>", "values": [3, 1, 127, 5]},
    "output_type": "!quant.uniform<i8:f32, 0.5:3>",
    "trace": True,
}


@router.post("/v1/add", **json_operation("add", "Add", AddRequest, AddReply, example=_ADD))
async def add(request: Request) -> Response:
    """Add quantized tensors: rescale both to a common scale, add, and rescale the sum to the output."""

    return await _answer(request, AddRequest, {"lhs": "lhs", "rhs": "rhs"}, plan_add, lambda call: {})
