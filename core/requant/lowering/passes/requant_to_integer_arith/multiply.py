"""Multiplication by a fixed-point multiplier, in i64 `arith`: the rules of `requant.kernels.convert.requantize.rules`,
one by one.

    DOUBLE, DOUBLE_UP   h = (wrap32(v << left) * m + 2^30) >> 31, left = max(31 - s, 0), right = max(s - 31, 0);
                        then h / 2^right, ties away from zero, or up
    NEAREST_UP          (v * m + 2^(s-1)) >> s
    NEAREST_AWAY        v * m / 2^s, ties away from zero
    TOSA_DOUBLE         (v * m + 2^(s-1) +- 2^30) >> s, the last term where s > 31, with the sign of v

s is a right shift of the whole product. Source: gemmlowp, LiteRT, XNNPACK and TOSA, as
`requant.schemes` names them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import Operation, SSAValue

from requant.convert.scaling import Granularity
from requant.kernels.convert.requantize.rules import FixedPointRule
from requant.lowering.passes.requant_to_integer_arith.loops import Loops
from requant.schemes import Prepared

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
