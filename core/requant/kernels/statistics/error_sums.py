"""Kernels that sum the error between two arrays of real numbers, one block of elements at a time.

x = (a - zero_a) * scale_a and y = (b - zero_b) * scale_b, each step in binary64. Elements of which x or y is NaN or
infinite are left out. Of the others, each block of BLOCK elements gives

    signal  sum of x * x        noise  sum of (y - x) * (y - x)        absolute  sum of |y - x|        and the largest

Every term is rounded to binary64. Sum j of a block adds up its terms j, j + SUMS, j + 2 SUMS, ... in this order,
from 0; then sum j takes sum j + h for h = SUMS/2, SUMS/4, ... 1. So the result is the same for every vector unit
and for every way to cut a tensor at block bounds.

Squared errors are also summed for each parameter of a layout (`requant.kernels.loops`), element after element:

    sum += (y - x) * (y - x)          each step in binary64

The elements of one parameter are added in the tensor's row-major order to what it has so far. So a tensor can be worked
through in any pieces, in their order, with the same sums.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, device, kernel
from requant.kernels.jit.signature import F32, F64, I8, I16, I32, I64, In, Out, Real
from requant.kernels.loops import locate, next_run

Value = TypeVar("Value", F32, F64, I8, I16, I32)

BLOCK = 1024
SUMS = 128


@device
def _add_halves(sums: Array) -> Number:
    half = SUMS // 2
    while half > 0:
        for i in range(half):
            sums[i] += sums[i + half]
        half //= 2
    return sums[0]


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
        squares = np.empty(SUMS, np.float64)
        noises = np.empty(SUMS, np.float64)
        sizes = np.empty(SUMS, np.float64)
        maxima = np.empty(SUMS, np.float64)
        missings = np.empty(SUMS, np.int64)
        for block in range(signal.size):
            squares[:] = 0.0
            noises[:] = 0.0
            sizes[:] = 0.0
            maxima[:] = 0.0
            missings[:] = 0
            end = min((block + 1) * BLOCK, a.size)
            for begin in range(block * BLOCK, end, SUMS):
                left = a[begin : min(begin + SUMS, end)]
                right = b[begin : min(begin + SUMS, end)]
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


def _squared_error(cycle: bool) -> Kernel:
    @kernel({Real: types.float32}, {Real: types.float64})
    def squared_error(
        a: In[Real],  # x
        b: In[Real],  # y
        start: I64,  # index of a[0] in the whole tensor
        run: I64,  # run, channels, group and groups: as in requant.kernels.loops
        channels: I64,
        group: I64,
        groups: I64,
        owners: In[I64],  # the parameter of each entry of the layout; of a cycle, its own
        sums: Out[F64],  # one per parameter
    ) -> None:
        layout = (run, channels, group, groups, cycle)
        place = locate(start, layout)
        done = 0
        while done < a.size:
            first, length, place = next_run(place, a.size - done, layout)
            left = a[done : done + length]
            right = b[done : done + length]
            if cycle:
                row = sums[first : first + length]
                for i in range(left.size):
                    error = np.float64(right[i]) - np.float64(left[i])
                    row[i] += error * error
            else:
                total = sums[owners[first]]
                for i in range(left.size):
                    error = np.float64(right[i]) - np.float64(left[i])
                    total += error * error
                sums[owners[first]] = total
            done += length

    return squared_error


SQUARED_ERROR: dict[bool, Kernel] = {cycle: _squared_error(cycle) for cycle in (False, True)}
"""The kernel for (cycle): a cycle whose elements each are one parameter."""
