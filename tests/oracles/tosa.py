"""TOSA RESCALE in exact integers, one element at a time, written from TOSA 1.0 and importing nothing of ours.

Zero points and unsigned elements are the numbers that they stand for: 200 of an unsigned i8, not -56.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tests.oracles.quantization import f32, nearest_even

WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i48": 48}
OUTPUTS = ("i8", "i16", "i32")
ROUNDINGS = ("SINGLE_ROUND", "DOUBLE_ROUND", "INEXACT_ROUND")


def bounds(element: str, *, unsigned: bool) -> tuple[int, int]:
    """The numbers that an element type holds."""
    width = WIDTHS[element]
    return (0, 2**width - 1) if unsigned else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)


@dataclass(frozen=True, kw_only=True)
class Rescale:
    """A RESCALE without its input: the element types, and all other operands and attributes."""

    in_t: str
    out_t: str
    shape: tuple[int, ...]
    multiplier: tuple[int, ...]
    shift: tuple[int, ...]
    input_zp: int = 0
    output_zp: int = 0
    scale32: bool = True
    rounding_mode: str = "SINGLE_ROUND"
    per_channel: bool = False
    input_unsigned: bool = False
    output_unsigned: bool = False

    @property
    def input_bounds(self) -> tuple[int, int]:
        """The numbers that the input holds."""
        return bounds(self.in_t, unsigned=self.input_unsigned)

    @property
    def output_bounds(self) -> tuple[int, int]:
        """The numbers that the output holds."""
        return bounds(self.out_t, unsigned=self.output_unsigned)

    def channel(self, index: int) -> int:
        """The channel of the element with a flat index."""
        return index % self.shape[-1] if self.per_channel else 0


@dataclass(frozen=True)
class Unpredictable:
    """A failed REQUIRE, by the name that 5.3 suggests: multiplier, shift, value, result, sum."""

    require: str


def errors_if(case: Rescale) -> list[int]:
    """The numbers of the ERROR_IF conditions of 5.2 that hold."""
    wide, unsigned = ("i32", "i48"), case.input_unsigned
    sides = (
        (case.in_t, case.input_unsigned, case.input_zp),
        (case.out_t, case.output_unsigned, case.output_zp),
    )
    forbidden = [z != 0 and t != "i8" and not (t == "i16" and u) for t, u, z in sides]
    odd = any(t == "i16" and u and z not in (0, 32768) for t, u, z in sides)
    conditions = [
        forbidden[0],
        forbidden[1],
        odd,
        case.scale32 and case.in_t == "i48",
        not case.scale32 and case.rounding_mode == "DOUBLE_ROUND",
        unsigned and case.output_unsigned,
        unsigned and (case.in_t in wide or case.out_t == "i32"),
        case.output_unsigned and (case.out_t == "i32" or case.in_t in wide),
        case.per_channel and not case.shape,
    ]
    return [number for number, holds in enumerate(conditions, start=1) if holds]


def rescaled(case: Rescale, x: int, index: int = 0) -> int | Unpredictable:
    """5.3: the output number for the input number `x` at a flat index, or which REQUIRE fails first."""
    channel = case.channel(index)
    m, shift = case.multiplier[channel], case.shift[channel]
    v = x - case.input_zp
    half = 2 ** (shift - 1) if shift >= 1 else 0
    failed = {"multiplier": m < 0, "shift": not 2 <= shift <= 62, "value": case.scale32 and not -half <= v < half}
    for require, fails in failed.items():
        if fails:
            return Unpredictable(require)
    if case.rounding_mode == "INEXACT_ROUND":
        # What the reference model computes: three f32 steps, the last of them exact.
        product = f32(Fraction(f32(Fraction(v))) * Fraction(f32(Fraction(m))))
        y = nearest_even(Fraction(product) / 2**shift)
    else:
        r = half
        if case.rounding_mode == "DOUBLE_ROUND" and shift > 31:
            r += 2**30 if v >= 0 else -(2**30)
        y = (v * m + r) // 2**shift
    if not -(2**31) <= y < 2**31:
        return Unpredictable("result")
    if not -(2**31) <= y + case.output_zp < 2**31:
        return Unpredictable("sum")
    lowest, highest = case.output_bounds
    return min(max(y + case.output_zp, lowest), highest)


def inexact_bounds(case: Rescale, x: int, index: int = 0) -> tuple[int, int]:
    """5.3: the lowest and highest output that TOSA permits of INEXACT_ROUND, in exact fractions instead of f64."""
    channel = case.channel(index)
    ref = Fraction((x - case.input_zp) * case.multiplier[channel], 2 ** case.shift[channel])
    err = Fraction(1, 2) + (3 * abs(ref) + abs(ref + case.output_zp)) / 2**24
    lowest, highest = case.output_bounds
    low, high = -((-(ref - err + case.output_zp)) // 1), (ref + err + case.output_zp) // 1
    return min(max(low, lowest), highest), min(max(high, lowest), highest)
