"""Kernels for the squared error that a scale makes, summed in torch's order, so that a search ends where torch's ends.

R rounds to the weight's dtype. For each element of a block

    v = R(w / s), R(v + z) where there are zero points, clamped and rounded to the nearest code's value q
    e = R(d * d) with d = R(R(R(q - z) * s) - w)

and the sum of a block is that of torch 2.14's vectorized inner sum, with vectors of eight f32. The elements of a block,
padded with zeros where the edge of the weight cuts it off, are one row. Vectors of a row of a 16-bit dtype are those of
sixteen elements, the first eight added to the last eight. Number i of n vectors goes to sum i mod 4, up to n rounded
down to a multiple of 4, in blocks of `step` that are added to sums of their own, and those again, in four levels; what
is left goes to sum 0. Then the four sums are added, then the elements that no vector has, one by one, and then the
eight lanes; the total is rounded to the dtype. A row shorter than a vector is summed in the same way by elements.

Source: https://github.com/pytorch/pytorch, `aten/src/ATen/native/cpu/SumKernel.cpp` (`multi_row_sum`, `row_sum`,
`vectorized_inner_sum`, `scalar_inner_sum`), which has no variant for AVX-512; llm-compressor 0.14,
`observers/mse_quant.py` (`_calculate_error`); compressed-tensors 0.20.0, `quantization/lifecycle/forward_helpers.py`
(`_quantize_dequantize`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from requant.kernels.checkpoint.codes import clamped, e2m1, e2m3, e4m3, integers, rounded
from requant.kernels.jit.jit import Array, Kernel, Number, device, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I32, I64, U8, In, Out
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.memory import elements_of, gather, load, store
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import first, select, splat, zero_like
from requant.kernels.simd.widen import FloatKind, load_f32

_NATIVE, _F16, _BF16 = int(Precision.NATIVE), int(Precision.F16), int(Precision.BF16)
_KIND_F16, _KIND_BF16 = int(FloatKind.F16), int(FloatKind.BF16)
_ZERO = np.float32(0)
_LEVELS, _SUMS, _HALF = 4, 4, LANES // 2


@device
def _vector(row: Array, i: Number, halves: Number) -> Number:
    """Vector i of a row; its eight f32 are the first lanes. `halves`: of the elements of one, 2 for 16-bit dtypes."""
    if halves == 2:
        return load(row, i * LANES) + load(row, i * LANES + _HALF)
    return load(row, i * _HALF)


@device
def _sum_of_vectors(row: Array, count: Number, halves: Number, levels: Array) -> Number:
    """The sum of vectors, lane by lane."""
    quads = count // _SUMS
    power = 0
    while (1 << power) < quads:
        power += 1
    power = max(_LEVELS, power // _LEVELS)
    step = 1 << power
    for i in range(_LEVELS * _SUMS):
        store(levels, i * LANES, splat(_ZERO))
    i = 0
    while i < quads:
        begin = i
        a, b, c, d = load(levels, 0), load(levels, LANES), load(levels, 2 * LANES), load(levels, 3 * LANES)
        while i < min(begin + step, quads):
            a = a + _vector(row, i * _SUMS, halves)
            b = b + _vector(row, i * _SUMS + 1, halves)
            c = c + _vector(row, i * _SUMS + 2, halves)
            d = d + _vector(row, i * _SUMS + 3, halves)
            i += 1
        store(levels, 0, a)
        store(levels, LANES, b)
        store(levels, 2 * LANES, c)
        store(levels, 3 * LANES, d)
        level = 1
        while level < _LEVELS and i == begin + step:
            for k in range(_SUMS):
                lower, upper = ((level - 1) * _SUMS + k) * LANES, (level * _SUMS + k) * LANES
                store(levels, upper, load(levels, upper) + load(levels, lower))
                store(levels, lower, splat(_ZERO))
            if (i & ((step - 1) << (level * power))) != 0:
                break
            level += 1
    for level in range(1, _LEVELS):
        for k in range(_SUMS):
            store(levels, k * LANES, load(levels, k * LANES) + load(levels, (level * _SUMS + k) * LANES))
    total = load(levels, 0)
    for i in range(quads * _SUMS, count):
        total = total + _vector(row, i, halves)
    for k in range(1, _SUMS):
        total = total + load(levels, k * LANES)
    return total


@device
def _sum_of_elements(row: Array, count: Number) -> Number:
    """The sum of fewer elements than a vector has."""
    a, b, c, d = _ZERO, _ZERO, _ZERO, _ZERO
    whole = count - count % _SUMS
    for i in range(0, whole, _SUMS):
        a, b, c, d = a + row[i], b + row[i + 1], c + row[i + 2], d + row[i + 3]
    for i in range(whole, count):
        a += row[i]
    return ((a + b) + c) + d


def _errors(encode: Callable[[Number, Number], Number]) -> Kernel:
    @device
    def of_segment(
        source: Array,
        begin: Number,
        length: Number,
        kind: int,
        precision: int,
        scale: Number,
        zero: Number,
        table: Array,
        bounds: tuple[Number, Number, Number],
        row: Array,
        at: Number,
    ) -> None:
        """Store the errors of `length` elements, and zeros up to a whole vector."""
        lowest, highest, offset = bounds
        for i in range(0, length, LANES):
            if length - i >= LANES:
                weight = load_f32(source, begin + i, kind)
            else:
                weight = load_f32(source, begin + i, kind, first(length - i))
            value = rounded(rounded(weight / splat(scale), precision) + splat(zero), precision)
            near = gather(table, encode(clamped(value, lowest, highest), offset))
            back = rounded(rounded(near - splat(zero), precision) * splat(scale), precision)
            difference = rounded(back - weight, precision)
            error = rounded(difference * difference, precision)
            if length - i < LANES:
                error = select(first(length - i), error, zero_like(error))
            store(row, at + i, error)

    @kernel()
    def errors(
        source: In[U8],  # as bytes: [rows, columns] floats
        kind: I64,  # their kind, by FloatKind: F32, F16 or BF16
        rows: I64,
        columns: I64,
        height: I64,  # of a block
        width: I64,  # of a block
        scales: In[F32],  # [ceil(rows / height), ceil(columns / width)]
        zero_points: In[F32],  # of the same shape, or none
        table: In[F32],  # the values of the 256 codes
        lowest: F32,
        highest: F32,
        offset: I32,  # of the codes
        totals: Out[F32],  # one for each scale, not yet rounded to the kind
    ) -> None:
        prefer_wide_vectors()
        bounds = (lowest, highest, offset)
        halves = 1 if kind != _KIND_F16 and kind != _KIND_BF16 else 2
        floats, values = elements_of(source), elements_of(table)
        size = height * width
        buffer, sums = np.zeros(size + 2 * LANES, np.float32), np.empty(_LEVELS * _SUMS * LANES, np.float32)
        row, levels, lanes = elements_of(buffer), elements_of(sums), np.empty(LANES, np.float32)
        index = 0
        for top in range(0, rows, height):
            for left in range(0, columns, width):
                deep, length = min(height, rows - top), min(width, columns - left)
                scale = scales[index]
                zero = zero_points[index] if zero_points.size > 0 else _ZERO
                if deep < height or length < width:
                    buffer[:] = _ZERO
                for y in range(deep):
                    begin, at = (top + y) * columns + left, y * width
                    if kind == _KIND_BF16:
                        of_segment(floats, begin, length, _KIND_BF16, _BF16, scale, zero, values, bounds, row, at)
                    elif kind == _KIND_F16:
                        of_segment(floats, begin, length, _KIND_F16, _F16, scale, zero, values, bounds, row, at)
                    else:
                        of_segment(floats, begin, length, kind, _NATIVE, scale, zero, values, bounds, row, at)
                count = size // (halves * _HALF)
                total = _ZERO
                if count == 0:
                    total = _sum_of_elements(buffer, size)
                else:
                    store(elements_of(lanes), 0, _sum_of_vectors(row, count, halves, levels))
                    for i in range(count * halves * _HALF, size):
                        total += buffer[i]
                    for i in range(_HALF):
                        total += lanes[i]
                # NaN where the scale is: no search ends there.
                totals[index] = total if scale == scale else np.float32(np.nan)
                index += 1

    return errors


INTEGER_ERRORS = _errors(integers)
E4M3_ERRORS = _errors(e4m3)
E2M3_ERRORS = _errors(e2m3)
E2M1_ERRORS = _errors(e2m1)
