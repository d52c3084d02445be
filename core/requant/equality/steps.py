"""Exact formulas as lists of steps, each of them monotone, by which a rule is proven to be a staircase.

A formula takes an integer (a stored number, or the magnitude code of a float) to an integer (a stored number or code),
through numbers without rounding errors: integers, fractions, infinities and a negative zero. A step is a tuple of its
name and integers, as it stands in a certificate; `docs/certificates.md` lists them. These have branches: `wrap` (the
multiple that is subtracted), `within` (below, in, or above), `encode` (the sign; finite, overflow, or infinity) and
`nan` (the mantissa bits that are kept).

Why a formula is monotone. Every step without a branch is monotone in x: never falling, or, with a negative factor or
sign, never rising. The branch of a step is monotone in x as well, and between two x of one branch so is the step: there
`wrap` subtracts a constant, `within` gives x or a constant, `encode` counts the floats of one sign away from zero, and
`nan` gives a constant. So, by induction over the steps: on an interval at whose ends all branches are the same, all
branches are the same throughout, and the formula is monotone; and where it also gives the same at both ends, it is
constant. Whoever has the steps can check that at two inputs for each interval, and need not trust us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, inf, trunc
from typing import Any

from requant.errors.cancellation import check_cancelled
from requant.formats.elements import FloatElement
from requant.formats.rounding import Rounding

Step = tuple[Any, ...]
Steps = tuple[Step, ...]
Number = int | Fraction | float

# Steps may come from a certificate that anybody wrote.
_LARGEST_EXPONENT = 1 << 12


def _up(x: Fraction) -> int:
    """Return floor(x + 1/2)."""
    return (2 * x.numerator + x.denominator) // (2 * x.denominator)


WAYS: Mapping[str, Callable[[Fraction], int]] = {
    "even": round,
    "away": lambda x: _up(x) if x >= 0 else -_up(-x),
    "up": _up,
    "down": lambda x: -_up(-x),
    "zero": trunc,
    "floor": floor,
    "ceil": ceil,
    "odd": lambda x: floor(x) if x == floor(x) else floor(x) | 1,
}
"""The roundings of a number to an integer: to the nearest with ties by the name, or toward that; to the odd one of the
two beside a number between them. All never fall."""

WAY_OF: Mapping[Rounding, str] = {
    Rounding.NEAREST_EVEN: "even",
    Rounding.NEAREST_AWAY: "away",
    Rounding.NEAREST_UP: "up",
    Rounding.NEAREST_DOWN: "down",
    Rounding.TOWARD_ZERO: "zero",
    Rounding.FLOOR: "floor",
    Rounding.CEILING: "ceil",
    Rounding.ODD: "odd",
}
"""Stochastic rounding has none: its result depends on the place of an element, and is not monotone in its value."""


def add(number: int | Fraction) -> Steps:
    """x + number."""
    exact = Fraction(number)
    return (("add", exact.numerator, exact.denominator),) if number else ()


def multiply(numerator: int, denominator: int = 1) -> Steps:
    """x * numerator / denominator. They are kept as they are, so that a multiplier stays recognizable."""
    return (("multiply", numerator, denominator),) if numerator != denominator else ()


def scale(number: Fraction) -> Steps:
    """x * number."""
    return multiply(number.numerator, number.denominator)


def to_float(element: FloatElement) -> Steps:
    """The nearest number of an IEEE format, ties to even."""
    least = 1 - element.bias - element.mantissa_bits
    return (("float", element.precision, least, element.bias + 1),)


def within(lowest: int, highest: int, other: int | None = None) -> Steps:
    """x, which has to be in an interval."""
    return (("within", lowest, highest, other),)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The code of a float format, as `encode` takes it: the sign bit, that of a zero, and the codes of magnitudes.

    What is beyond `largest`, the code of the largest finite number, is `overflow`; an infinity is `infinity`. `other`:
    for another rule than to the nearest with ties to even and the sign everywhere, the way to round, and the codes of
    an overflow and an infinity below zero.
    """

    mantissa_bits: int
    bias: int
    sign_bit: int
    zero_sign: int
    largest: int
    overflow: int
    infinity: int
    other: tuple[str, int, int] | tuple[()] = ()

    @property
    def steps(self) -> Steps:
        *numbers, other = astuple(self)
        return (("encode", *numbers, *other),)

    @classmethod
    def ieee(cls, element: FloatElement) -> Encoding:
        """Return the codes of a format with infinities, which an overflow gives."""
        infinity = element.largest_code + 1
        sign = element.sign_bit
        return cls(element.mantissa_bits, element.bias, sign, sign, element.largest_code, infinity, infinity)


def _nearest(
    magnitude: int | Fraction, precision: int, least: int, way: str = "even", *, negative: bool = False
) -> tuple[int, int]:
    """Return the nearest float, or the one that a number of this sign is rounded to, as an integer and the exponent of
    its last place."""
    numerator, denominator = magnitude.numerator, magnitude.denominator
    if not numerator:
        return 0, least
    exponent = numerator.bit_length() - denominator.bit_length()
    # floor(log2(magnitude)): the lengths are off by at most one.
    if numerator << max(-exponent, 0) < denominator << max(exponent, 0):
        exponent -= 1
    place = max(exponent - precision + 1, least)
    divisor = denominator << max(place, 0)
    whole, rest = divmod(numerator << max(-place, 0), divisor)
    if way != "even":
        exact = whole + Fraction(rest, divisor)
        return abs(WAYS[way](-exact if negative else exact)), place
    return whole + (2 * rest > divisor or (2 * rest == divisor and whole & 1)), place


# A certificate has few steps, and each of them for every interval.
_fraction = lru_cache(maxsize=256)(Fraction)


def _is_infinite(x: Number) -> bool:
    return isinstance(x, float) and x in (inf, -inf)


def _exact(x: Number) -> Fraction | int:
    """Return a finite number as one that is computed with exactly."""
    return Fraction(x) if isinstance(x, float) else x


def _magnitude(x: int | Fraction) -> int | Fraction:
    return x if x >= 0 else -x


def _is_negative(x: Number) -> bool:
    return x < 0 or (isinstance(x, float) and str(x) == "-0.0")


def _decoded(x: int, mantissa_bits: int, bias: int, infinity: int, sign: int) -> Number:
    if x >= infinity:
        return sign * inf
    exponent, mantissa = divmod(int(x), 1 << mantissa_bits)
    if exponent > _LARGEST_EXPONENT:
        raise ValueError(f"the exponent field of {x} is beyond that of any format")
    significand = sign * (((exponent > 0) << mantissa_bits) + mantissa)
    place = max(exponent, 1) - bias - mantissa_bits
    return (significand << place if place >= 0 else Fraction(significand, 1 << -place)) or sign * 0.0


def _encoded(x: Number, numbers: tuple[Any, ...]) -> tuple[int, int]:
    mantissa_bits, bias, sign_bit, zero_sign, largest, overflow, infinity, *other = numbers
    way, negative = other[0] if other else "even", _is_negative(x)
    if _is_infinite(x):
        code, kind = infinity, 3
    else:
        magnitude, least = _magnitude(_exact(x)), 1 - bias - mantissa_bits
        nearest, place = _nearest(magnitude, mantissa_bits + 1, least, way, negative=negative)
        code, kind = nearest + ((place + bias + mantissa_bits - 1) << mantissa_bits), 1
        if code > largest:
            code, kind = overflow, 2
    if not negative:
        return code, kind
    if other and kind > 1:
        return other[kind - 1], -kind
    return code | (sign_bit if code else zero_sign), -kind


def _after(x: Number, step: Step) -> tuple[Number | None, int]:
    """Return what a step makes of x, None where it is undefined, and its branch."""
    name, *numbers = step
    if name == "decode":
        return _decoded(int(x), *numbers), 0
    if name == "encode":
        return _encoded(x, tuple(numbers))
    if name == "nan":
        left, right, mask, bits, least, sign = numbers
        kept = int(x) << left >> right & mask
        return max(kept | bits, least) | sign, kept
    if name == "clamp":
        return min(max(x, numbers[0]), numbers[1]), 0
    if name == "within":
        lowest, highest, other = numbers
        branch = int(x > highest) - int(x < lowest)
        return (other if branch else x), branch
    if _is_infinite(x):
        return (-x if name == "multiply" and numbers[0] < 0 else x), 0
    return _after_finite(x, name, numbers)


def _after_finite(x: Number, name: str, numbers: list[Any]) -> tuple[Number, int]:
    exact = _exact(x)
    match name:
        case "add":
            return exact + (numbers[0] if numbers[1] == 1 else _fraction(*numbers)), 0
        case "multiply":
            if not exact:
                return (-0.0 if _is_negative(x) != (numbers[0] < 0) else 0), 0
            return exact * (numbers[0] if numbers[1] == 1 else _fraction(*numbers)), 0
        case "integer":
            return (exact if isinstance(exact, int) else WAYS[numbers[0]](exact)), 0
        case "float":
            precision, least, top = numbers
            nearest, place = _nearest(_magnitude(exact), precision, least)
            magnitude = nearest << place if place >= 0 else Fraction(nearest, 1 << -place)
            rounded: Number = inf if magnitude >= 1 << top else magnitude or 0.0
            return (-rounded if _is_negative(x) else rounded), 0
        case "nudge":
            return exact + (numbers[0] if exact >= 0 else -numbers[0]), 0
        case "flush":
            return (0 if _magnitude(exact) < _fraction(*numbers) else x), 0
        case "wrap":
            half = 1 << (numbers[0] - 1)
            multiple, rest = divmod(exact + half, 1 << numbers[0])
            return rest - half, int(multiple)
    raise ValueError(f"there is no step {name}")


def exactly(steps: Steps, number: int) -> Number:
    """Return the number that steps that are defined everywhere make of another."""
    x: Number | None = number
    for step in steps:
        assert x is not None
        x, _ = _after(x, step)
    assert x is not None
    return x


def outcome(steps: Steps, number: int) -> tuple[int | None, tuple[int, ...]]:
    """Return what a formula gives, None where it is undefined, and the branches that it takes."""
    x: Number | None = number
    branches = []
    for step in steps:
        assert x is not None
        x, branch = _after(x, step)
        branches.append(branch)
        if x is None:
            return None, tuple(branches)
    assert x is not None
    return int(x), tuple(branches)


MAX_SEGMENTS = 2048
"""More monotone pieces than this are not searched for: a rule that wraps that often is computed for every input."""


class TooManySegmentsError(Exception):
    """A formula has more monotone pieces than MAX_SEGMENTS."""


@dataclass(frozen=True, slots=True)
class Segment:
    """An interval on which a formula is monotone, because it takes the same branches at both ends.

    `undefined`: on all of it.
    """

    lowest: int
    highest: int
    undefined: bool


def segments(steps: Steps, lowest: int, highest: int) -> list[Segment]:
    """Return the longest intervals of one list of branches, from `lowest` to `highest`.

    Raise TooManySegmentsError where there are more than MAX_SEGMENTS.
    """
    return list(_segments(steps, lowest, highest, outcome(steps, lowest)[1], outcome(steps, highest)))


def _segments(
    steps: Steps, lowest: int, highest: int, first: tuple[int, ...], last: tuple[int | None, tuple[int, ...]]
) -> Iterator[Segment]:
    count = 0
    while True:
        # The branches before the first that differs are the same throughout, so that this one is monotone.
        place = next((i for i, (a, b) in enumerate(zip(first, last[1], strict=False)) if a != b), None)
        count += 1
        if place is None:
            yield Segment(lowest, highest, last[0] is None)
            return
        # As many as there are branches, but no more than inputs.
        branches = min(abs(last[1][place] - first[place]), highest - lowest)
        if count > MAX_SEGMENTS or branches > MAX_SEGMENTS:
            raise TooManySegmentsError
        inside, outside = lowest, highest
        while outside - inside > 1:
            check_cancelled()
            middle = (inside + outside) // 2
            if _same_up_to(place, outcome(steps, middle)[1], first):
                inside = middle
            else:
                outside = middle
        # Later steps may branch within this interval.
        end = outcome(steps, inside)
        yield from _segments(steps, lowest, inside, first, end)
        lowest, first = outside, outcome(steps, outside)[1]


def _same_up_to(place: int, branches: tuple[int, ...], first: tuple[int, ...]) -> bool:
    return branches[: place + 1] == first[: place + 1]
