"""Kernels that sum the error between two arrays of real numbers, one block of elements at a time.

x = (a - zero_a) * scale_a and y = (b - zero_b) * scale_b, each step in binary64. Elements of which x or y is NaN or
infinite are left out. Of the others, each block of BLOCK elements gives

    signal  sum of x * x        noise  sum of (y - x) * (y - x)        absolute  sum of |y - x|        and the largest

Every term is rounded to binary64. Lane j of a block adds up its terms j, j + LANES, j + 2 LANES, ... in this order,
from 0; then lane j takes lane j + h for h = LANES/2, LANES/4, ... 1. So the result is the same for every vector unit
and for every way to cut a tensor at block bounds.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, device, kernel
from requant.kernels.jit.signature import F32, F64, I8, I16, I32, I64, In, Out

Value = TypeVar("Value", F32, F64, I8, I16, I32)

BLOCK = 1024
LANES = 128


@device
def _add_halves(lanes: Array) -> Number:
    half = LANES // 2
    while half > 0:
        for i in range(half):
            lanes[i] += lanes[i + half]
        half //= 2
    return lanes[0]


def _error_sums(floats: bool) -> Kernel:
    dtypes = (types.float32, types.float64) if floats else (types.int8, types.int16, types.int32)

    @kernel(*({Value: each} for each in dtypes))
    def error_sums(
        a: In[Value],
        b: In[Value],
        flip: I64,  # added to signed integers bit by bit, to read them as unsigned; 0 for floats
        zero_a: F64,  # zero_a
        scale_a: F64,  # scale_a
        zero_b: F64,  # zero_b
        scale_b: F64,  # scale_b
        signal: Out[F64],  # one per block
        noise: Out[F64],  # one per block
        absolute: Out[F64],  # one per block
        largest: Out[F64],  # one per block
        left_out: Out[I64],  # one per block
    ) -> None:
        squares = np.empty(LANES, np.float64)
        noises = np.empty(LANES, np.float64)
        sizes = np.empty(LANES, np.float64)
        maxima = np.empty(LANES, np.float64)
        missings = np.empty(LANES, np.int64)
        for block in range(signal.size):
            squares[:] = 0.0
            noises[:] = 0.0
            sizes[:] = 0.0
            maxima[:] = 0.0
            missings[:] = 0
            end = min((block + 1) * BLOCK, a.size)
            for begin in range(block * BLOCK, end, LANES):
                left = a[begin : min(begin + LANES, end)]
                right = b[begin : min(begin + LANES, end)]
                for i in range(left.size):
                    if floats:
                        x = (np.float64(left[i]) - zero_a) * scale_a
                        y = (np.float64(right[i]) - zero_b) * scale_b
                    else:
                        x = (np.float64(np.int64(left[i]) ^ flip) - zero_a) * scale_a
                        y = (np.float64(np.int64(right[i]) ^ flip) - zero_b) * scale_b
                    # Infinity times 0 and NaN times 0 are NaN, which differs from itself.
                    probe = x * 0.0 + y * 0.0
                    finite = probe == probe
                    error = y - x if finite else 0.0
                    x = x if finite else np.float64(0.0)
                    size = abs(error)
                    squares[i] += x * x
                    noises[i] += error * error
                    sizes[i] += size
                    maxima[i] = size if size > maxima[i] else maxima[i]
                    missings[i] += not finite
            signal[block] = _add_halves(squares)
            noise[block] = _add_halves(noises)
            absolute[block] = _add_halves(sizes)
            largest[block] = maxima.max()
            left_out[block] = missings.sum()

    return error_sums


ERROR_SUMS: dict[bool, Kernel] = {floats: _error_sums(floats) for floats in (False, True)}
"""The kernel for (whether the arrays are f32 or f64; otherwise they are i8, i16 or i32)."""
