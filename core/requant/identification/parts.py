"""The parts that rules are made of, and rules put together from them.

They are computed by numpy in exact integers or IEEE arithmetic, apart from the kernels, so that rules which no profile
has can be tried. A rule says itself as formulas, with the symbols of the explanations: x is real, q stored, s a scale,
z a zero point, f the factor of two scales, m and r a multiplier and a right shift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Protocol

import numpy as np

from requant.description import Array
from requant.formats.rounding import Rounding
from requant.schemes import Factor


class Precision(StrEnum):
    """What a step in floats is rounded to."""

    F32 = "f32"
    F64 = "f64"

    def of(self, numbers: Array) -> Array:
        """Return numbers in this precision."""
        converted: Array = numbers.astype(np.float32 if self is Precision.F32 else np.float64)
        return converted


def _nearest(numbers: Array, tie: Callable[[Array], Array]) -> Array:
    """Return the nearest integers. `tie`: what the lower of two at the same distance becomes."""
    lower = np.floor(numbers)
    beyond = numbers - lower
    return np.where(beyond > 0.5, lower + 1, np.where(beyond < 0.5, lower, tie(lower)))


_FLOAT_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    Rounding.NEAREST_EVEN: np.rint,
    Rounding.NEAREST_AWAY: lambda v: _nearest(v, lambda lower: np.where(lower < 0, lower, lower + 1)),
    Rounding.NEAREST_UP: lambda v: _nearest(v, lambda lower: lower + 1),
    Rounding.NEAREST_DOWN: lambda v: _nearest(v, lambda lower: lower),
    Rounding.TOWARD_ZERO: np.trunc,
    Rounding.FLOOR: np.floor,
    Rounding.CEILING: np.ceil,
    # The sum is rounded too, in the precision of v.
    "trunc(v + copysign(0.5, v))": lambda v: np.trunc(v + np.copysign(v.dtype.type(0.5), v)),
    "floor(v + 0.5)": lambda v: np.floor(v + v.dtype.type(0.5)),
}


def _shifted(numbers: Array, shift: Array, rounding: Rounding) -> Array:
    """Return numbers / 2^shift as integers, of int64 that hold the sum with a half. A shift of 0 changes nothing."""
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    whole = (np.int64(1) << shift) - 1
    negative = numbers < 0
    added: Array
    match rounding:
        case Rounding.FLOOR:
            added = np.zeros_like(half)
        case Rounding.CEILING:
            added = whole
        case Rounding.TOWARD_ZERO:
            added = np.where(negative, whole, 0)
        case Rounding.NEAREST_UP:
            added = half
        case Rounding.NEAREST_DOWN:
            added = np.maximum(half - 1, 0)
        case Rounding.NEAREST_AWAY:
            added = np.maximum(half - negative, 0)
        case _:
            odd = (numbers >> shift) & 1
            added = np.maximum(half - 1 + odd, 0)
    shifted: Array = (numbers + added) >> shift
    return shifted


INTEGER_ROUNDINGS = (
    Rounding.NEAREST_UP,
    Rounding.NEAREST_AWAY,
    Rounding.NEAREST_EVEN,
    Rounding.NEAREST_DOWN,
    Rounding.FLOOR,
    Rounding.TOWARD_ZERO,
    Rounding.CEILING,
)


@dataclass(frozen=True, slots=True)
class Stored:
    """Elements of a call that decide, one entry each: what goes in, and the parameters of both sides.

    `inputs`: reals, f32 or f64, or stored integers as int64. `scales`, `weights`: of the input, and of a second operand
    where there is one. `factors` returns those that `Factor` forms.
    """

    inputs: Array
    output_scales: Array
    output_zero_points: Array
    scales: Array | None = None
    weights: Array | None = None
    zero_points: Array | None = None
    _factors: dict[Factor, Array] = field(default_factory=dict, compare=False, repr=False)

    def arrays(self) -> dict[str, Array | None]:
        """Return all that there is of each element, by its name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "_factors"}

    @property
    def exact(self) -> Array:
        """The results before rounding and without the zero point, about."""
        real = np.asarray(self.inputs, np.float64)
        with np.errstate(all="ignore"):
            if self.scales is not None:
                weights = 1.0 if self.weights is None else self.weights
                real = (real - (0 if self.zero_points is None else self.zero_points)) * (self.scales * weights)
            exact: Array = real / self.output_scales
        return exact

    def factors(self, factor: Factor) -> Array:
        """Return the factor of each element, as f64."""
        if factor not in self._factors:
            self._factors[factor] = self._made(factor)
        return self._factors[factor]

    def _made(self, factor: Factor) -> Array:
        assert self.scales is not None
        columns = [self.scales, self.output_scales if self.weights is None else self.weights, self.output_scales]
        if all(each.size and (each == each[0]).all() for each in columns):
            # Sorting the elements to find this takes a hundred times as long.
            distinct, places = np.stack([each[:1] for each in columns]), np.zeros(columns[0].size, np.intp)
        else:
            distinct, places = np.unique(np.stack(columns), axis=1, return_inverse=True)
        middle = None if self.weights is None else distinct[1]
        found: Array = np.array(factor.of_each(distinct[0], middle, distinct[2]), np.float64)[places.reshape(-1)]
        return found


class Scaling(Protocol):
    """How an element becomes an integer: everything before bounds."""

    @property
    def formulas(self) -> Sequence[str]:
        """The steps, each `symbol = formula`."""

    def compute(self, stored: Stored) -> Array:
        """Return the integers, with the zero point of the output, as f64 or int64."""


@dataclass(frozen=True, slots=True)
class FloatRounding:
    """The end of a rule in floats: v becomes an integer, and the zero point is added before or after."""

    precision: Precision
    rounding: str
    zero_point_first: bool

    def compute(self, values: Array, zero_points: Array) -> Array:
        """Return the integers of `values`, which are of this precision."""
        rounded = _FLOAT_ROUNDINGS[self.rounding]
        with np.errstate(all="ignore"):
            if self.zero_point_first:
                return rounded(values + self.precision.of(zero_points)).astype(np.float64)
            return rounded(values).astype(np.float64) + zero_points

    @property
    def formulas(self) -> list[str]:
        """The steps."""
        steps = [f"v = {self.precision}(v + z)"] if self.zero_point_first else []
        rounded = self.rounding if "(" in self.rounding else f"{self.rounding}(v)"
        return [*steps, f"y = {rounded}", *([] if self.zero_point_first else ["y = y + z"])]


@dataclass(frozen=True, slots=True)
class Quotient:
    """Quantize: x / s, or x times the reciprocal of s, each step in a precision."""

    reciprocal: Precision | None
    end: FloatRounding

    def compute(self, stored: Stored) -> Array:
        """See `Scaling`."""
        precision = self.end.precision
        x, s = stored.inputs, stored.output_scales
        with np.errstate(all="ignore"):
            if self.reciprocal is None:
                v = precision.of(x) / precision.of(s)
            else:
                v = precision.of(x) * precision.of(1 / self.reciprocal.of(s))
        return self.end.compute(v, stored.output_zero_points)

    @property
    def formulas(self) -> list[str]:
        """See `Scaling`."""
        precision = self.end.precision
        if self.reciprocal is None:
            return [f"v = {precision}(x / s)", *self.end.formulas]
        return [f"r = {self.reciprocal}(1 / s)", f"v = {precision}(x * r)", *self.end.formulas]


def _text(factor: Factor, *, weighted: bool) -> str:
    """Return how a factor is formed; without weights, what is left of it."""
    if weighted:
        return str(factor)
    return {
        Factor.F64_OF_F32: "f64(f32(input)) / f64(f32(output))",
        Factor.F64_OF_F32_PRODUCT: "f64(f32(input)) / f64(f32(output))",
        Factor.F64: "f64(input) / f64(output)",
        Factor.F32: "f32(f32(input) / f32(output))",
    }[factor]


@dataclass(frozen=True, slots=True)
class FloatFactor:
    """Requantize by a float. `weighted`: the factor has the scale of weights."""

    factor: Factor
    end: FloatRounding
    weighted: bool

    def compute(self, stored: Stored) -> Array:
        """See `Scaling`."""
        precision = self.end.precision
        with np.errstate(all="ignore"):
            v = precision.of(stored.inputs - stored.zero_points) * precision.of(stored.factors(self.factor))
        return self.end.compute(v, stored.output_zero_points)

    @property
    def formulas(self) -> list[str]:
        """See `Scaling`."""
        precision = self.end.precision
        return [
            f"f = {precision}({_text(self.factor, weighted=self.weighted)})",
            f"v = {precision}((q - z_in) * f)",
            *self.end.formulas,
        ]


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Requantize by an integer of `bits` bits and a shift.

    The product is shifted once; or first by `bits`, rounded by `first`, and then by the rest. A `truncated` multiplier
    is rounded down. `weighted`: the factor has the scale of weights.
    """

    factor: Factor
    bits: int
    truncated: bool
    first: Rounding | None
    last: Rounding
    weighted: bool

    def compute(self, stored: Stored) -> Array:
        """See `Scaling`."""
        fractions, exponents = np.frexp(stored.factors(self.factor))
        scaled = np.ldexp(fractions, self.bits)
        multipliers = (np.floor(scaled) if self.truncated else np.floor(scaled + 0.5)).astype(np.int64)
        full = multipliers == 1 << self.bits
        multipliers = np.where(full, multipliers >> 1, multipliers)
        shifts = self.bits - (exponents + full).astype(np.int64)
        lefts = np.clip(-shifts if self.first is None else self.bits - shifts, 0, 31)
        v = (stored.inputs - stored.zero_points) << lefts
        if self.first is not None:
            v = _shifted(v * multipliers, np.int64(self.bits) + 0 * shifts, self.first)
            y = _shifted(v, np.clip(shifts - self.bits, 0, 62), self.last)
        else:
            y = _shifted(v * multipliers, np.clip(shifts, 0, 62), self.last)
        return y + stored.output_zero_points

    @property
    def formulas(self) -> list[str]:
        """See `Scaling`."""
        rounded = "floor" if self.truncated else "RNA"
        steps = [
            f"f = {_text(self.factor, weighted=self.weighted)}",
            f"m, r = {rounded}(f * 2^r), f * 2^r of {self.bits} bits",
        ]
        if self.first is None:
            return [*steps, "p = (q - z_in) * m", f"y = {self.last}(p / 2^r)", "y = y + z"]
        return [
            *steps,
            f"h = {self.first}((q - z_in) * m / 2^{self.bits})",
            f"y = {self.last}(h / 2^(r - {self.bits}))",
            "y = y + z",
        ]


def float_ends() -> list[FloatRounding]:
    """Return all ends of rules in floats, the simplest first."""
    return [
        FloatRounding(precision, rounding, zero_point_first)
        for rounding in _FLOAT_ROUNDINGS
        for zero_point_first in (False, True)
        for precision in Precision
    ]


def quotients() -> list[Scaling]:
    """Return all ways to quantize, the simplest first."""
    ends = float_ends()
    rules: list[Scaling] = [Quotient(None, end) for end in ends]
    return rules + [
        Quotient(reciprocal, end)
        for end in ends
        for reciprocal in Precision
        if reciprocal is Precision.F32 or end.precision is Precision.F64
    ]


_BITS = (31, 24, 16, 15, 8)


def scalings(factors: Sequence[Factor], *, weighted: bool) -> list[Scaling]:
    """Return all ways to requantize by a factor formed in one of some ways, the simplest first."""
    rules: list[Scaling] = [FloatFactor(factor, end, weighted) for factor in factors for end in float_ends()]
    for first in (None, *INTEGER_ROUNDINGS):
        rules += [
            FixedPoint(factor, bits, truncated, first, last, weighted)
            for last in INTEGER_ROUNDINGS
            for bits in _BITS
            for truncated in (False, True)
            for factor in factors
        ]
    return rules


class Overflow(StrEnum):
    """What becomes of integers beyond the bounds."""

    SATURATE = "saturate"
    WRAP = "wrap"


@dataclass(frozen=True, slots=True)
class Bounding:
    """From an integer to what is stored: an offset is added, and it is bounded."""

    lowest: int
    highest: int
    overflow: Overflow = Overflow.SATURATE
    offset: int = 0

    def compute(self, integers: Array) -> Array:
        """Return what is stored, as int64."""
        shifted = integers + self.offset
        if self.overflow is Overflow.SATURATE:
            saturated: Array = np.clip(shifted, self.lowest, self.highest).astype(np.int64)
            return saturated
        size = self.highest - self.lowest + 1
        with np.errstate(all="ignore"):
            wrapped: Array = (np.where(np.isfinite(shifted), shifted, 0).astype(np.int64) - self.lowest) % size
        return wrapped + self.lowest

    @property
    def formulas(self) -> list[str]:
        """The steps."""
        steps = [f"y = y {'+' if self.offset > 0 else '-'} {abs(self.offset)}"] if self.offset else []
        if self.overflow is Overflow.SATURATE:
            return [*steps, f"result = clamp(y, {self.lowest}, {self.highest})"]
        return [*steps, f"result = y modulo {self.highest - self.lowest + 1}, {self.lowest} to {self.highest}"]


def boundings(lowest: int, highest: int, observed: Array, offset: int) -> list[Bounding]:
    """Return all ways to bound, the simplest first: by the storage, without its lowest number, or by the least and the
    largest observed one, as a fused activation does. `offset`: by about how much all elements are off.
    """
    ends = [(lowest, highest), (lowest + 1, highest)]
    least, most = int(observed.min()), int(observed.max())
    # A bound is one only where several elements meet it.
    if np.count_nonzero(observed == least) > 1 or np.count_nonzero(observed == most) > 1:
        ends.append((least, most))
    bounds = list(dict.fromkeys(ends))
    offsets = dict.fromkeys((0, 1, -1, offset, offset + 1, offset - 1))
    ways: list[Bounding] = []
    for added in offsets:
        ways += [Bounding(*each, offset=added) for each in bounds]
        ways.append(Bounding(lowest, highest, Overflow.WRAP, offset=added))
    return ways


def rule_formulas(scaling: Scaling, bounding: Bounding) -> list[str]:
    """Return all steps of a rule."""
    return [*scaling.formulas, *bounding.formulas]
