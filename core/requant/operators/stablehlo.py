"""StableHLO uniform_quantize and uniform_dequantize (StableHLO specification)."""

from __future__ import annotations

from requant.errors import UnsupportedError
from requant.operators.description import Operand, Operator, OperatorCall, Run, only_implementation
from requant.operators.element_names import QUANTIZED
from requant.operators.typed_conversion import OUTPUT_TYPE, converting, expressed_type, is_quantized, result_type

_REALS = ("f32", "f16", "bf16", "f64")
_SOURCE = "StableHLO specification 1.20; jaxlib 0.10.2"
_STORED = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"


def _plan_quantize(call: OperatorCall) -> Run:
    operand = call.inputs["operand"]
    target = result_type(call, operand)
    if not is_quantized(target):
        raise UnsupportedError("uniform_quantize gives a quantized tensor", pointer="/attributes/output_type")
    return converting(operand, target, "stablehlo", "operand", "result")


def _plan_dequantize(call: OperatorCall) -> Run:
    operand = call.inputs["operand"]
    return converting(operand, expressed_type(operand), "stablehlo", "operand", "result")


UNIFORM_QUANTIZE = Operator(
    system="stablehlo",
    name="uniform_quantize",
    summary="Quantize a tensor, or requantize a quantized one.",
    source=_SOURCE,
    inputs=(
        Operand(name="operand", description="The tensor to quantize.", types=dict.fromkeys((*_REALS, QUANTIZED), 1)),
    ),
    outputs=(Operand(name="result", description="The quantized tensor.", types={QUANTIZED: 1}),),
    attributes=(OUTPUT_TYPE,),
    implementations=only_implementation("stablehlo"),
    plan=_plan_quantize,
    example={
        "inputs": {"operand": {"type": "tensor<4xf32>", "values": [0.25, 0.75, -1.5, "Infinity"]}},
        "attributes": {"output_type": "!quant.uniform<i8:f32, 0.5:3>"},
    },
)

UNIFORM_DEQUANTIZE = Operator(
    system="stablehlo",
    name="uniform_dequantize",
    summary="Dequantize to the expressed type.",
    source=_SOURCE,
    inputs=(Operand(name="operand", description="The quantized tensor.", types={QUANTIZED: 1}),),
    outputs=(Operand(name="result", description="The real tensor.", types=dict.fromkeys(_REALS, 1)),),
    implementations=only_implementation("stablehlo"),
    plan=_plan_dequantize,
    example={"inputs": {"operand": {"type": _STORED, "values": [3, 4, 0, 127]}}},
)

OPERATORS = (UNIFORM_QUANTIZE, UNIFORM_DEQUANTIZE)
