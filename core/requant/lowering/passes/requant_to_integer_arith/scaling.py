"""A plan of scaling by multipliers as a `linalg.generic`: subtract zero point, multiply, add zero point, clamp."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, i32
from xdsl.ir import SSAValue

from requant.convert.scaling import Granularity, ScalingPlan, sum_rule
from requant.lowering.passes.requant_to_integer_arith.loops import Loops
from requant.lowering.passes.requant_to_integer_arith.multiply import Multiplication
from requant.lowering.passes.rewriting import Emitter
from requant.plan.operands import StoredOperand, static_shape
from requant.plan.plan import Array
from requant.schemes import FixedPoint, Sum


def scale(emitter: Emitter, value: SSAValue, plan: ScalingPlan, element: IntegerType) -> SSAValue:
    """Emit clamp(multiply(q - z_in) + z_out) of a tensor of plain integers, as integers of `element`."""
    loops = Loops(emitter, static_shape(plan.output_type), element)
    found = loops.extend(loops.read(value), signed=is_signed(plan.sides.source))
    found = less(loops, found, plan.sides.zeros_in, plan.granularity)
    return loops.finish(settle(loops, multiply(loops, found, plan), plan))


def is_signed(operand: StoredOperand) -> bool:
    """Return whether the stored integers of an operand are signed."""
    return operand.dtype.kind == "i"


def less(loops: Loops, value: SSAValue, zero_points: Array, granularity: Granularity) -> SSAValue:
    """Emit `value` less the zero point of its block."""
    if not zero_points.any():
        return value
    return loops.inner.add(arith.SubiOp(value, loops.parameter(zero_points.tolist(), granularity)))


def multiply(loops: Loops, value: SSAValue, plan: ScalingPlan) -> SSAValue:
    """Emit the multiplication of an i64 by the multipliers of a plan whose scheme has fixed point."""
    stage = plan.scheme.stage
    assert isinstance(stage, FixedPoint)
    prepared = [stage.prepare(each) for each in plan.multipliers]
    return Multiplication(loops, prepared, plan.granularity).of(value, stage.rule)


def settle(loops: Loops, value: SSAValue, plan: ScalingPlan) -> SSAValue:
    """Emit the addition of the output's zero point, which wraps where the scheme's does, and the clamp."""
    stage, sides = plan.scheme.stage, plan.sides
    assert isinstance(stage, FixedPoint)
    if sides.zeros_out.any():
        value = loops.inner.add(arith.AddiOp(value, loops.parameter(sides.zeros_out.tolist(), plan.granularity)))
    if sum_rule(stage, sides) is Sum.WRAPS:
        value = loops.cut(value, i32)
    return clamp(loops, value, sides.target)


def clamp(loops: Loops, value: SSAValue, target: StoredOperand) -> SSAValue:
    """Emit the clamp of a signed number to the storage bounds of the output, and its lowest bits."""
    element = value.type
    assert isinstance(element, IntegerType)
    bounds: Sequence[tuple[type[arith.MaxSIOp | arith.MinSIOp], int]] = (
        (arith.MaxSIOp, target.minimum),
        (arith.MinSIOp, target.maximum),
    )
    half = 1 << (element.width.data - 1)
    for operation, bound in bounds:
        if bound not in (-half, half - 1):
            value = loops.inner.add(operation(value, loops.constant(bound, element)))
    return loops.cut(value, loops.element)
