"""MXFP4, TQ1_0 and TQ2_0 of ggml in exact fractions, from ggml-quants.c. Blocks are lists of f32 values.

log2f is taken as the nearest f32 of the exact logarithm, as glibc's is for all values within 400 steps of a power of
two.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tests.oracles.blocks import f16, floor_log2
from tests.oracles.quantization import f32, nearest_away

MXFP4_VALUES = [Fraction(v, 2) for v in (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)]


def _floor_of_log2f(value: Fraction) -> int:
    exponent = floor_log2(value)
    # log2 is below the next integer by about (1 - value / 2^(exponent + 1)) / ln 2; does the nearest f32 reach it?
    missing = (1 - value / Fraction(2) ** (exponent + 1)) / Fraction(math.log(2))
    return exponent + 1 if f32(exponent + 1 - missing) == exponent + 1 else exponent


def quantize_mxfp4(block: list[float]) -> bytes:
    amax = max(abs(Fraction(x)) for x in block)
    exponent = _floor_of_log2f(amax) - 2 + 127 if amax else 0
    scale = Fraction(2) ** (exponent - 127)
    codes = []
    for x in block:
        errors = [f32(abs(value * scale - Fraction(x))) for value in MXFP4_VALUES]
        codes.append(errors.index(min(errors)))
    return bytes([exponent, *(codes[j] | codes[j + 16] << 4 for j in range(16))])


def _ternary(block: list[float]) -> tuple[list[int], bytes]:
    amax = max(abs(x) for x in block)
    inverse = Fraction(f32(1 / Fraction(amax))) if amax else Fraction(0)
    return [nearest_away(Fraction(f32(Fraction(x) * inverse))) + 1 for x in block], f16(amax)


def quantize_tq2_0(block: list[float]) -> bytes:
    codes, scale = _ternary(block)
    packed = [sum(codes[128 * half + j + 32 * i] << (2 * i) for i in range(4)) for half in range(2) for j in range(32)]
    return bytes(packed) + scale


def quantize_tq1_0(block: list[float]) -> bytes:
    codes, scale = _ternary(block)
    packed = []
    for begin, width, count in ((0, 32, 5), (160, 16, 5), (240, 4, 4)):
        for j in range(width):
            digits = [codes[begin + j + width * i] for i in range(count)] + [0] * (5 - count)
            number = sum(digit * 3 ** (4 - i) for i, digit in enumerate(digits))
            packed.append(math.ceil(Fraction(256 * number, 243)))
    return bytes(packed) + scale
