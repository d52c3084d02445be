"""What a scheme is made of: from a real factor to an integer multiplier and shift, and how kernels apply them.

Factors may come as text, decimal or C99 hexadecimal, which is read to the nearest double.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from ctypes import c_float
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.errors import ParameterError, excerpt
from requant.formats.rounding import Rounding
from requant.kernels.convert.requantize.rules import FixedPointRule, FloatRule, Requirement

F32_BITS, F64_BITS = 24, 53


def round_half_away(numerator: int, power: int) -> int:
    """RNA(numerator / 2^power); power >= 1."""
    magnitude = (abs(numerator) + (1 << (power - 1))) >> power
    return -magnitude if numerator < 0 else magnitude


def significand(factor: float, bits: int) -> tuple[int, int]:
    """Return (m, e) with factor ~ m * 2^(e - bits), m = RNA(f * 2^bits), f in [0.5, 1); m can be 2^bits. bits < 53.

    `f * 2^53` is an integer, so nothing is lost before.
    """
    fraction, exponent = math.frexp(factor)
    return round_half_away(int(math.ldexp(fraction, 53)), 53 - bits), exponent


def normalized(factor: float, bits: int) -> tuple[int, int]:
    """The same with m renormalized to 2^(bits-1) when it rounds up to 2^bits. -2^bits stays."""
    multiplier, exponent = significand(factor, bits)
    if multiplier == 1 << bits:
        return multiplier >> 1, exponent + 1
    return multiplier, exponent


def exact(factor: float, bits: int) -> tuple[int, int]:
    """Return (m, s) with factor = m * 2^-s, |m| in [2^(bits-1), 2^bits), or (0, 0). The factor has at most `bits`."""
    fraction, exponent = math.frexp(factor)
    return (int(math.ldexp(fraction, bits)), bits - exponent) if factor else (0, 0)


def rounded_to_f32(factor: float) -> float:
    """f32(factor), which may be infinite. numpy would warn of that, and to silence it takes ten times as long."""
    return c_float(factor).value


def as_f32(factor: float) -> float:
    """f32(factor). Raise ParameterError where that is infinite."""
    rounded = rounded_to_f32(factor)
    if not math.isfinite(rounded):
        raise ParameterError(f"{factor!r} is larger than the largest f32, which the scheme computes with")
    return rounded


_LONGEST = 128
# Every alternative begins with another character or is a prefix-free repetition, so matching is linear.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?", re.ASCII)


def parse_factor(text: str) -> float:
    """Return the f64 nearest to the number in `text` (RNE). Raise ParameterError if it is none, or not finite."""
    if len(text) > _LONGEST:
        raise ParameterError(f"a factor may have at most {_LONGEST} characters; this one has {len(text)}")
    try:
        if _DECIMAL.fullmatch(text):
            value = float(text)
        elif _HEXADECIMAL.fullmatch(text):
            value = float.fromhex(text)
        else:
            raise ParameterError(
                f"'{excerpt(text)}' is not a number; expected decimal text such as 0.0123 or 1e-3, "
                "or a C99 hexadecimal float such as 0x1.8p-5"
            )
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ParameterError(f"'{excerpt(text)}' is larger than the largest double")
    return value


INT32_MIN = -(1 << 31)
INT32_MAX = (1 << 31) - 1
INT32 = (INT32_MIN, INT32_MAX)


@dataclass(frozen=True, slots=True)
class Multiplier:
    """An integer multiplier and a shift, in the sign convention of their scheme."""

    multiplier: int
    shift: int


class Factor(StrEnum):
    """How a scheme forms its factor from an input scale, perhaps another scale such as the weight's, and an output
    scale. Without another scale the product is left out."""

    F64_OF_F32 = "f64(f32(input)) * f64(f32(weight)) / f64(f32(output))"
    F64_OF_F32_PRODUCT = "f64(f32(f32(input) * f32(weight))) / f64(f32(output))"
    F64 = "f64(input) * f64(weight) / f64(output)"
    F32 = "f32(f32(f32(input) * f32(weight)) / f32(output))"
    F16 = "f16(f16(f16(input) * f16(weight)) / f16(output))"
    BF16 = "bf16(bf16(bf16(input) * bf16(weight)) / bf16(output))"

    def of(self, scale_in: float, weight: float | None, scale_out: float) -> float:
        """Return the factor, an f64. Steps may overflow to infinity, as the systems' do; derivations refuse that."""
        weights = None if weight is None else np.array([weight])
        return self.of_each(np.array([scale_in]), weights, np.array([scale_out]))[0]

    def of_each(
        self, inputs: NDArray[np.float64], weights: NDArray[np.float64] | None, outputs: NDArray[np.float64]
    ) -> list[float]:
        """Return the factor of each index. See `of`."""
        kind: Any = _KINDS.get(self, np.float32)
        step = np.float64 if self in (Factor.F64, Factor.F64_OF_F32) else kind
        with np.errstate(all="ignore"):
            product = inputs.astype(kind).astype(step)
            if weights is not None:
                product = product * weights.astype(kind).astype(step)
            divide = np.float64 if self is Factor.F64_OF_F32_PRODUCT else step
            factors = product.astype(divide) / outputs.astype(kind).astype(divide)
            numbers: list[float] = factors.astype(np.float64).tolist()
            return numbers


_KINDS = {Factor.F64: np.float64, Factor.F16: np.float16, Factor.BF16: ml_dtypes.bfloat16}
"""What scales are taken as, where that is not f32."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One multiplier as a fixed-point kernel takes it: y = multiply(v, multiplier, shift), the shift to the right.

    v has `width` bits and a sign.
    """

    multiplier: int
    shift: int
    width: int


class Sum(StrEnum):
    """What becomes of y + z_out where it does not fit int32."""

    WRAPS = "wraps"
    ERROR = "error"
    EXACT = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPoint:
    """Application by a rule of `requant.kernels.convert.requantize.rules`.

    `scaled`: bounds of y. `demands`: each requirement in words.
    """

    rule: FixedPointRule
    prepare: Callable[[Multiplier], Prepared]
    scaled: tuple[int, int] | None = None
    total: Sum = Sum.EXACT
    demands: dict[Requirement, str]


@dataclass(frozen=True, slots=True)
class PreparedFactor:
    """One multiplier as a float kernel takes it: y = round(f(v) * factor), v of `width` bits and a sign."""

    factor: float
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Float:
    """Application by a rule of `requant.kernels.convert.requantize.rules`. `scaled`: bounds of y.

    `precision`: the type that the factor has to be exact in, if any. `demands`: each requirement in words.
    """

    rule: FloatRule
    prepare: Callable[[Multiplier], PreparedFactor]
    precision: type[np.float32] | type[np.float64] | None
    scaled: tuple[int, int] | None = None
    total: Sum = Sum.EXACT
    demands: dict[Requirement, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A way to derive multipliers, and to multiply by them.

    `derivation` says how multiplier m and shift come from a factor d, `convention` what they stand for, and `formula`
    what is made of v = q - z_in before it is clamped, with the names that `where` defines. `right_shift(shift)` is the
    s of m * 2^-s. `reduced(m)` is what the scheme multiplies by where that is not m. `multipliers` and `shifts` are the
    bounds of what the scheme is defined for.
    """

    name: str
    summary: str
    source: str
    convention: str
    formula: str
    where: str = ""
    rounding: Rounding
    factor: Factor
    derivation: str
    multiplier_of: Callable[[float], Multiplier]
    right_shift: Callable[[int], int]
    multipliers: tuple[int, int]
    shifts: tuple[int, int]
    stage: FixedPoint | Float
    reduced: Callable[[Multiplier], Multiplier] | None = None

    def derive(self, factor: float) -> Multiplier:
        """Return the multiplier and shift for a factor. Raise ParameterError where the scheme has none."""
        if not math.isfinite(factor):
            raise ParameterError("the factor is not finite")
        return self.multiplier_of(factor)

    def derive_checked(self, factor: float) -> Multiplier:
        """The same. Raise ParameterError, too, where the scheme is not defined for what it derives."""
        multiplier = self.derive(factor)
        self.check(multiplier)
        return multiplier

    def represented(self, multiplier: Multiplier) -> Fraction:
        """The exact real value that a multiplier and shift stand for."""
        used = multiplier if self.reduced is None else self.reduced(multiplier)
        shift = self.right_shift(used.shift)
        return Fraction(used.multiplier << max(-shift, 0), 1 << max(shift, 0))

    def _represents(self, multiplier: Multiplier, factor: float) -> bool:
        """Return whether a multiplier and shift stand for exactly that: n / d = m * 2^-s, multiplied out."""
        used = multiplier if self.reduced is None else self.reduced(multiplier)
        shift, (numerator, denominator) = self.right_shift(used.shift), factor.as_integer_ratio()
        return numerator << max(shift, 0) == (used.multiplier * denominator) << max(-shift, 0)

    def check(self, multiplier: Multiplier) -> None:
        """Raise ParameterError for a multiplier or shift that the scheme is not defined for."""
        for name, value, (lowest, highest) in (
            ("multiplier", multiplier.multiplier, self.multipliers),
            ("shift", multiplier.shift, self.shifts),
        ):
            if not lowest <= value <= highest:
                raise ParameterError(f"{name} {value} is outside {lowest} to {highest}", pointer=f"/{name}")
        if isinstance(self.stage, Float) and self.stage.precision is not None:
            factor = self.stage.prepare(multiplier).factor
            if self.stage.precision is np.float32:
                factor = rounded_to_f32(factor)
            if not math.isfinite(factor) or not self._represents(multiplier, factor):
                raise ParameterError(
                    f"multiplier {multiplier.multiplier} with shift {multiplier.shift} is no "
                    f"{self.stage.precision.__name__}, which the scheme computes with",
                    pointer="/multiplier",
                )
