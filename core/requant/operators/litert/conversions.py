"""LiteRT QUANTIZE and DEQUANTIZE (LiteRT kernels/quantize.cc, kernels/dequantize.cc)."""

from __future__ import annotations

from requant.description import Choices, Kind
from requant.errors import UnsupportedError
from requant.formats.elements import FLOATS
from requant.mlir.types import TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Run, only_implementation
from requant.operators.element_names import QUANTIZED
from requant.operators.litert.arithmetic import SOURCE
from requant.operators.typed_conversion import OUTPUT_TYPE, converting, is_quantized, result_type

_KERNEL = Attribute(
    name="kernel",
    kind=Kind.TEXT,
    description="The LiteRT kernels to follow. Default: reference.",
    default="reference",
    choices=Choices(
        "LitertKernel",
        ("reference", "xnnpack"),
        "The reference kernels, or those of the default interpreter, which delegates to XNNPACK.",
    ),
)
_PROFILES = {"reference": "litert", "xnnpack": "litert_xnnpack"}


def _plan_quantize(call: OperatorCall) -> Run:
    tensor = call.inputs["input"]
    target = result_type(call, tensor)
    if not is_quantized(target):
        raise UnsupportedError("QUANTIZE gives a quantized tensor", pointer="/attributes/output_type")
    return converting(tensor, target, _PROFILES[call.text("kernel")], "input", "output")


def _plan_dequantize(call: OperatorCall) -> Run:
    tensor = call.inputs["input"]
    target = TensorType(tensor.shape, FLOATS["f32"])
    return converting(tensor, target, _PROFILES[call.text("kernel")], "input", "output")


QUANTIZE = Operator(
    system="litert",
    name="QUANTIZE",
    summary="Quantize a tensor, or requantize a quantized one.",
    source=SOURCE,
    inputs=(
        Operand(
            name="input",
            description="The tensor to quantize; the type of a quantized tensor holds its QuantizationParameters.",
            types={"f32": 1, QUANTIZED: 1},
        ),
    ),
    outputs=(Operand(name="output", description="The quantized tensor.", types={QUANTIZED: 1}),),
    attributes=(OUTPUT_TYPE, _KERNEL),
    implementations=only_implementation("litert"),
    plan=_plan_quantize,
    example={
        "inputs": {"input": {"type": "tensor<4xf32>", "values": [0.25, 0.75, -1.5, 2.5]}},
        "attributes": {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "kernel": "xnnpack"},
    },
)

DEQUANTIZE = Operator(
    system="litert",
    name="DEQUANTIZE",
    summary="Dequantize to f32.",
    source=SOURCE,
    inputs=(Operand(name="input", description="The quantized tensor.", types={QUANTIZED: 1}),),
    outputs=(Operand(name="output", description="The real tensor.", types={"f32": 1}),),
    attributes=(_KERNEL,),
    implementations=only_implementation("litert"),
    plan=_plan_dequantize,
    example={
        "inputs": {"input": {"type": "tensor<4x!quant.uniform<i8:f32, 0.5:3>>", "values": [3, 4, 0, 127]}},
    },
)
