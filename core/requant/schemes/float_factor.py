"""What the schemes that multiply by a float share: the float itself, stated as an integer and a right shift."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FloatRule, Requirement
from requant.schemes.scheme import F32_BITS, F64_BITS, Factor, Float, Multiplier, PreparedFactor, Scheme, as_f32, exact

CONVENTION = "m * 2^-shift"
F32_MULTIPLIERS = (1 - (1 << F32_BITS), (1 << F32_BITS) - 1)
F32_SHIFTS = (-104, 172)
"""From the largest f32, (2^24 - 1) * 2^104, to the smallest, 2^-149 = 2^23 * 2^-172."""
F64_MULTIPLIERS = (1 - (1 << F64_BITS), (1 << F64_BITS) - 1)
F64_SHIFTS = (-971, 1126)
"""From the largest f64, (2^53 - 1) * 2^971, to the smallest, 2^-1074 = 2^52 * 2^-1126."""

# Any int64 but the outermost.
WIDTH = 62
DEMANDS = {Requirement.VALUE: "the input minus its zero point must lie in [-2^62, 2^62)"}


def of_f32(factor: float) -> Multiplier:
    """f32(factor), as an integer of 24 bits and a right shift."""
    return Multiplier(*exact(as_f32(factor), F32_BITS))


def of_f64(factor: float) -> Multiplier:
    """The factor, as an integer of 53 bits and a right shift."""
    return Multiplier(*exact(factor, F64_BITS))


def right_shift(shift: int) -> int:
    """The shift is a right shift."""
    return shift


def prepare(multiplier: Multiplier) -> PreparedFactor:
    """m * 2^-shift, for v of any size."""
    return PreparedFactor(math.ldexp(multiplier.multiplier, -multiplier.shift), WIDTH)


def f32_stage(rule: FloatRule) -> Float:
    """A stage whose factor is an f32, for v of any size."""
    return Float(rule=rule, prepare=prepare, precision=np.float32, demands=DEMANDS)


def f32_product(**more: Any) -> Scheme:
    """Return a scheme of one product in f32, ties to even: RNE(f32(f32(v) * f32(d))) + z_out.

    `more` are fields of Scheme: its name, summary and source, and what it has otherwise.
    """
    fields: dict[str, Any] = {
        "derivation": "m of 24 bits and shift with f32(d) = m * 2^-shift exactly",
        "convention": CONVENTION,
        "formula": "RNE(f32(f32(v) * f)) + z_out",
        "where": "f the f32 m * 2^-shift",
        "rounding": Rounding.NEAREST_EVEN,
        "factor": Factor.F32,
        "multiplier_of": of_f32,
        "right_shift": right_shift,
        "multipliers": F32_MULTIPLIERS,
        "shifts": F32_SHIFTS,
        "stage": f32_stage(FloatRule.F32_EVEN),
    }
    return Scheme(**(fields | more))
