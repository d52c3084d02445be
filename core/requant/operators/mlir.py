"""The quant dialect's qcast, dcast and scast, as lower-quant-ops lowers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from requant.description import Array, TensorValue
from requant.errors import UnsupportedError
from requant.formats.elements import IntegerElement
from requant.mlir.casts import Cast, cast_reason
from requant.mlir.types import StorageType, TensorType, UniformQuantizedType
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Run, only_implementation
from requant.operators.element_names import QUANTIZED, container
from requant.operators.typed_conversion import OUTPUT_TYPE, converting, result_type

_REALS = ("f32", "f16", "bf16", "f64")
_INTEGERS = tuple(f"i{width}" for width in range(1, 33))
_SOURCE = "LLVM 24, quant dialect, lower-quant-ops"
_QUANTIZED = "!quant.uniform<i8:f32, 0.5:3>"


def _checked(cast: Cast, call: OperatorCall) -> tuple[TensorValue, TensorType]:
    operand = call.inputs["input"]
    target = result_type(call, operand)
    if (reason := cast_reason(cast, operand.type, target)) is not None:
        raise UnsupportedError(f"{cast} does not take these types: {reason}", pointer="/attributes/output_type")
    return operand, target


def _plan_qcast(call: OperatorCall) -> Run:
    operand, target = _checked(Cast.QCAST, call)
    return converting(operand, target, "mlir", "input", "result")


def _plan_dcast(call: OperatorCall) -> Run:
    operand, target = _checked(Cast.DCAST, call)
    return converting(operand, target, "mlir", "input", "result")


def _plan_scast(call: OperatorCall) -> Run:
    operand, target = _checked(Cast.SCAST, call)
    dtype = container(target.element)
    if dtype is None:
        raise UnsupportedError("stored numbers have at most 32 bits here", pointer="/attributes/output_type")

    def run() -> Outputs:
        return {"result": TensorValue(target, _reread(operand.data, target, dtype))}

    return run


def _reread(data: Array, target: TensorType, dtype: np.dtype[Any]) -> Array:
    """Return the same bits read with the sign that the other type has, in its container."""
    element = target.element
    held = element.storage if isinstance(element, UniformQuantizedType) else element
    assert isinstance(held, (IntegerElement, StorageType))
    bits = data.astype(np.int64) & ((1 << held.width) - 1)
    if held.signed:
        bits -= (bits >> (held.width - 1)) << held.width
    return bits.astype(dtype)


QCAST = Operator(
    system="mlir",
    name="quant.qcast",
    summary="Quantize by truncation without saturation; values that the lowering leaves as poison are an error.",
    source=_SOURCE,
    inputs=(Operand(name="input", description="The real tensor.", types=dict.fromkeys(_REALS, 1)),),
    outputs=(Operand(name="result", description="The quantized tensor.", types={QUANTIZED: 1}),),
    attributes=(OUTPUT_TYPE,),
    implementations=only_implementation("mlir"),
    plan=_plan_qcast,
    example={
        "inputs": {"input": {"type": "tensor<3xf32>", "values": [0.25, 0.75, -1.5]}},
        "attributes": {"output_type": _QUANTIZED},
    },
)

DCAST = Operator(
    system="mlir",
    name="quant.dcast",
    summary="Dequantize, with each step in the expressed type.",
    source=_SOURCE,
    inputs=(Operand(name="input", description="The quantized tensor.", types={QUANTIZED: 1}),),
    outputs=(Operand(name="result", description="The real tensor.", types=dict.fromkeys(_REALS, 1)),),
    attributes=(OUTPUT_TYPE,),
    implementations=only_implementation("mlir"),
    plan=_plan_dcast,
    example={
        "inputs": {"input": {"type": f"tensor<3x{_QUANTIZED}>", "values": [3, 4, 0]}},
        "attributes": {"output_type": "f32"},
    },
)

SCAST = Operator(
    system="mlir",
    name="quant.scast",
    summary="Reinterpret quantized values as plain integers, or the reverse.",
    source=_SOURCE,
    inputs=(
        Operand(
            name="input",
            description="A quantized tensor, or signless integers.",
            types=dict.fromkeys((QUANTIZED, *_INTEGERS), 1),
        ),
    ),
    outputs=(
        Operand(
            name="result",
            description="Signless integers, or a quantized tensor.",
            types=dict.fromkeys((QUANTIZED, *_INTEGERS), 1),
        ),
    ),
    attributes=(OUTPUT_TYPE,),
    implementations=only_implementation("mlir"),
    plan=_plan_scast,
    example={
        "inputs": {"input": {"type": f"tensor<3x{_QUANTIZED}>", "values": [3, 4, -128]}},
        "attributes": {"output_type": "i8"},
    },
)

OPERATORS = (QCAST, DCAST, SCAST)
