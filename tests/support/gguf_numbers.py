"""The numbers that blocks of GGUF hold, as exact fractions, from gguf.md and ggml-common.h: nothing of ours.

What is no fraction is a float: an infinity or NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from fractions import Fraction
from math import inf, isnan, nan

Number = Fraction | float
E2M1 = [Fraction(each, 2) for each in (0, 1, 2, 3, 4, 6, 8, 12)]
SIZES = {"Q8_0": (32, 34), "Q4_0": (32, 18), "Q5_0": (32, 22), "MXFP4": (32, 17), "NVFP4": (64, 36)}
"""The elements and the bytes of a block."""


def f16(data: bytes) -> Number:
    """The value of an f16."""
    (value,) = struct.unpack("<e", data)
    return Fraction(value) if abs(value) < inf else float(value)


def times(number: Number, code: Fraction | int) -> Number:
    """The product."""
    if isinstance(number, Fraction):
        return number * code
    return nan if isnan(number) or not code else number * (1 if code > 0 else -1)


def e2m1(code: int) -> Fraction:
    """The value of a code."""
    return -E2M1[code - 8] if code >= 8 else E2M1[code]


def ue4m3(byte: int) -> Fraction:
    """The scale of NVFP4."""
    if byte == 0x7F:
        return Fraction(0)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    return Fraction(mantissa, 512) if not exponent else Fraction(8 + mantissa, 8) * Fraction(2) ** (exponent - 7)


def numbers(name: str, data: bytes, scale: Fraction = Fraction(1)) -> list[Number]:
    """The numbers of some blocks. `scale`: of an NVFP4 weight."""
    size = SIZES[name][1]
    return [each for at in range(0, len(data), size) for each in _block(name, data[at : at + size], scale)]


def _block(name: str, block: bytes, scale: Fraction) -> Iterator[Number]:
    if name == "NVFP4":
        for group in range(4):
            for element in range(16):
                code = block[4 + 8 * group + element % 8] >> (4 * (element >= 8)) & 15
                yield ue4m3(block[group]) * e2m1(code) * scale
        return
    for element in range(32):
        half = 4 * (element >= 16)
        if name == "Q8_0":
            yield times(f16(block[:2]), struct.unpack("b", block[2 + element : 3 + element])[0])
        elif name == "MXFP4":
            yield Fraction(2) ** (block[0] - 127) * e2m1(block[1 + element % 16] >> half & 15)
        else:
            code = block[-16 + element % 16] >> half & 15
            if name == "Q5_0":
                code |= (int.from_bytes(block[2:6], "little") >> element & 1) << 4
            yield times(f16(block[:2]), code - (16 if name == "Q5_0" else 8))
