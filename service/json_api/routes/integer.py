"""The JSON face of the integer operations."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from core.integer.add import plan_add
from core.integer.conv2d import plan_conv2d
from core.integer.matmul import plan_matmul
from core.integer.product import ProductPlan
from core.integer.window import Layout, WeightsLayout, Window
from service.http.openapi_operation import json_operation
from service.http.query import no_query
from service.json_api.addition import answer_add
from service.json_api.contraction import Types, answer_product, chosen
from service.json_api.schemas.integer import AddReply, AddRequest, Conv2dRequest, MatmulRequest, ProductReply

router = APIRouter(tags=["integer"], dependencies=[Depends(no_query)])

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


@router.post("/v1/matmul", **json_operation("matmul", MatmulRequest, ProductReply, example=_MATMUL))
async def matmul(request: Request) -> Response:
    """Multiply quantized matrices: accumulate, correct for zero points, add a bias, scale, add a zero point, clamp."""

    def plan(call: MatmulRequest, types: Types) -> ProductPlan:
        return plan_matmul(types.lhs, types.rhs, types.output, call.profile, bias=types.bias, **chosen(call))

    return await answer_product(request, MatmulRequest, ("lhs", "rhs"), plan)


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


@router.post("/v1/conv2d", **json_operation("conv2d", Conv2dRequest, ProductReply, example=_CONV2D))
async def conv2d(request: Request) -> Response:
    """Convolve a quantized input with quantized weights. The stages are those of matmul."""

    def plan(call: Conv2dRequest, types: Types) -> ProductPlan:
        return plan_conv2d(
            types.lhs, types.rhs, types.output, call.profile, bias=types.bias, window=_window(call), **chosen(call)
        )

    return await answer_product(request, Conv2dRequest, ("input", "weights"), plan)


def _window(call: Conv2dRequest) -> Window:
    default = WeightsLayout.OHWI if call.layout is Layout.NHWC else WeightsLayout.OIHW
    top, left, bottom, right = call.pads or (0, 0, 0, 0)
    vertical, horizontal = call.strides or (1, 1)
    down, across = call.dilations or (1, 1)
    return Window(
        layout=call.layout,
        weights_layout=call.weights_layout if "weights_layout" in call.model_fields_set else default,
        strides=(vertical, horizontal),
        dilations=(down, across),
        padding=call.padding,
        pads=(top, left, bottom, right),
        groups=call.groups,
    )


_ADD = {
    "lhs": {"type": "tensor<4x!quant.uniform<i8:f32, 0.5:-1>>", "values": [3, -5, 127, 0]},
    "rhs": {"type": "tensor<4x!quant.uniform<i8:f32, 0.25:2>>", "values": [3, 1, 127, 5]},
    "output_type": "!quant.uniform<i8:f32, 0.5:3>",
    "trace": True,
}


@router.post("/v1/add", **json_operation("add", AddRequest, AddReply, example=_ADD))
async def add(request: Request) -> Response:
    """Add quantized tensors: rescale both to a common scale, add, and rescale the sum to the output."""
    return await answer_add(request, plan_add)
