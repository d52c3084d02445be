"""The exact formulas of quantizations and of casts to small floats, and for which of them they are monotone.

They are read from what the plan tells its kernel, so that there is one place that turns a profile's rule into numbers.

    x / s, x * r or fma(x, r, z);  rounded;  + z, rounded;  rounded to an integer;  + z;  clamped

With a scale, a reciprocal and so on above 0, as all types have them, x / s, x * r and fma rise with x, also rounded to
f32, f64, f16 or bf16, or twice; so do an addition, every rounding to an integer that depends on nothing but the number,
and a clamp. Subnormal x that are taken for 0 never fall. So all of it is monotone; what is not are two ways of overflow
(`requant.formats.rules.Overflow`): INDEFINITE is -2^31 on both sides of int32, and the sum with the zero point may
wrap. They are monotone in pieces, as the steps say. UNDEFINED is an interval outside of which there is no result.

Not monotone, or not proven to be, and without steps (None): stochastic rounding, whose result depends on the place of
an element; a factor of 0 or infinity, with which infinities and zeros become NaN; tables of values (quantiles), whose
codes are in any order; f8E8M0FNU, whose authorities disagree about signs; onnxruntime's slips, a hole in the staircase.

A NaN has no place in the order of numbers. To integers each gives the same, by the rule of the profile. To small floats
it may keep its highest mantissa bits, which the step `nan` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from requant.convert.cast import CastPlan
from requant.convert.float_encoding import Encoder
from requant.convert.quantize_plans import FlushingPlan, GeneralPlan, NativePlan, SmallFloatPlan
from requant.equality.steps import WAY_OF, Encoding, Steps, add, scale, to_float, within
from requant.formats.elements import FLOATS, FloatElement
from requant.formats.rounding import Rounding
from requant.formats.rules import Overflow, Quotient
from requant.kernels.convert.floats import encoding
from requant.kernels.convert.quantize import general
from requant.kernels.scalar.rounding import Precision
from requant.plan.plan import Plan
from requant.schemes.scheme import INT32, INT32_MAX, INT32_MIN

_F32, _F64 = FLOATS["f32"], FLOATS["f64"]
_STEPPED = {Precision.F16: FLOATS["f16"], Precision.BF16: FLOATS["bf16"]}
_LARGEST_F32_IN_INT32 = (1 << 31) - 128
_UNDEFINED: Steps = (("within", 0, -1, None),)


@dataclass(frozen=True, slots=True)
class FloatFormulas:
    """The formulas of one rule of floats: from their values, and from the mantissa bits of a NaN, one for each sign.

    None, where nothing is proven.
    """

    numbers: Steps | None
    nans: tuple[Steps | None, Steps | None]


def quantize_formulas(plan: Plan, source: FloatElement) -> FloatFormulas:
    """Return the formulas of a plan from floats to integers or to codes of floats."""
    flushes = isinstance(plan, FlushingPlan)
    whole = plan.whole if isinstance(plan, FlushingPlan) else plan
    if isinstance(whole, NativePlan):
        # What the fast kernel computes is what the general one does; it leaves to it what it cannot.
        inner = whole.general()
        assert isinstance(inner, GeneralPlan)
        whole = inner
    if isinstance(whole, GeneralPlan):
        return _integers(whole, flushes)
    if isinstance(whole, SmallFloatPlan):
        return _codes(whole.encoder, source, float(whole.factors[0]))
    if isinstance(whole, CastPlan) and isinstance(whole.encoder, Encoder):
        return _codes(whole.encoder, source, None)
    return FloatFormulas(None, (None, None))


def _quotient(divides: bool, factor: float) -> Steps | None:
    """x / factor or x * factor, exactly; None where that is NaN for some x."""
    if factor == 0 or not np.isfinite(factor):
        return None
    exact = Fraction(factor)
    return scale(1 / exact if divides else exact)


def _stepped(computed: FloatElement, precision: int) -> Steps:
    """Rounded to what is computed in, and then to the type of the steps."""
    narrower = _STEPPED.get(Precision(precision))
    return (*to_float(computed), *(() if narrower is None else to_float(narrower)))


def _integers(plan: GeneralPlan, flushes: bool) -> FloatFormulas:
    rules = plan.rules
    stored_nan = int(plan.nans[0])
    nan: Steps = _UNDEFINED if rules[general.Field.NAN_UNDEFINED] else (("clamp", stored_nan, stored_nan),)
    rounding = list(Rounding)[int(rules[general.Field.ROUNDING])]
    quotient = list(Quotient)[int(rules[general.Field.QUOTIENT])]
    scaled = _quotient(quotient is Quotient.DIVISION, float(plan.factors[0]))
    addend = float(plan.addends[0])
    if rounding not in WAY_OF or scaled is None or not np.isfinite(addend):
        return FloatFormulas(None, (nan, nan))
    computed = _F64 if plan.compute_dtype == "<f8" else _F32
    rounded = _stepped(computed, int(rules[general.Field.PRECISION]))
    addition = general.Addition(int(rules[general.Field.ADDITION]))
    exact = add(Fraction(addend))
    steps: Steps = (("flush", 1, 1 << 126),) if flushes else ()
    if quotient is Quotient.FUSED:
        steps += (*scaled, *exact, *to_float(computed))
    else:
        steps += (*scaled, *rounded)
    if addition is general.Addition.BEFORE:
        steps += (*exact, *rounded)
    steps += (("integer", WAY_OF[rounding]),)
    if addition is general.Addition.AFTER:
        steps += (*exact, *to_float(computed))
    steps += _overflow(plan, list(Overflow)[int(rules[general.Field.OVERFLOW])])
    return FloatFormulas(steps, (nan, nan))


def _overflow(plan: GeneralPlan, overflow: Overflow) -> Steps:
    """From a number rounded to an integer to what is stored."""
    _, _, first, last, lowest, highest, *_ = (int(bound) for bound in plan.bounds)
    zero = add(int(plan.zero_points[0]))
    stored: Steps = (("clamp", first, last),)
    match overflow:
        case Overflow.INDEFINITE:
            return (*within(*INT32, INT32_MIN), *zero, ("wrap", 32), *stored)
        case Overflow.INDEFINITE_BELOW:
            return (("clamp", INT32_MIN, _LARGEST_F32_IN_INT32), *zero, ("wrap", 32), *stored)
        case Overflow.UNDEFINED:
            return (*zero, *within(lowest, highest), *stored)
        case Overflow.FLOAT_CLAMP:
            # Only bounds of 32 bits, rounded to f32, reach beyond int32.
            return (*zero, *stored, *(within(*INT32, INT32_MIN) if last > INT32_MAX else ()))
    return (*zero, *stored)


def _codes(encoder: Encoder, source: FloatElement, factor: float | None) -> FloatFormulas:
    field = {each: int(encoder.rules[each]) for each in encoding.Field}
    in_f64 = encoder.compute_dtype == "<f8"
    computed = _F64 if in_f64 else _F32
    format_ = FLOATS[encoder.target]
    steps: Steps = to_float(_F32) if source.name == "f64" and not in_f64 else ()
    scaling = encoding.Scaling(field[encoding.Field.SCALING])
    scaled: Steps | None = ()
    if scaling is not encoding.Scaling.NONE:
        assert factor is not None
        scaled = _quotient(scaling is encoding.Scaling.DIVISION, factor)
        steps += () if scaled is None else (*scaled, *to_float(computed))
    stepped = _STEPPED.get(Precision(field[encoding.Field.PRECISION]))
    steps += () if stepped is None else to_float(stepped)
    through_f16 = bool(field[encoding.Field.THROUGH_F16])
    if field[encoding.Field.ADDS_ZERO] or through_f16:
        steps += (("add", 0, 1),)
    if through_f16:
        steps += to_float(FLOATS["f16"])
    codes = Encoding(
        mantissa_bits=field[encoding.Field.MANTISSA_BITS],
        bias=field[encoding.Field.BIAS],
        sign_bit=field[encoding.Field.SIGN_BIT],
        zero_sign=field[encoding.Field.ZERO_SIGN],
        largest=format_.largest_code,
        overflow=field[encoding.Field.OVERFLOW],
        infinity=field[encoding.Field.INFINITY],
    )
    slips = field[encoding.Field.SLIP_FROM] < field[encoding.Field.SLIP_TO]
    numbers = None if slips or scaled is None else (*steps, *codes.steps)
    # A signalling NaN becomes a quiet one wherever something is computed with it.
    quieted = source.name == "f16" or len(steps) > 0
    return FloatFormulas(numbers, (_nan(field, source, 0, quieted), _nan(field, source, 1, quieted)))


def _nan(field: dict[encoding.Field, int], source: FloatElement, negative: int, quieted: bool) -> Steps:
    if field[encoding.Field.NAN_UNDEFINED]:
        return _UNDEFINED
    mantissa_bits, payload = field[encoding.Field.MANTISSA_BITS], field[encoding.Field.NAN_PAYLOAD]
    sign = (field[encoding.Field.NAN_SIGN] if negative else 0) ^ field[encoding.Field.NAN_FLIP]
    # Floats of at most 8 bits are decoded to a quiet NaN without a payload.
    short = source.width <= 8
    bits = field[encoding.Field.NAN] | ((1 << mantissa_bits >> 1 & payload) if quieted or short else 0)
    shift = mantissa_bits - source.mantissa_bits
    mask = 0 if short else payload
    return (("nan", max(shift, 0), max(-shift, 0), mask, bits, field[encoding.Field.SMALLEST_NAN], sign),)
