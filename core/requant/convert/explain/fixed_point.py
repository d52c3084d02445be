"""Steps of scaling an integer by a multiplier and a shift, by the rule of a scheme."""

from __future__ import annotations

from fractions import Fraction

from requant.convert.explain.explanation import StepKind
from requant.convert.explain.float_steps import round_to_integer, wrap_int32
from requant.convert.explain.working import Working
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule
from requant.schemes import FixedPoint, Multiplier, Prepared, Scheme

_INT32_MAXIMUM = (1 << 31) - 1
_TWICE = (FixedPointRule.DOUBLE, FixedPointRule.DOUBLE_UP)


def multiply(working: Working, scheme: Scheme, stage: FixedPoint, given: Multiplier, difference: int) -> int:
    """Add the steps from v, which is `difference`, to y, the scaled integer without a zero point, and return y."""
    prepared = stage.prepare(given)
    m = _multiplier(working, scheme, given, prepared)
    r = working.integer(StepKind.SHIFT, "r", _right_shift(scheme, given, prepared), prepared.shift)
    v = working.integer(StepKind.SUBTRACT_ZERO_POINT, "v", "q - z_in", difference)
    if stage.rule in _TWICE:
        return _twice(working, v, m, r, up=stage.rule is FixedPointRule.DOUBLE_UP)
    p = working.integer(StepKind.MULTIPLY, "p", "v * m", v * m)
    exact = Fraction(p, 1 << r)
    if stage.rule is FixedPointRule.NEAREST_AWAY:
        y = round_to_integer(exact, Rounding.NEAREST_AWAY)
        return working.integer(StepKind.SHIFT_RIGHT, "y", "RNA(p / 2^r)", y, exact=exact)
    if stage.rule is FixedPointRule.TOSA_DOUBLE and r > 31:
        nudge = -(1 << 30) if v < 0 else 1 << 30
        p = working.integer(StepKind.NUDGE, "p", "p - 2^30" if v < 0 else "p + 2^30", p + nudge)
        exact = Fraction(p, 1 << r)
    y = round_to_integer(exact, Rounding.NEAREST_UP)
    return working.integer(StepKind.SHIFT_RIGHT, "y", "floor(p / 2^r + 1/2)", y, exact=exact)


def _multiplier(working: Working, scheme: Scheme, given: Multiplier, prepared: Prepared) -> int:
    """Return the multiplier that is computed with. Add a step if it is not the given one."""
    if prepared.multiplier == given.multiplier:
        return prepared.multiplier
    # A shift that leaves nothing of the product: the multiplier is taken as 0.
    formula = "min(floor((m + 2^15) / 2^16), 2^15 - 1)" if scheme.reduced is not None else "0"
    return working.integer(StepKind.REDUCE, "m", formula, prepared.multiplier)


def _right_shift(scheme: Scheme, given: Multiplier, prepared: Prepared) -> str:
    """Return the right shift of the product in terms of the scheme's shift."""
    if prepared.multiplier == 0 and given.multiplier != 0:
        return str(prepared.shift)
    sign = scheme.right_shift(1) - scheme.right_shift(0)
    offset = prepared.shift - sign * given.shift
    if sign < 0:
        return f"{offset} - shift"
    return f"shift + {offset}" if offset else "shift"


def _twice(working: Working, v: int, m: int, r: int, *, up: bool) -> int:
    """Add the steps of two roundings: to the high half of the doubled product, and after the rest of the shift."""
    left, right = max(31 - r, 0), max(r - 31, 0)
    working.know(left=str(left), right=str(right))
    exact = Fraction(v << left)
    a = working.integer(StepKind.SHIFT_LEFT, "a", "wrap32(v * 2^left)", wrap_int32(v << left), "i32", exact=exact)
    exact = Fraction(a * m, 1 << 31)
    nearest, formula = round_to_integer(exact, Rounding.NEAREST_UP), "floor((a * m + 2^30) / 2^31)"
    if nearest > _INT32_MAXIMUM:
        nearest, formula = _INT32_MAXIMUM, f"min({formula}, 2^31 - 1)"
    h = working.integer(StepKind.HIGH_MULTIPLY, "h", formula, nearest, "i32", exact=exact)
    exact = Fraction(h, 1 << right)
    rounding = Rounding.NEAREST_UP if up else Rounding.NEAREST_AWAY
    formula = "floor(h / 2^right + 1/2)" if up else "RNA(h / 2^right)"
    y = round_to_integer(exact, rounding)
    return working.integer(StepKind.SHIFT_RIGHT, "y", formula, y, "i32", exact=exact)
