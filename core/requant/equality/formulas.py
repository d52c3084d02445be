"""The exact formulas of rules, as steps (`requant.equality.steps`): which of them are monotone, and why.

They are read from what a plan tells its kernel, so that there is one place that turns a profile's rule into numbers.
Where nothing is proven, there are no steps (None).

**Requantizations.** v = q - z_in rises with q, and each rule of `requant.kernels.convert.requantize.rules` is a chain
of monotone steps:

- NEAREST_UP: floor((v*m + 2^(s-1)) / 2^s) is one product and one rounding; NEAREST_AWAY, NEAREST_EVEN, FLOOR and ODD
  are the same with another rounding, none of which ever falls.
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

**Quantizations and casts to small floats.**

    x / s, x * r or fma(x, r, z);  rounded;  + z, rounded;  rounded to an integer;  + z;  clamped

With a scale, a reciprocal and so on above 0, as all types have them, x / s, x * r and fma rise with x, also rounded to
f32, f64, f16 or bf16, or twice; so do an addition, every rounding to an integer or a float that depends on nothing but
the number, and a clamp. Subnormal x that are taken for 0 never fall. So all of it is monotone; what is not are two ways
of overflow (`requant.formats.rules.Overflow`): INDEFINITE is -2^31 on both sides of int32, and the sum with the zero
point may wrap. They are monotone in pieces, as the steps say. UNDEFINED is an interval outside of which there is no
result.

Not monotone, or not proven to be, and without steps (None): stochastic rounding, whose result depends on the place of
an element; a factor of 0 or infinity, with which infinities and zeros become NaN; tables of values (quantiles), whose
codes are in any order; f8E8M0FNU, whose authorities disagree about signs; onnxruntime's slips, a hole in the staircase.

A NaN has no place in the order of numbers. To integers each gives the same, by the rule of the profile. To small floats
it may keep its highest mantissa bits, which the step `nan` says.

**Dequantizations and widening casts.** q - z, perhaps wrapping in int32, times s, each step rounded to a float type:
monotone between two wraps, for scales above 0. The results are codes of floats, of so many that such a staircase is
compared by thresholds only where there are few inputs: those of all sub-byte and 8- and 16-bit storages. A table of
values (`!quant.quantile`) is in any order, and has no steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np

from requant.convert import dequantize, quantize_plans
from requant.convert.cast import CastPlan
from requant.convert.float_encoding import Encoder, GeneralEncoder
from requant.convert.scaling import ScalingPlan, Sides, sum_rule
from requant.equality.steps import WAY_OF, Encoding, Steps, add, exactly, multiply, scale, to_float, within
from requant.formats.elements import FLOATS, FloatElement
from requant.formats.rounding import Rounding
from requant.formats.rules import Difference, Overflow, Quotient
from requant.kernels.convert.dequantize.native import DEQUANTIZE, Choice
from requant.kernels.convert.floats import encoding
from requant.kernels.convert.floats import general as cast_kernel
from requant.kernels.convert.quantize import general
from requant.kernels.convert.requantize import real_factor
from requant.kernels.convert.requantize.general import REQUANTIZE_FLOAT_ANY
from requant.kernels.convert.requantize.rules import FixedPointRule, FloatRule
from requant.kernels.scalar.rounding import Precision
from requant.plan.plan import Plan
from requant.schemes import FixedPoint, Float, Multiplier, Prepared, Sum
from requant.schemes.scheme import INT32, INT32_MAX, INT32_MIN, rounded_to_f32

_F32, _F64 = FLOATS["f32"], FLOATS["f64"]
_NUDGE = 1 << 30
_ONE_ROUNDING = {
    FixedPointRule.NEAREST_AWAY: "away",
    FixedPointRule.NEAREST_EVEN: "even",
    FixedPointRule.FLOOR: "floor",
    FixedPointRule.ODD: "odd",
}
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
    if rule in _ONE_ROUNDING:
        return (*multiply(m, 1 << s), ("integer", _ONE_ROUNDING[rule]))
    if rule is FixedPointRule.TOSA_DOUBLE and s > 31:
        # Of v and of v*m the sign decides alike: with m = 0 both ways round to 0.
        return (*multiply(m), ("nudge", _NUDGE), *_shifted(s, "up"))
    return (*multiply(m, 1 << s), ("integer", "up"))


def _fixed_point(stage: FixedPoint, multiplier: Multiplier, sides: Sides) -> Steps:
    prepared, target = stage.prepare(multiplier), sides.target
    steps = (*_value(sides, prepared.width), *product_steps(stage.rule, prepared))
    if stage.scaled is not None:
        steps += within(*stage.scaled)
    return (*steps, *_sum(stage, sides), ("clamp", target.minimum, target.maximum))


def _sum(stage: FixedPoint | Float, sides: Sides) -> Steps:
    """y + z_out."""
    total = sum_rule(stage, sides.target)
    wrapped: Steps = (("wrap", 32),) if total is Sum.WRAPS else ()
    return (*add(int(sides.zeros_out[0])), *(within(*INT32) if total is Sum.ERROR else wrapped))


def _value(sides: Sides, width: int) -> Steps:
    """v = q - z_in, which has to be of so many bits and a sign."""
    source, zero = sides.source, int(sides.zeros_in[0])
    return (*add(-zero), *_in_width(source.lowest - zero, source.highest - zero, width))


def _in_width(lowest: int, highest: int, width: int) -> Steps:
    """x, which has to be of so many bits and a sign, and lies between these."""
    bound = 1 << width
    return () if -bound <= lowest and highest < bound else within(-bound, bound - 1)


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
        # The zero point of the source is part of the offset.
        steps = (*_in_width(sides.source.lowest, sides.source.highest, prepared.width), *product)
        steps += (*add(Fraction(_offset(plan))), *to_float(element))
        return (*steps, ("integer", "even"), ("clamp", *near))
    steps = (*_value(sides, prepared.width), *product)
    if stage.rule is FloatRule.F64_EVEN_OFFSET:
        return (*steps, *add(zero_out), *to_float(element), ("integer", "even"), ("clamp", *bounds))
    steps += (("integer", "away" if stage.rule is FloatRule.F64_AWAY else "even"),)
    steps += () if stage.scaled is None else within(*stage.scaled)
    return (*steps, *_sum(stage, sides), ("clamp", *bounds))


def scheme_steps(plan: ScalingPlan) -> Steps:
    """Return the formula of a requantization by one multiplier, from a stored integer to a stored integer."""
    stage = plan.scheme.stage
    if isinstance(stage, FixedPoint):
        return _fixed_point(stage, plan.multipliers[0], plan.sides)
    return _float(stage, plan)


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
    flushes = isinstance(plan, quantize_plans.FlushingPlan)
    whole = plan.whole if isinstance(plan, quantize_plans.FlushingPlan) else plan
    if isinstance(whole, quantize_plans.NativePlan):
        # What the fast kernel computes is what the general one does; it leaves to it what it cannot.
        inner = whole.general()
        assert isinstance(inner, quantize_plans.GeneralPlan)
        whole = inner
    if isinstance(whole, quantize_plans.GeneralPlan):
        return _integers(whole, flushes)
    if isinstance(whole, quantize_plans.SmallFloatPlan):
        return _codes(whole.encoder, source, float(whole.factors[0]))
    if isinstance(whole, CastPlan) and isinstance(whole.encoder, Encoder):
        return _codes(whole.encoder, source, None)
    if isinstance(whole, CastPlan) and isinstance(whole.encoder, GeneralEncoder):
        return _rounded_codes(whole.encoder, source)
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


def _integers(plan: quantize_plans.GeneralPlan, flushes: bool) -> FloatFormulas:
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


def _overflow(plan: quantize_plans.GeneralPlan, overflow: Overflow) -> Steps:
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


def _rounded_codes(encoder: GeneralEncoder, source: FloatElement) -> FloatFormulas:
    field = {each: int(encoder.rules[each]) for each in cast_kernel.Field}
    if encoder.rounding not in WAY_OF:
        return FloatFormulas(None, (None, None))
    codes = Encoding(
        mantissa_bits=field[cast_kernel.Field.MANTISSA_BITS],
        bias=field[cast_kernel.Field.BIAS],
        sign_bit=field[cast_kernel.Field.SIGN_BIT],
        zero_sign=field[cast_kernel.Field.ZERO_SIGN],
        largest=field[cast_kernel.Field.LARGEST],
        overflow=field[cast_kernel.Field.OVERFLOW],
        infinity=field[cast_kernel.Field.INFINITY],
        other=(
            WAY_OF[encoder.rounding],
            field[cast_kernel.Field.NEGATIVE_OVERFLOW],
            field[cast_kernel.Field.NEGATIVE_INFINITY],
        ),
    )
    nans = field[cast_kernel.Field.NAN], field[cast_kernel.Field.NEGATIVE_NAN]
    if field[cast_kernel.Field.NAN_UNDEFINED]:
        return FloatFormulas(codes.steps, (_UNDEFINED, _UNDEFINED))
    assert field[cast_kernel.Field.NAN_PAYLOAD] == 0, "no profile with other roundings keeps payloads"
    without, negative = (("clamp", code, code) for code in nans)
    return FloatFormulas(codes.steps, ((without,), (negative,)))


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


def dequantize_steps(plan: Plan, target: FloatElement) -> Steps | None:
    """Return the formula of a plan from stored integers to floats."""
    if not isinstance(plan, dequantize.GeneralPlan | dequantize.NativePlan):
        return None
    factor, zero = float(plan.scales[0]), int(plan.zero_points[0])
    if factor == 0 or not np.isfinite(factor):
        return None
    if isinstance(plan, dequantize.GeneralPlan):
        difference, precision = list(Difference)[plan.difference], Precision(plan.steps)
    else:
        precision = Precision(plan.numbers[Choice.PRECISION])
        difference = Difference.FLOATS if plan.numbers[Choice.OF_FLOATS] else Difference.INTEGER
        if plan.kernel is DEQUANTIZE[True, 4].compiled():
            difference = Difference.DOUBLE
    computed = _F64 if target.name == "f64" else _F32
    stepped = _STEPPED.get(precision, computed)
    exact = scale(Fraction(factor))
    match difference:
        case Difference.INTEGER:
            steps = (*add(-zero), ("wrap", 32), *to_float(stepped), *exact, *_rounded(computed, stepped))
        case Difference.FLOATS | Difference.FLOATS_OF_F32:
            in_f32 = to_float(_F32) if difference is Difference.FLOATS_OF_F32 else ()
            taken = (*in_f32, *to_float(stepped))
            subtracted = exactly(taken, zero)
            if subtracted in (inf, -inf):
                return None
            rounded = _rounded(computed, stepped)
            steps = (*taken, *add(-Fraction(subtracted)), *rounded, *exact, *rounded)
        case Difference.DOUBLE:
            steps = (*add(-zero), *exact, *to_float(_F64), *to_float(computed))
        case _:
            return None
    return (*steps, *Encoding.ieee(target).steps)


def _rounded(computed: FloatElement, stepped: FloatElement) -> Steps:
    return (*to_float(computed), *(to_float(stepped) if stepped is not computed else ()))


def widening_formulas(plan: Plan, source: FloatElement) -> FloatFormulas:
    """Return the formulas of a plan from small floats to wider ones: exact, or times a scale."""
    target = plan.output_type.element
    none = FloatFormulas(None, (None, None))
    if not isinstance(target, FloatElement):
        return none
    steps: Steps = ()
    if isinstance(plan, dequantize.SmallFloatPlan):
        factor = float(plan.scales[0])
        if factor == 0 or not np.isfinite(factor):
            return none
        steps = (*scale(Fraction(factor)), *to_float(_F32))
        steps += (("add", 0, 1),) if plan.adds_zero else ()
    elif not isinstance(plan, CastPlan) or plan.encoder is not None:
        return none
    encoded = Encoding.ieee(target)
    payload = source.name in ("f16", "bf16")
    quiet = 1 << (target.mantissa_bits - 1)
    # bf16 are shifted, and all of a NaN is kept; elsewhere a signalling one becomes quiet.
    kept = source.name == "bf16" and target.name == "f32" and not steps
    mask = (1 << target.mantissa_bits) - 1 if payload else 0
    bits = encoded.infinity | (0 if kept else quiet)
    shift = target.mantissa_bits - source.mantissa_bits
    nans = tuple((("nan", max(shift, 0), max(-shift, 0), mask, bits, 0, sign),) for sign in (0, encoded.sign_bit))
    return FloatFormulas((*steps, *encoded.steps), (nans[0], nans[1]))
