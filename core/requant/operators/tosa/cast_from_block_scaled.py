"""TOSA CAST_FROM_BLOCK_SCALED (TOSA 1.1 draft).

    output_data = input_data * input_scale

The product is exact in f32, or an infinity beyond it, and rounded once to bf16 (RNE). A scale of NaN makes its whole
block NaN.
"""

from __future__ import annotations

import numpy as np

from requant.convert.blocks.mx import MxTensor, dequantize_mx
from requant.description import Choices, Kind, TensorValue
from requant.errors import default_pointer
from requant.formats.elements import FLOATS
from requant.mlir.types import TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Run, only_implementation
from requant.operators.element_names import type_key
from requant.operators.tosa.block_scaled import (
    BLOCK_SIZE,
    ELEMENTS,
    MX_FORMATS,
    REALS,
    SCALE,
    SOURCE,
    check_scale_shape,
    scale_shape,
)
from requant.plan.compute_dtype import narrowed


def _plan(call: OperatorCall) -> Run:
    source, scale = call.inputs["input_data"], call.inputs["input_scale"]
    format_name = MX_FORMATS[type_key(source.type.element)]
    check_scale_shape(scale.type, scale_shape(source.shape, "input_data", format_name), "input_scale")
    target = FLOATS[call.text("output_data_type")]

    def run() -> Outputs:
        blocks = MxTensor(format_name, source.shape, scale.data, source.data.view(np.uint8))
        with default_pointer("/inputs/input_data"):
            reals = dequantize_mx(blocks).reshape(-1)
        return {"output_data": TensorValue(TensorType(source.shape, target), narrowed(reals, target))}

    return run


CAST_FROM_BLOCK_SCALED = Operator(
    system="tosa",
    name="CAST_FROM_BLOCK_SCALED",
    summary="Dequantize blocks of 32 elements with power-of-two scales.",
    source=SOURCE,
    inputs=(
        Operand(name="input_data", description="The elements: codes, i8 for mxint8.", types=ELEMENTS),
        Operand(name="input_scale", description="One scale per block.", types={SCALE.name: 1}),
    ),
    outputs=(Operand(name="output_data", description="The real tensor.", types=REALS),),
    attributes=(
        Attribute(
            name="output_data_type",
            kind=Kind.TEXT,
            description="The element type of output_data, which TOSA takes from the graph.",
            default="f32",
            choices=Choices("TosaBlockReal", tuple(REALS), "The types that block-scaled tensors are cast to."),
        ),
        BLOCK_SIZE,
    ),
    implementations=only_implementation("tosa"),
    plan=_plan,
    example={
        "inputs": {
            "input_data": {"type": "tensor<1x32xi8>", "values": [8 * (step - 16) for step in range(32)]},
            "input_scale": {"type": "tensor<1x1xf8E8M0FNU>", "data": "gA=="},
        },
    },
)
