"""Kernels for block formats: one pass over each block for its largest magnitude, one for its elements.

The largest magnitude is taken over bit patterns, whose order as integers is that of the magnitudes, with infinities
and NaNs above all; so exponents are exact and the reduction vectorizes.
"""

from __future__ import annotations

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Number, device, kernel, readable, writable
from requant.kernels.scalar.rounding import (
    bits_of_f32,
    f32_of_bits,
    round_half_away,
    round_half_even,
    round_toward_zero,
)
from requant.kernels.scalar.small_floats import nearest_code_of_f32

_MAGNITUDE = 0x7FFFFFFF
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


@device
def nan_element(value: Number, code: Number, flip: Number) -> Number:
    """What is written where the scale is NaN: one code for all, but for the sign of a value that is itself a NaN."""
    bits = bits_of_f32(value)
    negative = (bits < 0) & (np.int32(bits & _MAGNITUDE) > _INFINITY)
    return np.int32(code ^ (flip if negative else np.int32(0)))


@kernel(
    (
        readable(types.float32),
        writable(types.uint8),  # scales
        writable(types.uint8),  # elements
        types.int64,  # block
        types.int32,  # exponent of the element's largest value
        types.int32,  # mantissa bits
        types.int32,  # bias
        types.int32,  # sign bit
        types.int32,  # largest code
        types.boolean,  # whether the scale is doubled where the largest magnitude would otherwise overflow
        types.int32,  # the code of every element of a block whose scale is NaN
        types.int32,  # what it is exclusive-ored with for a NaN with its sign set
    )
)
def quantize_mx(
    source: Array,
    scales: Array,
    elements: Array,
    block: Number,
    largest_exponent: Number,
    mantissa_bits: Number,
    bias: Number,
    sign_bit: Number,
    largest_code: Number,
    doubling: Number,
    nan_code: Number,
    nan_flip: Number,
) -> None:
    """f32 to E8M0 scales and small floats, saturating."""
    for index in range(scales.size):
        values = source[index * block : (index + 1) * block]
        codes = elements[index * block : (index + 1) * block]
        largest = largest_magnitude(values)
        # The exponent field, 0 for zero and subnormals: their scale is below the smallest one whatever their value.
        scale = np.int32(np.int32(largest >> 23) - largest_exponent)
        scale = scale if scale > 0 else np.int32(0)
        if doubling:
            scaled = bits_of_f32(f32_of_bits(largest) * reciprocal_of_scale(scale))
            scale = np.int32(scale + np.int32(nearest_code_of_f32(scaled, mantissa_bits, bias) > largest_code))
        special = largest >= _INFINITY
        reciprocal = reciprocal_of_scale(scale)
        for i in range(values.size):
            bits = bits_of_f32(values[i] * reciprocal)
            code = nearest_code_of_f32(np.int32(bits & _MAGNITUDE), mantissa_bits, bias)
            code = largest_code if code > largest_code else code
            code = np.int32(code | np.int32(np.int32(bits >> 31) & sign_bit))
            codes[i] = nan_element(values[i], nan_code, nan_flip) if special else code
        scales[index] = _NAN_SCALE if special else scale


@kernel(
    (
        readable(types.float32),
        writable(types.uint8),  # scales
        writable(types.uint8),  # elements: the bits of int8
        types.int64,  # block
        types.float32,  # lowest element: -127 or -128
        types.boolean,  # whether the scale is doubled where the largest magnitude would otherwise overflow
        types.int32,  # the code of every element of a block whose scale is NaN
        types.int32,  # what it is exclusive-ored with for a NaN with its sign set
    )
)
def quantize_mxint8(
    source: Array,
    scales: Array,
    elements: Array,
    block: Number,
    lowest: Number,
    doubling: Number,
    nan_code: Number,
    nan_flip: Number,
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


@kernel(
    (
        readable(types.float32),
        writable(types.uint8),  # scales: f8E4M3FN
        writable(types.uint8),  # elements: f4E2M1FN
        types.int64,  # block
        types.float32,  # global scale, 1 if there is none
        readable(types.float32),  # the values of f8E4M3FN
    )
)
def quantize_nvfp4(
    source: Array, scales: Array, elements: Array, block: Number, global_scale: Number, values_of_e4m3: Array
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


@kernel(
    (
        readable(types.uint8),  # elements
        readable(types.float32),  # the value of every code
        readable(types.float32),  # scales
        types.int64,  # block
        writable(types.float32),
    )
)
def scale_blocks(elements: Array, table: Array, scales: Array, block: Number, target: Array) -> None:
    """f32(table[code] * scale), one scale for each block. The table has a power of two of entries."""
    # The caller refuses codes beyond the table. The mask holds even if the bytes change after that.
    mask = table.size - 1
    for index in range(scales.size):
        codes = elements[index * block : (index + 1) * block]
        values = target[index * block : (index + 1) * block]
        scale = scales[index]
        for i in range(codes.size):
            values[i] = table[codes[i] & mask] * scale


@kernel((readable(types.float32), types.int64, *(writable(types.float32) for _ in range(3))))
def extremes(source: Array, block: Number, extreme: Array, lowest: Array, highest: Array) -> None:
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


@kernel((readable(types.float32), types.int64, readable(types.float32), writable(types.uint8)))
def quantize_symmetric(source: Array, block: Number, reciprocals: Array, codes: Array) -> None:
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


@kernel(
    (
        readable(types.float32),
        types.int64,  # block
        readable(types.float32),  # minimums, subtracted first
        readable(types.float32),  # reciprocals
        types.float32,  # what is added before the truncation
        types.float32,  # largest code
        writable(types.uint8),
    )
)
def quantize_shifted(
    source: Array, block: Number, minimums: Array, reciprocals: Array, added: Number, largest: Number, codes: Array
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
