"""Single operations on floats: the exact result, and the number that it is rounded to.

Floats are Python's: f64 holds every number of f16, bf16, f32 and f64. Exact results are fractions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from requant.formats.elements import FLOATS, FloatElement
from requant.formats.float_format import round_exactly
from requant.formats.rounding import Rounding

F16, BF16, F32, F64 = (FLOATS[name] for name in ("f16", "bf16", "f32", "f64"))
_TIE = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Rounded:
    """The result of an operation. `exact` is the result before rounding, if that is another number than `value`.

    `through` names the wider type that it was rounded to first, if `value` would be another number otherwise.
    """

    value: float
    exact: Fraction | None = None
    through: str | None = None


@dataclass(frozen=True, slots=True)
class Precision:
    """The type that each operation is rounded to: the last of `elements`, after those before it.

    f16 and bf16 are computed by way of f32. Overflow gives infinity.
    """

    elements: tuple[FloatElement, ...]

    @property
    def element(self) -> FloatElement:
        """The type of the results."""
        return self.elements[-1]

    def round(self, exact: Fraction, *, negative: bool = False) -> Rounded:
        """Round (RNE) an exact number. `negative`: the sign of a zero."""
        value: Fraction | float = exact
        for element in self.elements:
            value = _rounded(Fraction(value), element)
            if math.isinf(value):
                break
        nearest = float(value)
        if nearest == 0.0:
            nearest = -0.0 if negative or exact < 0 else 0.0
        if math.isfinite(nearest) and nearest == exact:
            return Rounded(nearest)
        twice = len(self.elements) > 1 and _rounded(exact, self.element) != nearest
        return Rounded(nearest, exact, self.elements[0].name if twice else None)

    def of(self, number: float) -> Rounded:
        """Round a float."""
        if not math.isfinite(number):
            return Rounded(number)
        return self.round(Fraction(number), negative=math.copysign(1.0, number) < 0)

    def divide(self, a: float, b: float) -> Rounded:
        """a / b."""
        if not (math.isfinite(a) and math.isfinite(b)) or b == 0.0:
            return Rounded(_by_hardware(np.divide, a, b))
        return self.round(Fraction(a) / Fraction(b), negative=_negative(a) != _negative(b))

    def multiply(self, a: float, b: float) -> Rounded:
        """a * b."""
        if not (math.isfinite(a) and math.isfinite(b)):
            return Rounded(_by_hardware(np.multiply, a, b))
        return self.round(Fraction(a) * Fraction(b), negative=_negative(a) != _negative(b))

    def add(self, a: float, b: float) -> Rounded:
        """a + b."""
        if not (math.isfinite(a) and math.isfinite(b)):
            return Rounded(_by_hardware(np.add, a, b))
        return self.round(Fraction(a) + Fraction(b), negative=_negative(a) and _negative(b))

    def subtract(self, a: float, b: float) -> Rounded:
        """a - b."""
        return self.add(a, -b)

    def multiply_add(self, a: float, b: float, c: float) -> Rounded:
        """a * b + c, rounded once."""
        if not all(map(math.isfinite, (a, b, c))):
            return Rounded(_by_hardware(np.add, _by_hardware(np.multiply, a, b), c))
        negative_product = _negative(a) != _negative(b)
        return self.round(Fraction(a) * Fraction(b) + Fraction(c), negative=negative_product and _negative(c))


def precision(*elements: FloatElement) -> Precision:
    """Return the precision of a type: f16 and bf16 by way of f32."""
    last = elements[-1]
    if len(elements) == 1 and last in (F16, BF16):
        return Precision((F32, last))
    return Precision(elements)


def _negative(number: float) -> bool:
    return math.copysign(1.0, number) < 0


def _by_hardware(operation: np.ufunc, a: float, b: float) -> float:
    """Return the result for infinities and NaN as the processor computes it, sign included."""
    with np.errstate(all="ignore"):
        return float(operation(np.float64(a), np.float64(b)))


def _rounded(exact: Fraction, element: FloatElement) -> Fraction | float:
    nearest = round_exactly(exact, element)
    if abs(nearest) > Fraction(element.largest):
        return math.inf if nearest > 0 else -math.inf
    return nearest


def signed_zero(value: float) -> Rounded:
    """Return `value` + 0, which differs from `value` only in the sign of a zero."""
    return Rounded(value + 0.0)


@dataclass(frozen=True, slots=True)
class Draw:
    """The 32 bits that stochastic rounding draws for an element: SplitMix64's finalizer, applied to a counter."""

    bits: int

    @classmethod
    def of(cls, seed: int, index: int) -> Draw:
        """Return those of element `index` of a tensor."""
        mask = (1 << 64) - 1
        z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return cls((z ^ (z >> 31)) >> 32)

    @property
    def fraction(self) -> Fraction:
        """The bits as a number in [0, 1)."""
        return Fraction(self.bits, 1 << 32)

    def highest(self, count: int) -> int:
        """Return the highest `count` bits, as an integer."""
        return self.bits >> (32 - count)


def round_to_integer(number: Fraction, rounding: Rounding, draw: Draw | None = None) -> int:
    """Return the integer that a number is rounded to. `draw`: for stochastic rounding."""
    below = math.floor(number)
    distance = number - below
    match rounding:
        case Rounding.NEAREST_EVEN:
            return round(number)
        case Rounding.NEAREST_AWAY:
            return -math.floor(-number + _TIE) if number < 0 else math.floor(number + _TIE)
        case Rounding.NEAREST_UP:
            return math.floor(number + _TIE)
        case Rounding.NEAREST_DOWN:
            return math.ceil(number - _TIE)
        case Rounding.TOWARD_ZERO:
            return math.trunc(number)
        case Rounding.FLOOR:
            return below
        case Rounding.CEILING:
            return math.ceil(number)
        case Rounding.ODD:
            return below if distance == 0 or below % 2 else below + 1
        case Rounding.STOCHASTIC if draw is not None:
            return below + (draw.fraction < distance)
    raise ValueError(f"not a rounding to an integer: {rounding}")


def is_tie(number: Fraction) -> bool:
    """Return whether a number lies halfway between two integers."""
    return number.denominator == 2


def wrap_int32(number: int) -> int:
    """Return an integer modulo 2^32, as an int32."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
