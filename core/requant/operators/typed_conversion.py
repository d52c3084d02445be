"""Operators whose operand and result say all by their types, quantized ones included: StableHLO, MLIR, LiteRT."""

from __future__ import annotations

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.requantize import plan_requantize
from requant.description import Kind, TensorValue
from requant.errors import RequantError
from requant.mlir.types import TensorType, Type, UniformQuantizedType
from requant.operators.description import Attribute, OperatorCall, Outputs, Run
from requant.operators.execution import converted
from requant.plan.operands import bind
from requant.plan.plan import Plan

OUTPUT_TYPE = Attribute(
    name="output_type",
    kind=Kind.TYPE,
    description="The type of the result. A bare element type takes its shape from the operand.",
)


def is_quantized(tensor: TensorType) -> bool:
    """Return whether the elements have a scale."""
    return isinstance(tensor.element, UniformQuantizedType)


def expressed_type(operand: TensorValue) -> TensorType:
    """Return the tensor of reals that a quantized operand expresses."""
    element = operand.type.element
    assert isinstance(element, UniformQuantizedType)
    return TensorType(operand.shape, element.expressed)


def result_type(call: OperatorCall, operand: TensorValue) -> TensorType:
    """Return the attribute output_type as the type of a tensor of the operand's shape, or raise TypeFitError."""
    output_type: Type | None = call.type("output_type")
    assert output_type is not None
    try:
        return bind(output_type, operand.shape)
    except RequantError as error:
        error.pointer = "/attributes/output_type"
        raise


def converting(source: TensorValue, target: TensorType, profile: str, name: str, result: str) -> Run:
    """Return the work of quantize, dequantize or requantize, whichever the two types ask for."""
    try:
        plan = _plan(source.type, target, profile)
    except RequantError as error:
        if error.pointer is None or not error.pointer.startswith("/inputs/"):
            error.pointer = "/attributes/output_type" if error.side == "output" else f"/inputs/{name}"
        raise

    def run() -> Outputs:
        return {result: TensorValue(plan.output_type, converted(plan, source.data, name))}

    return run


def _plan(source: TensorType, target: TensorType, profile: str) -> Plan:
    if is_quantized(source):
        if is_quantized(target):
            return plan_requantize(source, target, profile)
        return plan_dequantize(source, target, profile)
    return plan_quantize(source, target, profile)
