"""onnxruntime's operators of com.microsoft in fractions, one element at a time: each `f32` is one rounding.

Written from the facts of onnxruntime's sources. Codes are the stored integers; parameters are (scale, zero point).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from tests.oracles.quantization import f32, wrap32

Parameters = tuple[float, int]
Range = tuple[int, int]


def rounded(exact: Fraction) -> Fraction:
    """The nearest f32. Numbers here are within its range."""
    return Fraction(f32(exact))


def _in_f64(exact: Fraction) -> Fraction:
    return Fraction(float(exact))


def _clamped(value: int, bounds: Range) -> int:
    return min(max(value, bounds[0]), bounds[1])


def _converted(value: Fraction) -> int:
    """The nearest integer of 32 bits, the least one for a number that is too large."""
    nearest = round(value)
    return nearest if -(2**31) <= nearest < 2**31 else -(2**31)


def add(a: int, b: int, of: Sequence[Parameters], bounds: Range, *, one: bool) -> int:
    """`one`: A has one element per span, and the second operand is the inner one of the sum."""
    (sa, za), (sb, zb), (sy, zy) = of
    terms = [(a, Fraction(sa), za), (b, Fraction(sb), zb)]
    if one:
        terms.reverse()
    (x, sx, zx), (w, sw, zw) = terms
    rx, rw = rounded(sx / Fraction(sy)), rounded(sw / Fraction(sy))
    offset = rounded(zy - rounded(rx * zx + rounded(rw * zw)))
    return _clamped(_converted(rounded(x * rx + rounded(w * rw + offset))), bounds)


def add_neon(a: int, b: int, of: Sequence[Parameters], bounds: Range) -> int | None:
    """None: its ratios have no multipliers."""
    (sa, za), (sb, zb), (sy, zy) = of
    ratios = [rounded(Fraction(each) / Fraction(sy)) for each in (sa, sb)]
    if not all(Fraction(1, 2**14) <= each < 256 for each in ratios):
        return None
    shift = 21
    while max(ratios) * 2**shift >= 2**22:
        shift -= 1
    while max(ratios) * 2**shift < 2**21:
        shift += 1
    multipliers = [round(each * 2**shift) for each in ratios]
    if not 13 <= shift <= 31 or max(multipliers) >= 2**22:
        return None
    total = (a - za) * multipliers[0] + (b - zb) * multipliers[1]
    magnitude = (abs(total) + 2 ** (shift - 1)) >> shift
    return _clamped((magnitude if total >= 0 else -magnitude) + zy, bounds)


def multiply(a: int, b: int, of: Sequence[Parameters], bounds: Range) -> int:
    (sa, za), (sb, zb), (sy, zy) = of
    factor = rounded(rounded(Fraction(sa) * Fraction(sb)) / Fraction(sy))
    return _clamped(_converted(rounded(rounded((a - za) * (b - zb) * factor) + zy)), bounds)


def entry(code: int, x: Parameters, y: Parameters, bounds: Range, function: Callable[[Fraction], Fraction]) -> int:
    """What a table has for a code."""
    value = rounded(function(rounded(Fraction(x[0]) * (code - x[1]))) / Fraction(y[0]))
    low, high = bounds
    return round(min(max(value, Fraction(low - y[1])), Fraction(high - y[1]))) + y[1]


def leaky(alpha: float) -> Callable[[Fraction], Fraction]:
    return lambda value: value if value >= 0 else rounded(Fraction(f32(Fraction(alpha))) * value)


_P = ("8.51377133304701e-03", "6.08574864600143e-05", "1.15627324459942e-07", "4.37031012579801e-11")
_Q = ("9.93151921023180e-01", "1.16817656904453e-01", "1.70198817374094e-03", "6.29106785017040e-06",
      "5.76102136993427e-09", "6.10247389755681e-13")  # fmt: skip


def logistic(value: Fraction) -> Fraction:
    x = min(max(value, Fraction(-18)), Fraction(18))
    square = rounded(x * x)

    def horner(coefficients: Sequence[str]) -> Fraction:
        total = rounded(Fraction(coefficients[-1]))
        for each in reversed(coefficients[:-1]):
            total = rounded(total * square + rounded(Fraction(each)))
        return total

    p = rounded(horner(("2.48287947061529e-01", *_P)) * x)
    return min(max(rounded(rounded(p / horner(_Q)) + Fraction(1, 2)), Fraction(0)), Fraction(1))


def global_pool(codes: Sequence[int], x: Parameters, y: Parameters, bounds: Range) -> int:
    accumulator = sum(codes) - x[1] * len(codes)
    factor = rounded(Fraction(x[0]) / rounded(Fraction(y[0]) * len(codes)))
    return _clamped(round(rounded(rounded(Fraction(accumulator)) * factor)) + y[1], bounds)


def pool(codes: Sequence[int], count: int, x: Parameters, y: Parameters, bounds: Range) -> int:
    """The codes of a window in its order; `count` may have padding in it."""
    total = Fraction(0)
    for code in codes:
        total = rounded(total + rounded(Fraction(x[0]) * (code - x[1])))
    mean = rounded(total / count)
    return _clamped(_converted(rounded(rounded(mean / Fraction(y[0])) + y[1])), bounds)


def softmax(codes: Sequence[int], scale: float, y: Parameters, bounds: Range, *, in_f32: bool) -> list[int]:
    """A row, scaled in f32 or f64. Products that overflow f32 are not asked of it."""
    largest = Fraction(2**128 - 2**104)
    shift = max(0.0, f32(Fraction(math.log(float(rounded(largest / len(codes)))))) - 5) / scale
    quotient = rounded(Fraction(math.floor(rounded(1 / Fraction(y[0])))))

    def power(code: int) -> Fraction:
        exponent = (255 - max(codes) + code - 255 + shift) * scale
        with localcontext() as context:
            context.prec = 60
            return rounded(Fraction(Decimal(exponent).exp()))

    powers = [power(code) for code in codes]
    total = Fraction(0)
    for each in powers:
        total = rounded(total + each)
    narrow = rounded if in_f32 else _in_f64
    return [_clamped(round(narrow(narrow(each * quotient) / total)) + y[1], bounds) for each in powers]


def product(row: Sequence[int], column: Sequence[int], za: int, zb: int, addend: int = 0) -> int:
    return wrap32(sum((a - za) * (b - zb) for a, b in zip(row, column, strict=True)) + addend)


def gemm(accumulator: int, alpha: float, sa: float, sb: float, y: Parameters | None, bounds: Range) -> Fraction:
    """An integer as y has it, or without y a real number."""
    scale = rounded(rounded(Fraction(f32(Fraction(alpha))) * Fraction(sa)) * Fraction(sb))
    real = rounded(Fraction(accumulator))
    if y is None:
        return rounded(real * scale)
    value = rounded(real * rounded(scale / Fraction(y[0])))
    low, high = bounds
    return Fraction(round(min(max(value, Fraction(low - y[1])), Fraction(high - y[1]))) + y[1])


def to_float(accumulator: int, sa: float, sb: float, bias: float | None, *, fused: bool = False) -> Fraction:
    scaled = rounded(Fraction(accumulator)) * rounded(Fraction(sa) * Fraction(sb))
    if not fused or bias is None:
        scaled = rounded(scaled)
    return scaled if bias is None else rounded(scaled + Fraction(bias))


def weight(code: int, zero_point: float, scale: float, *, real_zero_point: bool) -> Fraction:
    if real_zero_point:
        products = [rounded(Fraction(each) * Fraction(scale)) for each in (code, zero_point)]
        return rounded(products[0] - products[1])
    return rounded((code - Fraction(zero_point)) * Fraction(scale))
