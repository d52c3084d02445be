"""The exact formulas of dequantizations and of widening casts: all monotone, the products of small floats likewise.

q - z, perhaps wrapping in int32, times s, each step rounded to a float type: monotone between two wraps, for scales
above 0. The results are codes of floats, of so many that such a staircase is compared by thresholds only where there
are few inputs: those of all sub-byte and 8- and 16-bit storages. A table of values (`!quant.quantile`) is in any order,
and has no steps.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf

import numpy as np

from requant.convert.cast import CastPlan
from requant.convert.dequantize import GeneralPlan, NativePlan, SmallFloatPlan
from requant.equality.quantize_steps import FloatFormulas
from requant.equality.steps import Encoding, Steps, add, exactly, to_float
from requant.equality.steps import scale as times
from requant.formats.elements import FLOATS, FloatElement
from requant.formats.rules import Difference
from requant.kernels.scalar.rounding import Precision
from requant.plan.plan import Plan

_F32, _F64 = FLOATS["f32"], FLOATS["f64"]
_TYPES = {Precision.F16: FLOATS["f16"], Precision.BF16: FLOATS["bf16"]}


def dequantize_steps(plan: Plan, target: FloatElement) -> Steps | None:
    """Return the formula of a plan from stored integers to floats."""
    if not isinstance(plan, GeneralPlan | NativePlan):
        return None
    scale, zero = float(plan.scales[0]), int(plan.zero_points[0])
    if scale == 0 or not np.isfinite(scale):
        return None
    if isinstance(plan, GeneralPlan):
        difference, precision = list(Difference)[plan.difference], Precision(plan.steps)
    else:
        precision = plan.precision
        difference = Difference.FLOATS if plan.of_floats else Difference.INTEGER
        if plan.input_dtype.itemsize == 4:
            # Of 32 bits there are too many inputs for a staircase: they are all computed.
            return None
    computed = _F64 if target.name == "f64" else _F32
    stepped = _TYPES.get(precision, computed)
    exact = times(Fraction(scale))
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
    if isinstance(plan, SmallFloatPlan):
        scale = float(plan.scales[0])
        if scale == 0 or not np.isfinite(scale):
            return none
        steps = (*times(Fraction(scale)), *to_float(_F32))
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
