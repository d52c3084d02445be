"""The slow truth of fine-grained fp8, the GPTQ layout, AWQ and NF4, in exact fractions, importing nothing of ours.

Written from transformers 5.23.0, auto-round 0.15.1, autoawq 0.2.9 and bitsandbytes 0.50.2. What they compute is a step
of torch in f32 or f16: the exact result, rounded. Weights are finite floats. A zero's sign is lost in a Fraction,
and matters for the codes of fp8 alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from tests.oracles.profiles import FORMATS
from tests.oracles.quantiles import nf4
from tests.oracles.quantization import nearest_even
from tests.oracles.small_floats import nearest, value_of

F32, F16 = FORMATS["f32"], FORMATS["f16"]


class Group(NamedTuple):
    """The codes of what shares a scale, the scale, and the zero point."""

    codes: list[int]
    scale: float
    zero: int = 0


def _f32(value: Fraction) -> Fraction:
    return Fraction(F32.round(value))


def _f16(value: Fraction) -> Fraction:
    return Fraction(F16.round(value))


def _clamped(value: int, highest: int) -> int:
    return min(max(value, 0), highest)


def e4m3(value: Fraction, *, negative: bool) -> int:
    """The code of a value that is clamped to +-448."""
    code = nearest("f8E4M3FN", min(abs(value), Fraction(448)))
    assert code is not None
    return code | (0x80 if negative else 0)


def logarithm(value: Fraction) -> Fraction:
    """f32(log2(value)), from 60 digits; 20 are enough to tell on which side of a tie it is."""
    with localcontext() as context:
        context.prec = 60
        exact = (Decimal(value.numerator) / Decimal(value.denominator)).ln() / Decimal(2).ln()
        return _f32(Fraction(exact))


def fine_grained_fp8(block: Sequence[float], *, powers: bool) -> Group:
    """The codes and the inverse scale of a block, whose elements come in any order."""
    most = max(abs(Fraction(each)) for each in block)
    scale = _f32(_f32(1 / most) * 448) if most else Fraction(1)
    inverse = _f32(1 / scale)
    if powers:
        inverse = Fraction(2) ** math.ceil(logarithm(max(inverse, Fraction(2) ** -126)))
        scale = 1 / inverse
    codes = [e4m3(_f32(Fraction(each) * scale), negative=math.copysign(1, each) < 0) for each in block]
    return Group(codes, float(inverse))


def value_of_fp8(code: int, inverse: float) -> float:
    magnitude = value_of("f8E4M3FN", code & 0x7F)
    assert isinstance(magnitude, Fraction)
    return math.copysign(F32.round(magnitude * Fraction(inverse)), -1 if code & 0x80 else 1)


def gptq(group: Sequence[float], bits: int, *, symmetric: bool) -> Group:
    """Codes from 0 to 2^bits - 1."""
    weights = [Fraction(0), *map(Fraction, group)]
    low, high = min(weights), max(weights)
    least, highest = _f16(Fraction(1, 100000)), 2**bits - 1
    if symmetric:
        half = 2 ** (bits - 1)
        scale = _f16(_f32((-low if high < -low else -max(high, -low)) / half))
        scale = min(scale, -least) if scale < 0 else max(scale, least)
        zero = half
    else:
        scale = max(_f16(_f32(_f32(high - low) / highest)), least)
        zero = _clamped(nearest_even(_f32(-low / scale)), highest)
    codes = [_clamped(nearest_even(_f32(Fraction(each) / scale)) + zero, highest) for each in group]
    return Group(codes, float(scale), zero)


def awq(group: Sequence[float]) -> Group:
    """Codes from 0 to 15."""
    weights = [_f16(Fraction(each)) for each in group]
    low, high = min(weights), max(weights)
    scale = _f16(max(_f16(high - low), _f16(Fraction(1, 100000))) / 15)
    zero = _clamped(-nearest_even(_f16(low / scale)), 15)
    codes = [_clamped(int(_f16(Fraction(nearest_even(_f16(each / scale)) + zero))), 15) for each in weights]
    return Group(codes, float(scale), zero)


def value_in_f16(code: int, zero: int, scale: float) -> float:
    """What loaders of GPTQ and AWQ compute: the difference is exact, and 0 times a negative scale is -0."""
    return F16.round((code - zero) * Fraction(scale)) if code != zero else math.copysign(0.0, scale)


def nf4_block(block: Sequence[float], *, whole: bool = True) -> Group:
    """The codes and the absmax; of a block that is not whole by a division."""
    quantiles = [Fraction(each) for each in nf4()]
    quantiles = [_f32(each) for each in quantiles]
    midpoints = [_f32(_f32(a + b) / 2) for a, b in pairwise(quantiles)]
    least = _f32(Fraction(1, 10**38))
    most = max(abs(Fraction(each)) for each in block)
    divisor = max(most, least)
    codes = []
    for each in block:
        scaled = _f32(Fraction(each) * _f32(1 / divisor)) if whole else _f32(Fraction(each) / divisor)
        scaled = min(max(scaled, Fraction(-1)), Fraction(1))
        codes.append(sum(midpoint < scaled for midpoint in midpoints))
    return Group(codes, float(most if whole else divisor))


def value_of_nf4(code: int, absmax: float) -> float:
    return F32.round(_f32(Fraction(nf4()[code])) * Fraction(absmax))
