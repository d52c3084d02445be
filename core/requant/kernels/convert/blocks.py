"""Kernels for block formats: one pass over each block for its largest magnitude, one for its elements.

The largest magnitude is taken over bit patterns, whose order as integers is that of the magnitudes, with infinities
and NaNs above all; so exponents are exact and the reduction vectorizes.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from requant.kernels.jit.jit import Array, Number, device, kernel
from requant.kernels.jit.signature import F32, I32, I64, U8, Bool, In, Out
from requant.kernels.scalar.rounding import (
    bits_of_f32,
    f32_of_bits,
    round_half_away,
    round_half_even,
    round_toward_zero,
)
from requant.kernels.scalar.small_floats import nearest_code_of_f32

_MAGNITUDE = 0x7FFFFFFF
_MANTISSA = 0x007FFFFF
_HALF_OF_SMALLEST_NORMAL = 0x00400000
_INFINITY = 0x7F800000
_NAN_SCALE = 255
_LARGEST_SCALE = 254
# Two-level blocks: the smallest normal and the largest value of f8E4M3FN, its NaN, and the largest of f4E2M1FN.
_SMALLEST_E4M3 = np.float32(0.015625)
_LARGEST_E4M3 = np.float32(448.0)
_NAN_E4M3 = 0x7F
_LARGEST_E2M1 = np.float32(6.0)


@device
def largest_magnitude(values: Array) -> Number:
    """The bits of the largest |value|; beyond those of infinity if one is NaN."""
    largest = np.int32(0)
    for i in range(values.size):
        magnitude = np.int32(bits_of_f32(values[i]) & _MAGNITUDE)
        largest = magnitude if magnitude > largest else largest
    return largest


@device
def reciprocal_of_scale(scale: Number) -> Number:
    """2^(127 - scale), the exact reciprocal of a finite E8M0 scale; for the largest one it is a subnormal."""
    normal = np.int32(np.int32(_LARGEST_SCALE - scale) << 23)
    return f32_of_bits(np.int32(0x400000) if scale >= _LARGEST_SCALE else normal)


class ExponentRule(IntEnum):
    """How `quantize_mx` takes the shared exponent from a block's largest magnitude."""

    FLOOR = 0
    """Its exponent."""
    DOUBLED = 1
    """One more where the largest magnitude would otherwise overflow."""
    CEIL = 2
    """Its exponent, rounded up."""
    EVEN = 3
    """Its exponent once it is rounded to the element's mantissa, ties away from zero."""
    QUOTIENT_CEIL = 4
    """The exponent of its quotient by the element's largest value, rounded up, and no other one subtracted."""


_DOUBLED, _CEIL, _EVEN, _QUOTIENT_CEIL = (int(each) for each in list(ExponentRule)[1:])


@device
def shared_scale(largest: Number, exponent: Number, mantissa_bits: Number, largest_value: Number, rule: int) -> Number:
    """The code of the scale; DOUBLED as FLOOR. `exponent`: of the element's largest value."""
    if rule == _QUOTIENT_CEIL:
        quotient = bits_of_f32(f32_of_bits(largest) / largest_value)
        scale = np.int32(quotient >> 23)
        if scale == 0:
            # 2^-127, half of the smallest normal number, is the smallest scale.
            return np.int32(quotient > _HALF_OF_SMALLEST_NORMAL)
        scale = np.int32(scale + np.int32(np.int32(quotient & _MANTISSA) != 0))
        return scale if scale < _LARGEST_SCALE else np.int32(_LARGEST_SCALE)
    scale = np.int32(largest >> 23)
    if rule == _CEIL:
        scale = np.int32(scale + np.int32(np.int32(largest & _MANTISSA) != 0))
    elif rule == _EVEN:
        scale = np.int32(np.int64(np.int64(largest) + (np.int64(1) << (22 - mantissa_bits))) >> 23)
    scale = np.int32(scale - exponent)
    return scale if scale > 0 else np.int32(0)


@device
def nan_element(value: Number, code: Number, flip: Number) -> Number:
    """What is written where the scale is NaN: one code for all, but for the sign of a value that is itself a NaN."""
    bits = bits_of_f32(value)
    negative = (bits < 0) & (np.int32(bits & _MAGNITUDE) > _INFINITY)
    return np.int32(code ^ (flip if negative else np.int32(0)))


@kernel()
def quantize_mx(
    source: In[F32],
    scales: Out[U8],
    elements: Out[U8],
    block: I64,
    largest_exponent: I32,  # exponent of the element's largest value
    mantissa_bits: I32,
    bias: I32,
    sign_bit: I32,
    largest_code: I32,
    largest_value: F32,
    rule: I64,  # ExponentRule
    reciprocal_of_smallest: F32,  # what the elements of the smallest scale are multiplied by
    least_special: I32,  # the bits of the smallest magnitude that makes the scale NaN
    nan_code: I32,  # the code of every element of a block whose scale is NaN
    nan_flip: I32,  # what it is exclusive-ored with for a NaN with its sign set
) -> None:
    """f32 to E8M0 scales and small floats, saturating."""
    for index in range(scales.size):
        values = source[index * block : (index + 1) * block]
        codes = elements[index * block : (index + 1) * block]
        largest = largest_magnitude(values)
        # The exponent field, 0 for zero and subnormals: their scale is below the smallest one whatever their value.
        scale = shared_scale(largest, largest_exponent, mantissa_bits, largest_value, rule)
        if rule == _DOUBLED:
            scaled = bits_of_f32(f32_of_bits(largest) * reciprocal_of_scale(scale))
            scale = np.int32(scale + np.int32(nearest_code_of_f32(scaled, mantissa_bits, bias) > largest_code))
        special = largest >= least_special
        reciprocal = reciprocal_of_scale(scale) if scale > 0 else reciprocal_of_smallest
        for i in range(values.size):
            bits = bits_of_f32(values[i] * reciprocal)
            code = nearest_code_of_f32(np.int32(bits & _MAGNITUDE), mantissa_bits, bias)
            code = largest_code if code > largest_code else code
            code = np.int32(code | np.int32(np.int32(bits >> 31) & sign_bit))
            codes[i] = nan_element(values[i], nan_code, nan_flip) if special else code
        scales[index] = _NAN_SCALE if special else scale


@kernel()
def quantize_mxint8(
    source: In[F32],
    scales: Out[U8],
    elements: Out[U8],  # the bits of int8
    block: I64,
    lowest: F32,  # lowest element: -127 or -128
    doubling: Bool,  # whether the scale is doubled where the largest magnitude would otherwise overflow
    nan_code: I32,  # the code of every element of a block whose scale is NaN
    nan_flip: I32,  # what it is exclusive-ored with for a NaN with its sign set
) -> None:
    """f32 to E8M0 scales and integers, 64ths of the scale, saturating."""
    for index in range(scales.size):
        values = source[index * block : (index + 1) * block]
        codes = elements[index * block : (index + 1) * block]
        largest = largest_magnitude(values)
        scale = np.int32(largest >> 23)
        if doubling:
            scaled = f32_of_bits(largest) * reciprocal_of_scale(scale)
            scale = np.int32(scale + np.int32(round_half_even(scaled * np.float32(64.0)) > np.float32(127.0)))
        special = largest >= _INFINITY
        scale = scale if scale < _LARGEST_SCALE else np.int32(_LARGEST_SCALE)
        reciprocal = reciprocal_of_scale(scale)
        for i in range(values.size):
            value = round_half_even(values[i] * reciprocal * np.float32(64.0))
            # In this order, so that a NaN is a number before it is an integer.
            value = value if value > lowest else lowest
            value = value if value < np.float32(127.0) else np.float32(127.0)
            code = np.int32(np.int32(value) & 255)
            codes[i] = nan_element(values[i], nan_code, nan_flip) if special else code
        scales[index] = _NAN_SCALE if special else scale


@kernel()
def quantize_nvfp4(
    source: In[F32],
    scales: Out[U8],  # f8E4M3FN
    elements: Out[U8],  # f4E2M1FN
    block: I64,
    global_scale: F32,  # 1 if there is none
    values_of_e4m3: In[F32],  # the values of f8E4M3FN
) -> None:
    """f32 to f8E4M3FN scales, themselves scaled by one f32, and f4E2M1FN."""
    for index in range(scales.size):
        values = source[index * block : (index + 1) * block]
        codes = elements[index * block : (index + 1) * block]
        largest = largest_magnitude(values)
        ideal = f32_of_bits(largest) / _LARGEST_E2M1 / global_scale
        ideal = ideal if ideal > _SMALLEST_E4M3 else _SMALLEST_E4M3
        ideal = ideal if ideal < _LARGEST_E4M3 else _LARGEST_E4M3
        # Within 2^-6 and 448, also if it was NaN: a normal code of f8E4M3FN, 0x08 to 0x7E.
        scale = nearest_code_of_f32(bits_of_f32(ideal), np.int32(3), np.int32(7))
        divisor = global_scale * values_of_e4m3[scale]
        not_a_number = largest > _INFINITY
        kept = np.int32(0) if not_a_number else np.int32(15)
        for i in range(values.size):
            bits = bits_of_f32(values[i] / divisor)
            code = nearest_code_of_f32(np.int32(bits & _MAGNITUDE), np.int32(1), np.int32(1))
            code = np.int32(7) if code > 7 else code
            codes[i] = np.int32(np.int32(code | np.int32(np.int32(bits >> 31) & 8)) & kept)
        scales[index] = _NAN_E4M3 if not_a_number else scale


@kernel()
def scale_blocks(
    elements: In[U8],
    table: In[F32],  # the value of every code
    scales: In[F32],
    block: I64,
    target: Out[F32],
) -> None:
    """f32(table[code] * scale), one scale for each block. The table has a power of two of entries."""
    # The caller refuses codes beyond the table. The mask holds even if the bytes change after that.
    mask = table.size - 1
    for index in range(scales.size):
        codes = elements[index * block : (index + 1) * block]
        values = target[index * block : (index + 1) * block]
        scale = scales[index]
        for i in range(codes.size):
            values[i] = table[codes[i] & mask] * scale


@kernel()
def extremes(source: In[F32], block: I64, extreme: Out[F32], lowest: Out[F32], highest: Out[F32]) -> None:
    """Of each block the value of the largest magnitude, the lowest and the highest; of equal ones the first.

    A NaN anywhere makes the first of the three NaN, and an infinity is that: neither can hide behind a comparison.
    """
    for index in range(extreme.size):
        values = source[index * block : (index + 1) * block]
        far = values[0]
        low = values[0]
        high = values[0]
        for i in range(values.size):
            value = values[i]
            far = value if (abs(value) > abs(far)) | (value != value) else far
            low = value if value < low else low
            high = value if value > high else high
        extreme[index] = far
        lowest[index] = low
        highest[index] = high


@kernel()
def quantize_symmetric(source: In[F32], block: I64, reciprocals: In[F32], codes: Out[U8]) -> None:
    """RNA(f32(x * reciprocal)) as the bits of an int8; what int8 does not hold saturates, and NaN gives -128."""
    for index in range(reciprocals.size):
        values = source[index * block : (index + 1) * block]
        outputs = codes[index * block : (index + 1) * block]
        reciprocal = reciprocals[index]
        for i in range(values.size):
            value = round_half_away(values[i] * reciprocal)
            value = value if value > np.float32(-128.0) else np.float32(-128.0)
            value = value if value < np.float32(127.0) else np.float32(127.0)
            outputs[i] = np.int32(np.int32(value) & 255)


@kernel()
def quantize_shifted(
    source: In[F32],
    block: I64,
    minimums: In[F32],  # subtracted first
    reciprocals: In[F32],
    added: F32,  # what is added before the truncation
    largest: F32,  # largest code
    codes: Out[U8],
) -> None:
    """min(largest, RTZ(f32(f32(f32(x - minimum) * reciprocal) + added))); what is negative, or NaN, gives 0."""
    for index in range(reciprocals.size):
        values = source[index * block : (index + 1) * block]
        outputs = codes[index * block : (index + 1) * block]
        reciprocal = reciprocals[index]
        minimum = minimums[index]
        for i in range(values.size):
            value = round_toward_zero((values[i] - minimum) * reciprocal + added)
            value = value if value > np.float32(0.0) else np.float32(0.0)
            outputs[i] = np.int32(value if value < largest else largest)
