"""The slow truth of the small floats: exact values of codes, and the nearest code by search among all of them.

Written from OCP OFP8, OCP MX v1.0 and the definitions of ml_dtypes, importing nothing of ours. Magnitudes are
integers in units of 2^-1080, which hold every f64 and every value of every format, so a comparison of two is exact.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

UNIT = 1080


@dataclass(frozen=True)
class Format:
    """Exponent bits, mantissa bits, bias, and the kind of special values: ieee, fn, fnuz, finite, scale."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    kind: str
    codes: int

    @property
    def sign(self) -> int:
        return self.codes // 2


# OCP OFP8, OCP MX v1.0 and ml_dtypes.
FORMATS = {
    "f16": Format(5, 10, 15, "ieee", 65536),
    "bf16": Format(8, 7, 127, "ieee", 65536),
    "f8E4M3FN": Format(4, 3, 7, "fn", 256),
    "f8E4M3FNUZ": Format(4, 3, 8, "fnuz", 256),
    "f8E5M2": Format(5, 2, 15, "ieee", 256),
    "f8E5M2FNUZ": Format(5, 2, 16, "fnuz", 256),
    "f8E4M3": Format(4, 3, 7, "ieee", 256),
    "f8E3M4": Format(3, 4, 3, "ieee", 256),
    "f8E4M3B11FNUZ": Format(4, 3, 11, "fnuz", 256),
    "f4E2M1FN": Format(2, 1, 1, "finite", 16),
    "f6E2M3FN": Format(2, 3, 1, "finite", 64),
    "f6E3M2FN": Format(3, 2, 3, "finite", 64),
}
# The columns of numbers: largest finite value and its code, smallest normal, smallest subnormal.
ROWS = {
    "f16": (65504.0, 0x7BFF, 2.0**-14, 2.0**-24),
    "bf16": (float.fromhex("0x1.fep127"), 0x7F7F, 2.0**-126, 2.0**-133),
    "f8E4M3FN": (448.0, 0x7E, 2.0**-6, 2.0**-9),
    "f8E4M3FNUZ": (240.0, 0x7F, 2.0**-7, 2.0**-10),
    "f8E5M2": (57344.0, 0x7B, 2.0**-14, 2.0**-16),
    "f8E5M2FNUZ": (57344.0, 0x7F, 2.0**-15, 2.0**-17),
    "f8E4M3": (240.0, 0x77, 2.0**-6, 2.0**-9),
    "f8E3M4": (15.5, 0x6F, 2.0**-2, 2.0**-6),
    "f8E4M3B11FNUZ": (30.0, 0x7F, 2.0**-10, 2.0**-13),
    "f4E2M1FN": (6.0, 0x7, 1.0, 0.5),
    "f6E2M3FN": (7.5, 0x1F, 1.0, 0.125),
    "f6E3M2FN": (28.0, 0x1F, 0.25, 0.0625),
    "f8E8M0FNU": (2.0**127, 0xFE, 2.0**-127, 2.0**-127),
}


@cache
def value_of(name: str, code: int) -> Fraction | str:
    """The exact magnitude of a code with its sign bit clear, or 'inf' or 'nan'."""
    row = FORMATS[name]
    exponent, mantissa = divmod(code, 1 << row.mantissa_bits)
    if row.kind == "ieee" and exponent == (1 << row.exponent_bits) - 1:
        return "nan" if mantissa else "inf"
    if row.kind == "fn" and code == row.sign - 1:
        return "nan"
    hidden = Fraction(mantissa, 1 << row.mantissa_bits) + (1 if exponent else 0)
    return hidden * Fraction(2) ** (max(exponent, 1) - row.bias)


@cache
def decode(name: str, code: int) -> str:
    """The f32 bit pattern of a code, in hexadecimal; a NaN is quiet, without payload, with the sign of the code."""
    if name == "f8E8M0FNU":
        return "7fc00000" if code == 255 else struct.pack(">f", 2.0 ** (code - 127)).hex()
    row = FORMATS[name]
    negative = code >= row.sign
    magnitude = code - row.sign if negative else code
    value = "nan" if row.kind == "fnuz" and negative and magnitude == 0 else value_of(name, magnitude)
    if value == "nan":
        return "ffc00000" if negative else "7fc00000"
    number = math.inf if value == "inf" else float(value)
    return struct.pack(">f", -number if negative else number).hex()


@cache
def _magnitudes(name: str) -> list[int]:
    values = [value_of(name, code) for code in range(FORMATS[name].sign)]
    finite = [value for value in values if isinstance(value, Fraction)]
    # One step beyond the largest: what rounds to it or further is an overflow.
    beyond = 2 * finite[-1] - finite[-2]
    return [int(value * 2**UNIT) for value in (*finite, beyond)]


def units(x: float | Fraction) -> int:
    """|x| in units of 2^-1080, exactly."""
    numerator, denominator = x.as_integer_ratio()
    whole, rest = divmod(abs(numerator) << UNIT, denominator)
    assert rest == 0
    return whole


def nearest(name: str, x: float | Fraction) -> int | None:
    """The code of the magnitude nearest to a finite |x|, ties to the even code; None for an overflow."""
    table = _magnitudes(name)
    magnitude = units(x)
    above = bisect_left(table, magnitude)
    if above == len(table):
        return None
    if above:
        low, high = magnitude - table[above - 1], table[above] - magnitude
        if low < high or (low == high and above % 2):
            above -= 1
    return None if above == len(table) - 1 else above


def encode(name: str, x: float, *, overflow: int, nan: int, negative_nan: int) -> int:
    """The code of x: `overflow` for the magnitude of what is too large and of infinities, the NaNs' codes as given."""
    row = FORMATS[name]
    if math.isnan(x):
        return negative_nan if math.copysign(1, x) < 0 else nan
    code = None if math.isinf(x) else nearest(name, x)
    code = overflow if code is None else code
    if math.copysign(1, x) > 0 or (row.kind == "fnuz" and code in (0, row.sign)):
        return code
    return code | row.sign


def special_codes(name: str, *, saturating: bool) -> dict[str, int]:
    """What overflow and NaN give, with the quiet NaN for IEEE kinds and the opposite zero for f4 and f6."""
    row = FORMATS[name]
    largest = ROWS[name][1]
    if row.kind == "finite":
        return {"overflow": largest, "nan": row.sign, "negative_nan": 0}
    if row.kind == "fnuz":
        return {"overflow": largest if saturating else row.sign, "nan": row.sign, "negative_nan": row.sign}
    infinity = largest + 1
    nan = infinity if row.kind == "fn" else infinity + (1 << (row.mantissa_bits - 1))
    overflow = largest if saturating and row.codes == 256 else infinity
    return {"overflow": overflow, "nan": nan, "negative_nan": nan | row.sign}


def encode_scale(pattern: int, rounding: str, *, saturating: bool, positive_only: bool) -> int:
    """E8M0 from the bits of an f32: E is the exponent field, M the mantissa."""
    exponent, mantissa = (pattern >> 23) & 255, pattern & 0x7FFFFF
    if exponent == 255 or (positive_only and (pattern >> 31 or pattern == 0)):
        return 255
    high, rest = mantissa >> 22, mantissa & 0x3FFFFF
    carry = {"up": mantissa != 0, "down": False, "nearest": bool(high and (rest or exponent > 0))}[rounding]
    return min(exponent + carry, 254 if saturating else 255)
