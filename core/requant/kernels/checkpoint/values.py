"""The kernels from the codes of a weight to its values, and to the numbers that it holds.

    value  = f32((table[code] - z) * s), rounded to `precision`, then to the kind of the target; NaN is positive
    number = f64(table[code] - z) * f64(s), which is exact where z is an integer or 0: the factors have 24 bits

The table has the value of each of the 256 bytes that a code may be, so one loop serves integers and small floats.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Array, Number, device, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, F64, I64, U8, In, Out
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.memory import elements_of, gather, load_as
from requant.kernels.simd.narrow import store_f32
from requant.kernels.simd.rounding import round_to_precision
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import convert, first, select, splat

_NATIVE = int(Precision.NATIVE)


@device
def _value(
    codes: Array, i: Number, table: Array, scale: Number, zero: Number, precision: Number, mask: Number = None
) -> Number:
    # A byte is an index into 256 values whatever it is.
    code = convert(load_as(codes, i, np.uint8, mask), np.int32)
    value = (gather(table, code) - splat(zero)) * splat(scale)
    # The sign of a NaN that the processor makes is not the same everywhere.
    value = select(value == value, value, splat(np.float32(np.nan)))
    return value if precision == _NATIVE else round_to_precision(value, precision)


@kernel()
def scaled_values(
    codes: In[U8],  # [rows, stride]
    stride: I64,
    table: In[F32],  # 256 values
    rows: I64,
    columns: I64,
    height: I64,  # of a block
    width: I64,  # of a block
    scales: In[F32],  # [ceil(rows / height), ceil(columns / width)]
    zero_points: In[F32],  # of the same shape, or none
    precision: I64,  # by Precision
    kind: I64,  # of the target, by FloatKind: F32, F16 or BF16
    target: Out[U8],  # as bytes: [rows, columns] floats
) -> None:
    """Decode and scale a weight."""
    prefer_wide_vectors()
    per_row = (columns + width - 1) // width
    bytes_, numbers, floats = elements_of(codes), elements_of(table), elements_of(target)
    for row in range(rows):
        index = row // height * per_row
        for column in range(0, columns, width):
            length = min(width, columns - column)
            at = row * stride + column
            to = row * columns + column
            scale = scales[index]
            zero = zero_points[index] if zero_points.size > 0 else np.float32(0)
            index += 1
            whole = length - length % LANES
            for i in range(0, whole, LANES):
                store_f32(floats, to + i, _value(bytes_, at + i, numbers, scale, zero, precision), kind)
            if whole < length:
                valid = first(length - whole)
                value = _value(bytes_, at + whole, numbers, scale, zero, precision, valid)
                store_f32(floats, to + whole, value, kind, valid)


@kernel()
def exact_numbers(
    codes: In[U8],  # [rows, stride]
    stride: I64,
    table: In[F32],  # 256 values
    rows: I64,
    columns: I64,
    height: I64,  # of a block
    width: I64,  # of a block
    scales: In[F32],  # [ceil(rows / height), ceil(columns / width)]
    zero_points: In[F32],  # of the same shape, or none
    target: Out[F64],  # [rows, columns]
) -> None:
    """Decode and scale a weight without rounding."""
    per_row = (columns + width - 1) // width
    for row in range(rows):
        index = row // height * per_row
        for column in range(0, columns, width):
            length = min(width, columns - column)
            at = row * stride + column
            to = row * columns + column
            scale = np.float64(scales[index])
            zero = np.float64(zero_points[index]) if zero_points.size > 0 else 0.0
            index += 1
            for i in range(length):
                target[to + i] = (np.float64(table[codes[at + i]]) - zero) * scale
