"""Steps of scaling an integer by a real factor, by the rule of a scheme."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from requant.convert.explain.dequantize_integer import integer_as
from requant.convert.explain.explanation import Saturation, StepKind
from requant.convert.explain.float_steps import F32, F64, Precision, Rounded, round_to_integer
from requant.convert.explain.number_text import float_text
from requant.convert.explain.quantize_integer import Stored, beyond
from requant.convert.explain.working import INTEGER, Working
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FloatRule
from requant.plan.operands import StoredOperand
from requant.schemes import Float, Multiplier, Scheme

_IN_F32 = (FloatRule.F32_EVEN, FloatRule.F32_OFFSET)


@dataclass(frozen=True, slots=True)
class ZeroPoints:
    """Those of an element: of the input and of the output."""

    input: int
    output: int


def scale_by_factor(
    working: Working,
    scheme: Scheme,
    stage: Float,
    given: Multiplier,
    exact_factor: float,
    q: int,
    zeros: ZeroPoints,
    target: StoredOperand,
) -> Stored:
    """Add the steps from q to the output. `exact_factor`: the factor before it became a multiplier."""
    lane = F32 if stage.rule in _IN_F32 else F64
    steps = Precision((lane,))
    f = steps.of(stage.prepare(given).factor).value
    exact = scheme.represented(given)
    # TOSA's multipliers are rounded to f32; all others are exact in the type that is computed in.
    formula = "f32(m) * 2^-shift" if stage.precision is None else "m * 2^-shift"
    # Written as an f64, which is exact, so that factors of all schemes can be compared.
    working.float(StepKind.FACTOR, "f", formula, Rounded(f, None if Fraction(f) == exact else exact), F64)
    if stage.rule is FloatRule.F32_OFFSET:
        return _with_offset(working, f, exact_factor, q, zeros, target)
    v = working.integer(StepKind.SUBTRACT_ZERO_POINT, "v", "q - z_in", q - zeros.input)
    p = working.float(StepKind.MULTIPLY, "p", "v * f", steps.multiply(integer_as(working, "v", v, steps), f), lane)
    if stage.rule is FloatRule.F64_EVEN_OFFSET:
        w = working.float(StepKind.ADD_ZERO_POINT, "w", "p + z_out", steps.add(p, float(zeros.output)), lane)
        y = _rounded(working, "w", w, Rounding.NEAREST_EVEN)
        return clamp(working, "y", y, target.minimum, target.maximum)
    y = _rounded(working, "p", p, Rounding.NEAREST_AWAY if stage.rule is FloatRule.F64_AWAY else Rounding.NEAREST_EVEN)
    if isinstance(y, int):
        t: int | float = working.integer(StepKind.ADD_ZERO_POINT, "t", "y + z_out", y + zeros.output)
    else:
        t = y
        working.text(StepKind.ADD_ZERO_POINT, "t", "y + z_out", working.known("y"), INTEGER)
    return clamp(working, "t", t, target.minimum, target.maximum)


def _with_offset(
    working: Working, f: float, exact_factor: float, q: int, zeros: ZeroPoints, target: StoredOperand
) -> Stored:
    """Add the steps of f32(f32(q) * f) plus the zero points of both sides, merged into one number."""
    steps, wide = Precision((F32,)), Precision((F64,))
    working.know(ratio=float_text(exact_factor, F64))
    product = wide.multiply(float(zeros.input), exact_factor)
    total = wide.subtract(float(zeros.output), product.value)
    exact = Fraction(zeros.output) - zeros.input * Fraction(exact_factor)
    b = steps.of(total.value).value
    b = working.float(
        StepKind.OFFSET, "b", "f32(z_out - z_in * ratio)", Rounded(b, None if exact == Fraction(b) else exact), F32
    )
    p = working.float(StepKind.MULTIPLY, "p", "q * f", steps.multiply(integer_as(working, "q", q, steps), f), F32)
    w = working.float(StepKind.ADD_OFFSET, "w", "p + b", steps.add(p, b), F32)
    y = _rounded(working, "w", w, Rounding.NEAREST_EVEN)
    low, high = (steps.round(Fraction(bound)).value for bound in (target.minimum, target.maximum))
    return clamp(working, "y", y, max(int(low), target.lowest), min(int(high), target.highest))


def _rounded(working: Working, symbol: str, number: float, rounding: Rounding) -> int | float:
    formula = f"{'RNA' if rounding is Rounding.NEAREST_AWAY else 'RNE'}({symbol})"
    if math.isinf(number):
        working.text(StepKind.ROUND, "y", formula, working.known(symbol), INTEGER)
        return number
    exact = Fraction(number)
    return working.integer(StepKind.ROUND, "y", formula, round_to_integer(exact, rounding), exact=exact)


def clamp(working: Working, symbol: str, total: int | float, lowest: int, highest: int) -> Stored:
    """Add the last step of a requantization, and return what is stored."""
    working.know(lo=str(lowest), hi=str(highest))
    saturated: Saturation | None = beyond(total, lowest, highest)
    q = int(min(max(total, lowest), highest))
    return Stored(working.integer(StepKind.CLAMP, "q_out", f"clamp({symbol}, lo, hi)", q), saturated)
