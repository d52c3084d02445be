"""The exact formula of a requantization by a scheme, and for which rules it is monotone.

v = q - z_in falls or rises with q, and each rule of `requant.kernels.convert.requantize.rules` is a chain of monotone
steps (`requant.equality.steps`):

- NEAREST_UP: floor((v*m + 2^(s-1)) / 2^s) is one product and one rounding; NEAREST_AWAY the same with ties away from
  zero, which is a rounding that never falls.
- DOUBLE: product, rounding, saturation at 2^31 - 1, rounding. But v * 2^left wraps: it is monotone between two wraps.
  DOUBLE_UP likewise.
- TOSA_DOUBLE: 2^30 is added for v >= 0 and subtracted for v < 0: v*m plus something that never falls, as m >= 0.
- F32_EVEN: f32(v), product, f32, RNE: roundings to the nearest never fall. F32_OFFSET adds in f32, F64_EVEN_OFFSET in
  f64; F64_AWAY rounds ties away from zero.

A multiplier below 0 (`litert` takes them, and float factors may be) makes each of them fall instead of rise. Where
y + z_out wraps in int32 the result jumps to the other end, and is monotone between two wraps; without a wrap the clamp
to the storage bounds never falls. What a scheme demands of v, y or y + z_out holds on an interval, since these are
monotone; outside of it the rule is undefined. So every rule of a scheme is monotone in pieces, and the steps say where
they end. A profile without a scheme dequantizes and quantizes: the steps of both, one after the other.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from requant.convert.scaling import ScalingPlan, Sides, sum_rule
from requant.equality.steps import Steps, add, multiply, scale, to_float, within
from requant.formats.elements import FLOATS
from requant.kernels.convert.requantize import real_factor
from requant.kernels.convert.requantize.general import REQUANTIZE_FLOAT_ANY
from requant.kernels.convert.requantize.rules import FixedPointRule, FloatRule
from requant.schemes import FixedPoint, Float, Multiplier, Prepared, Sum
from requant.schemes.scheme import INT32, rounded_to_f32

_F32, _F64 = FLOATS["f32"], FLOATS["f64"]
_NUDGE = 1 << 30
_SECOND_ROUNDING = {FixedPointRule.DOUBLE: "away", FixedPointRule.DOUBLE_UP: "up"}


def _shifted(shift: int, way: str) -> Steps:
    """x / 2^shift, rounded."""
    return (*multiply(1, 1 << shift), ("integer", way))


def product_steps(rule: FixedPointRule, prepared: Prepared) -> Steps:
    """Return the steps from v to y of a multiplication by an integer."""
    m, s = prepared.multiplier, prepared.shift
    if rule in _SECOND_ROUNDING:
        left, right = max(31 - s, 0), max(s - 31, 0)
        shifted = (*multiply(1 << left), ("wrap", 32)) if left else ()
        high = (*multiply(m, 1 << 31), ("integer", "up"), ("clamp", *INT32))
        return (*shifted, *high, *(_shifted(right, _SECOND_ROUNDING[rule]) if right else ()))
    if rule is FixedPointRule.NEAREST_AWAY:
        return (*multiply(m, 1 << s), ("integer", "away"))
    if rule is FixedPointRule.TOSA_DOUBLE and s > 31:
        # Of v and of v*m the sign decides alike: with m = 0 both ways round to 0.
        return (*multiply(m), ("nudge", _NUDGE), *_shifted(s, "up"))
    return (*multiply(m, 1 << s), ("integer", "up"))


def _fixed_point(stage: FixedPoint, multiplier: Multiplier, sides: Sides) -> Steps:
    prepared, target = stage.prepare(multiplier), sides.target
    steps = (*_value(sides, prepared.width), *product_steps(stage.rule, prepared))
    if stage.scaled is not None:
        steps += within(*stage.scaled)
    steps += add(int(sides.zeros_out[0]))
    total = sum_rule(stage, sides)
    if total is Sum.ERROR:
        steps += within(*INT32)
    elif total is Sum.WRAPS:
        steps += (("wrap", 32),)
    return (*steps, ("clamp", target.minimum, target.maximum))


def _value(sides: Sides, width: int) -> Steps:
    """v = q - z_in, which has to be of so many bits and a sign."""
    source, zero = sides.source, int(sides.zeros_in[0])
    bound = 1 << width
    inside = -bound <= source.lowest - zero and source.highest - zero < bound
    return (*add(-zero), *(() if inside else within(-bound, bound - 1)))


def _offset(plan: ScalingPlan) -> float:
    """Return the merged zero point that the kernel adds."""
    if plan.kernel is REQUANTIZE_FLOAT_ANY.compiled():
        return float(plan.arguments[3][0])
    return float(plan.arguments[1].reshape(len(real_factor.Parameter), -1)[real_factor.Parameter.OFFSET, 0])


def _float(stage: Float, plan: ScalingPlan) -> Steps:
    sides = plan.sides
    prepared, target = stage.prepare(plan.multipliers[0]), sides.target
    zero_out = int(sides.zeros_out[0])
    in_f32 = stage.rule in (FloatRule.F32_EVEN, FloatRule.F32_OFFSET)
    factor = Fraction(rounded_to_f32(prepared.factor) if in_f32 else prepared.factor)
    element = _F32 if in_f32 else _F64
    product = (*to_float(element), *scale(factor), *to_float(element))
    bounds = target.minimum, target.maximum
    if stage.rule is FloatRule.F32_OFFSET:
        lowest, highest = (int(np.float32(bound)) for bound in bounds)
        near = max(lowest, target.lowest), min(highest, target.highest)
        return (*product, *add(Fraction(_offset(plan))), *to_float(element), ("integer", "even"), ("clamp", *near))
    steps = (*_value(sides, prepared.width), *product)
    if stage.rule is FloatRule.F64_EVEN_OFFSET:
        return (*steps, *add(zero_out), *to_float(element), ("integer", "even"), ("clamp", *bounds))
    steps += (("integer", "away" if stage.rule is FloatRule.F64_AWAY else "even"),)
    steps += () if stage.scaled is None else within(*stage.scaled)
    steps += add(zero_out)
    steps += () if stage.summed is None else within(*stage.summed)
    return (*steps, ("clamp", *bounds))


def scheme_steps(plan: ScalingPlan) -> Steps:
    """Return the formula of a requantization by one multiplier, from a stored integer to a stored integer."""
    stage = plan.scheme.stage
    if isinstance(stage, FixedPoint):
        return _fixed_point(stage, plan.multipliers[0], plan.sides)
    return _float(stage, plan)
