"""onnxruntime's block quantizer of weights in exact fractions, from its documentation and MatMulNBits' operator text.

A column is a list of floats that hold f32 values. What is computed in f32 is rounded by `f32`, step by step; scales of
f16 and bf16 weights are rounded by the caller's `stored`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from tests.oracles.quantization import f32, nearest_away


class QuantizedBlock(NamedTuple):
    """`scale`: in f32, before it is stored."""

    scale: float
    zero_point: int
    codes: list[int]


def _division(numerator: Fraction, denominator: Fraction) -> Fraction:
    return Fraction(f32(numerator / denominator))


def quantize_block(
    block: list[float],
    bits: int,
    *,
    symmetric: bool,
    rounded_before_zero_point: bool,
    scale_of_codes: Callable[[float], float] = float,
) -> QuantizedBlock:
    """Quantize the elements of one block of a column.

    `rounded_before_zero_point`: DequantizeLinear's rounding; MatMulNBits adds the zero point first. `scale_of_codes`:
    what the scale is rounded to before codes are made with it.
    """
    top, half = (1 << bits) - 1, 1 << (bits - 1)
    low, high = min(block), max(block)
    if symmetric:
        extreme = high if abs(high) > abs(low) else low
        scale, zero_point = _division(Fraction(extreme), Fraction(-half)), half
    else:
        low, high = min(low, 0.0), max(high, 0.0)
        scale = _division(Fraction(f32(Fraction(high) - Fraction(low))), Fraction(top))
        ideal = nearest_away(_division(-Fraction(low), scale)) if scale else 0
        zero_point = min(max(ideal, 0), top)
    used = Fraction(scale_of_codes(float(scale)))
    reciprocal = Fraction(f32(1 / used)) if used else Fraction(0)
    codes = []
    for value in block:
        product = Fraction(f32(Fraction(value) * reciprocal))
        if rounded_before_zero_point:
            code = nearest_away(product) + zero_point
        else:
            code = nearest_away(Fraction(f32(product + zero_point)))
        codes.append(min(max(code, 0), top))
    return QuantizedBlock(float(scale), zero_point, codes)
