"""A plan of an addition as a `linalg.generic`: both differences to zero points scaled, added, scaled again, clamped."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from requant.convert.scaling import ScalingPlan
from requant.errors import UnsupportedError
from requant.integer.add import AddPlan
from requant.integer.add.common_scale import CommonScaleAddition
from requant.integer.add.fixed_point import FixedPointAddition
from requant.lowering.passes.requant_to_integer_arith.loops import Loops
from requant.lowering.passes.requant_to_integer_arith.profile import Choice
from requant.lowering.passes.requant_to_integer_arith.scaling import clamp, is_signed, multiply, settle
from requant.lowering.passes.rewriting import Emitter
from requant.plan.operands import QuantizedOperand


def add(
    emitter: Emitter, lhs: SSAValue, rhs: SSAValue, plan: AddPlan, element: IntegerType, choice: Choice
) -> SSAValue:
    """Emit the sum of two tensors of plain integers. Raises UnsupportedError for arithmetic without fixed point."""
    loops = Loops(emitter, plan.shape, element)
    differences = _difference(loops, lhs, plan.lhs), _difference(loops, rhs, plan.rhs)
    match plan.arithmetic:
        case FixedPointAddition() as arithmetic:
            choice.check(arithmetic.scheme)
            return loops.finish(_fixed_point(loops, differences, arithmetic))
        case CommonScaleAddition() as arithmetic:
            return loops.finish(_common_scale(loops, differences, arithmetic))
    raise UnsupportedError(f"profile {choice.profile} adds in floats, without fixed point")


def _difference(loops: Loops, value: SSAValue, operand: QuantizedOperand) -> SSAValue:
    number = loops.extend(loops.read(value), signed=is_signed(operand))
    zero = operand.zero_points[0]
    return loops.inner.add(arith.SubiOp(number, loops.constant(zero))) if zero else number


def _fixed_point(loops: Loops, differences: tuple[SSAValue, SSAValue], arithmetic: FixedPointAddition) -> SSAValue:
    scaled = []
    for number, plan in zip(differences, arithmetic.plans, strict=True):
        if arithmetic.left_shift is not None:
            number = loops.inner.add(arith.ShLIOp(number, loops.constant(arithmetic.left_shift)))
        assert isinstance(plan, ScalingPlan)
        scaled.append(multiply(loops, number, plan))
    assert isinstance(arithmetic.last, ScalingPlan)
    total = loops.inner.add(arith.AddiOp(scaled[0], scaled[1]))
    return settle(loops, multiply(loops, total, arithmetic.last), arithmetic.last)


def _common_scale(loops: Loops, differences: tuple[SSAValue, SSAValue], arithmetic: CommonScaleAddition) -> SSAValue:
    products = [
        loops.inner.add(arith.MuliOp(number, loops.constant(each.multiplier)))
        for number, each in zip(differences, arithmetic.multipliers, strict=True)
    ]
    shift = arithmetic.multipliers[0].shift
    total = loops.inner.add(arith.AddiOp(products[0], products[1]))
    total = loops.inner.add(arith.AddiOp(total, loops.constant(1 << (shift - 1))))
    total = loops.inner.add(arith.ShRSIOp(total, loops.constant(shift)))
    total = loops.inner.add(arith.AddiOp(total, loops.constant(arithmetic.output.zero_points[0])))
    return clamp(loops, total, arithmetic.output)
