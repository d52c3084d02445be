"""Plans of scaling and of additions as a `linalg.generic`, in i64 `arith`.

Scaling: subtract the zero point, multiply, add the zero point, clamp. Addition: both differences to zero points scaled,
added, scaled again, clamped. The multiplications are those of `requant.kernels.convert.requantize.rules`:

    DOUBLE, DOUBLE_UP   h = (wrap32(v << left) * m + 2^30) >> 31, left = max(31 - s, 0), right = max(s - 31, 0);
                        then h / 2^right, ties away from zero, or up
    NEAREST_UP          (v * m + 2^(s-1)) >> s
    NEAREST_AWAY        v * m / 2^s, ties away from zero
    TOSA_DOUBLE         (v * m + 2^(s-1) +- 2^30) >> s, the last term where s > 31, with the sign of v
    NEAREST_EVEN        v * m / 2^s, ties to even
    FLOOR               (v * m) >> s
    ODD                 (v * m) >> s, the last bit set if the remainder is not 0

s is a right shift of the whole product. Source: gemmlowp, LiteRT, XNNPACK and TOSA, as `requant.schemes` names them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, i32
from xdsl.ir import Operation, SSAValue

from requant.convert.scaling import Granularity, ScalingPlan, sum_rule
from requant.errors import UnsupportedError
from requant.integer.add import AddPlan, CommonScaleAddition, FixedPointAddition
from requant.kernels.convert.requantize.rules import FixedPointRule
from requant.lowering.passes.requant_to_integer_arith.loops import Choice, Loops
from requant.lowering.passes.rewriting import Emitter
from requant.plan.operands import QuantizedOperand, StoredOperand, static_shape
from requant.plan.plan import Array
from requant.schemes import FixedPoint, Prepared, Sum

_HIGH_BITS = 31


class Multiplication:
    """Multipliers and shifts, one or one for each block of `granularity`, in the body of `loops`."""

    def __init__(self, loops: Loops, prepared: Sequence[Prepared], granularity: Granularity) -> None:
        self._loops, self._granularity = loops, granularity
        self._multipliers = [each.multiplier for each in prepared]
        self._shifts = [each.shift for each in prepared]

    def of(self, value: SSAValue, rule: FixedPointRule) -> SSAValue:
        """Return the product with `value`, an i64, shifted and rounded."""
        if rule in (FixedPointRule.DOUBLE, FixedPointRule.DOUBLE_UP):
            return self._double(value, up=rule is FixedPointRule.DOUBLE_UP)
        product = self._add(arith.MuliOp(value, self._number(self._multipliers)))
        if rule is FixedPointRule.NEAREST_AWAY:
            return self._divide_away(product, self._shifts)
        if rule is FixedPointRule.NEAREST_EVEN:
            return self._shift_even(product, self._shifts)
        if rule is FixedPointRule.FLOOR:
            return self._add(arith.ShRSIOp(product, self._number(self._shifts)))
        if rule is FixedPointRule.ODD:
            return self._shift_odd(product, self._shifts)
        if rule is FixedPointRule.TOSA_DOUBLE and any(shift > _HIGH_BITS for shift in self._shifts):
            first = [(shift > _HIGH_BITS) << 30 for shift in self._shifts]
            sign = self._add(arith.CmpiOp(value, self._loops.constant(0), "sge"))
            above, below = self._number(first), self._number([-each for each in first])
            product = self._add(arith.AddiOp(product, self._add(arith.SelectOp(sign, above, below))))
        return self._shift_up(product, self._shifts)

    def _add(self, op: Operation) -> SSAValue:
        return self._loops.inner.add(op)

    def _number(self, numbers: Sequence[int]) -> SSAValue:
        return self._loops.parameter(numbers, self._granularity)

    def _double(self, value: SSAValue, *, up: bool) -> SSAValue:
        left = [max(_HIGH_BITS - shift, 0) for shift in self._shifts]
        right = [max(shift - _HIGH_BITS, 0) for shift in self._shifts]
        if any(left):
            value = self._add(arith.ShLIOp(value, self._number(left)))
            value = self._loops.extend(self._loops.cut(value, i32), signed=True)
        product = self._add(arith.MuliOp(value, self._number(self._multipliers)))
        # Only -2^31 * -2^31 saturates, and no multiplier here is negative.
        high = self._shift_up(product, [_HIGH_BITS])
        if not any(right):
            return high
        return self._shift_up(high, right) if up else self._divide_away(high, right)

    def _shift_up(self, value: SSAValue, shifts: Sequence[int]) -> SSAValue:
        """RNU(value / 2^shift) = (value + 2^(shift-1)) >> shift; 2^-1 counts as 0."""
        half = self._number([(1 << shift) >> 1 for shift in shifts])
        return self._add(arith.ShRSIOp(self._add(arith.AddiOp(value, half)), self._number(shifts)))

    def _shift_even(self, value: SSAValue, shifts: Sequence[int]) -> SSAValue:
        """RNE(value / 2^shift) = (value + 2^(shift-1) - 1 + last bit that stays) >> shift; with shift 0 the value."""
        floor = self._add(arith.ShRSIOp(value, self._number(shifts)))
        last = self._add(arith.AndIOp(floor, self._number([min(shift, 1) for shift in shifts])))
        below_half = self._add(arith.AddiOp(value, self._number([((1 << shift) - 1) >> 1 for shift in shifts])))
        return self._add(arith.ShRSIOp(self._add(arith.AddiOp(below_half, last)), self._number(shifts)))

    def _shift_odd(self, value: SSAValue, shifts: Sequence[int]) -> SSAValue:
        """floor(value / 2^shift), the last bit set if the remainder is not 0."""
        floor = self._add(arith.ShRSIOp(value, self._number(shifts)))
        rest = self._add(arith.AndIOp(value, self._number([(1 << shift) - 1 for shift in shifts])))
        lost = self._loops.extend(self._add(arith.CmpiOp(rest, self._loops.constant(0), "ne")), signed=False)
        return self._add(arith.OrIOp(floor, lost))

    def _divide_away(self, value: SSAValue, shifts: Sequence[int]) -> SSAValue:
        """RNA(value / 2^shift), as gemmlowp's RoundingDivideByPOT: one more where the rest passes a threshold.

        The threshold is 2^(shift-1) - 1 for values of at least 0, and one more below.
        """
        masks = [(1 << shift) - 1 for shift in shifts]
        rest = self._add(arith.AndIOp(value, self._number(masks)))
        negative = self._add(arith.CmpiOp(value, self._loops.constant(0), "slt"))
        threshold = self._number([mask >> 1 for mask in masks])
        threshold = self._add(arith.AddiOp(threshold, self._loops.extend(negative, signed=False)))
        above = self._loops.extend(self._add(arith.CmpiOp(rest, threshold, "sgt")), signed=False)
        floor = self._add(arith.ShRSIOp(value, self._number(shifts)))
        return self._add(arith.AddiOp(floor, above))


def scale(emitter: Emitter, value: SSAValue, plan: ScalingPlan, element: IntegerType) -> SSAValue:
    """Emit clamp(multiply(q - z_in) + z_out) of a tensor of plain integers, as integers of `element`."""
    loops = Loops(emitter, static_shape(plan.output_type), element)
    number = loops.extend(loops.read(value), signed=is_signed(plan.sides.source))
    number = less(loops, number, plan.sides.zeros_in, plan.granularity)
    return loops.finish(settle(loops, multiply(loops, number, plan), plan))


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
    if sum_rule(stage, sides.target) is Sum.WRAPS:
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
