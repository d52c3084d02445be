"""TOSA CAST_TO_BLOCK_SCALED (TOSA 1.1 draft).

    X = 2^e, e = floor(log2 amax) - emax, one more where RNE(amax / X) would be beyond the largest element
    output_data = RNE(input_data / X)

amax is the largest magnitude of the block, emax the exponent of the largest element. NaN or an infinity makes the scale
of its block NaN.
"""

from __future__ import annotations

import numpy as np

from requant.convert.blocks.mx import MxRule, quantize_mx
from requant.description import Choices, Kind, TensorValue
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.mlir.types import TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Run, only_implementation
from requant.operators.tosa.block_scaled import BLOCK_SIZE, ELEMENTS, MX_FORMATS, REALS, SCALE, SOURCE, scale_shape
from requant.plan.compute_dtype import widen


def _plan(call: OperatorCall) -> Run:
    source = call.inputs["input_data"]
    given = source.type.element
    assert isinstance(given, FloatElement)
    name = call.text("output_data_type")
    target = IntegerElement(8) if name == "i8" else FLOATS[name]
    format_name = MX_FORMATS[name]
    shape = scale_shape(source.shape, "input_data", format_name)

    def run() -> Outputs:
        reals = widen(source.data, given).reshape(source.shape)
        found = quantize_mx(reals, format_name, MxRule.TOSA)
        codes = found.elements.view(np.int8) if name == "i8" else found.elements
        return {
            "output_data": TensorValue(TensorType(source.shape, target), codes),
            "output_scale": TensorValue(TensorType(shape, SCALE), found.scales),
        }

    return run


CAST_TO_BLOCK_SCALED = Operator(
    system="tosa",
    name="CAST_TO_BLOCK_SCALED",
    summary="Quantize to blocks of 32 elements with power-of-two scales.",
    source=SOURCE,
    inputs=(Operand(name="input_data", description="The real tensor, of rank 1 or more.", types=REALS),),
    outputs=(
        Operand(name="output_data", description="The elements: codes, i8 for mxint8.", types=ELEMENTS),
        Operand(name="output_scale", description="One scale per block.", types={SCALE.name: 1}),
    ),
    attributes=(
        Attribute(
            name="output_data_type",
            kind=Kind.TEXT,
            description="The element type of output_data, which TOSA takes from the graph; i8: mxint8.",
            choices=Choices("TosaBlockElement", tuple(MX_FORMATS), "Elements of TOSA's block-scaled tensors."),
        ),
        BLOCK_SIZE,
    ),
    deviations=(
        "The reference model rounds some quotients of mxint8 below 2^-48 to 1/64; here they are 0, the nearest.",
    ),
    implementations=only_implementation("tosa"),
    plan=_plan,
    example={
        "inputs": {"input_data": {"type": "tensor<1x32xf32>", "values": [0.5 * (step % 7) for step in range(32)]}},
        "attributes": {"output_data_type": "f4E2M1FN"},
    },
)
