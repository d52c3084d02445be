"""Kernels from the floats of a weight to codes: integers and small floats, and those of 4 bits two to a byte.

    v = R(w / s)            R rounds to the weight's dtype, or not at all: `precision`
    v = R(v + z)            where there are zero points
    integer:  code = rint(clamp(v, lowest, highest)) + offset, 0 + offset where v is NaN
    float:    code = RNE(clamp(v, lowest, highest)); NaN gives 0x7F, of f4E2M1FN 0, of f6E2M3FN 0x20

The code of -0 is 0x80 of f8E4M3FN, 0 of f4E2M1FN, and of f6E2M3FN `offset`.

Scales belong to blocks of `height` rows and `width` columns: 1 row for groups, all columns for channels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from requant.kernels.jit.jit import Array, Kernel, Number, device, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I32, I64, U8, In, Out
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.memory import elements_of, store_as, store_half_bytes
from requant.kernels.simd.narrow import codes_of_e2m1, codes_of_e2m3, codes_of_e4m3
from requant.kernels.simd.rounding import nearest_integers, round_to_precision
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import first, larger, select, smaller, splat, zero_like
from requant.kernels.simd.widen import FloatKind, load_f32

_NATIVE, _F16, _BF16 = int(Precision.NATIVE), int(Precision.F16), int(Precision.BF16)
_KIND_F16, _KIND_BF16 = int(FloatKind.F16), int(FloatKind.BF16)
_BYTES_OF_F32 = 4


@device
def rounded(value: Number, precision: int) -> Number:
    """R of the module's formulas."""
    return value if precision == _NATIVE else round_to_precision(value, precision)


@device
def clamped(value: Number, lowest: Number, highest: Number) -> Number:
    """The nearest between the bounds; NaN stays."""
    return larger(splat(lowest), smaller(splat(highest), value))


@device
def integers(value: Number, offset: Number) -> Number:
    """The code of each number between the bounds."""
    number = nearest_integers(select(value == value, value, zero_like(value)))
    return number + splat(offset)


@device
def e4m3(value: Number, offset: Number) -> Number:
    """The code of f8E4M3FN, likewise."""
    return codes_of_e4m3(value)


@device
def e2m3(value: Number, offset: Number) -> Number:
    """The code of f6E2M3FN, likewise."""
    return codes_of_e2m3(value, offset)


@device
def e2m1(value: Number, offset: Number) -> Number:
    """The code of f4E2M1FN, likewise."""
    return codes_of_e2m1(value)


def _codes(encode: Callable[[Number, Number], Number], *, is_float: bool, packed: bool = False) -> Kernel:
    @device
    def convert(
        source: Array,
        i: Number,
        kind: int,
        precision: int,
        scale: Number,
        zero: Number,
        has_zero: bool,
        lowest: Number,
        highest: Number,
        offset: Number,
        mask: Number = None,
    ) -> Number:
        value = rounded(load_f32(source, i, kind, mask) / splat(scale), precision)
        if has_zero:
            value = rounded(value + splat(zero), precision)
        return encode(clamped(value, lowest, highest), offset)

    @device
    def segment(
        source: Array,
        target: Array,
        at: Number,
        begin: Number,
        length: Number,
        kind: int,
        precision: int,
        scale: Number,
        zero: Number,
        has_zero: bool,
        bounds: tuple[Number, Number, Number],
    ) -> None:
        """Convert `length` elements from `begin` on into codes, the first of which is number `at` of the target."""
        lowest, highest, offset = bounds
        whole = length - length % LANES
        for i in range(0, whole, LANES):
            code = convert(source, begin + i, kind, precision, scale, zero, has_zero, lowest, highest, offset)
            if packed:
                store_half_bytes(target, (at + i) // 2, code)
            else:
                store_as(target, at + i, code, np.int8)
        if whole < length:
            valid = first(length - whole)
            code = convert(
                source, begin + whole, kind, precision, scale, zero, has_zero, lowest, highest, offset, valid
            )
            if packed:
                code = select(valid, code, zero_like(code))
                store_half_bytes(target, (at + whole) // 2, code, (length - whole + 1) // 2)
            else:
                store_as(target, at + whole, code, np.int8, valid)

    @kernel()
    def codes(
        source: In[U8],  # as bytes: [rows, columns] floats
        kind: I64,  # their kind, by FloatKind: F32, F16 or BF16
        rows: I64,
        columns: I64,
        height: I64,  # of a block
        width: I64,  # of a block
        scales: In[F32],  # [ceil(rows / height), ceil(columns / width)]
        zero_points: In[F32],  # of the same shape, or none
        precision: I64,  # of each step, by Precision: of the kind, or NATIVE
        lowest: F32,
        highest: F32,
        offset: I32,
        stride: I64,  # codes from one row to the next in the target
        target: Out[U8],
    ) -> None:
        prefer_wide_vectors()
        bounds = (lowest, highest, offset)
        per_row = (columns + width - 1) // width
        has_zero = zero_points.size > 0
        floats, bytes_ = elements_of(source), elements_of(target)
        for row in range(rows):
            index = row // height * per_row
            for column in range(0, columns, width):
                length = min(width, columns - column)
                begin = row * columns + column
                at = row * stride + column
                scale = scales[index]
                zero = zero_points[index] if has_zero else np.float32(0)
                index += 1
                # With constants where it pays.
                if has_zero and not is_float:
                    if precision == _BF16:
                        segment(floats, bytes_, at, begin, length, _KIND_BF16, _BF16, scale, zero, True, bounds)
                    elif precision == _F16:
                        segment(floats, bytes_, at, begin, length, _KIND_F16, _F16, scale, zero, True, bounds)
                    else:
                        segment(floats, bytes_, at, begin, length, kind, _NATIVE, scale, zero, True, bounds)
                elif precision == _BF16:
                    segment(floats, bytes_, at, begin, length, _KIND_BF16, _BF16, scale, zero, False, bounds)
                elif precision == _F16:
                    segment(floats, bytes_, at, begin, length, _KIND_F16, _F16, scale, zero, False, bounds)
                else:
                    segment(floats, bytes_, at, begin, length, kind, _NATIVE, scale, zero, False, bounds)

    return codes


INTEGER_CODES = _codes(integers, is_float=False)
PACKED_INTEGER_CODES = _codes(integers, is_float=False, packed=True)
E4M3_CODES = _codes(e4m3, is_float=True)
E2M3_CODES = _codes(e2m3, is_float=True)
PACKED_E2M1_CODES = _codes(e2m1, is_float=True, packed=True)
