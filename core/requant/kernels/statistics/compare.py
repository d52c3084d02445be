"""Kernels that count how two flat arrays differ: mismatches, where the first are, and a histogram of differences.

The differences of one block at a time go to scratch memory as int64, so that every loop but the last vectorizes:

    integers          b - a
    float patterns    key(b) - key(a), key(bits) = magnitude bits, negated under a sign: -0 and +0 are both 0
    real numbers      RNE((b - a) / step)

Two NaN differ by 0, and so do equal infinities. A NaN and a number have no difference. A difference beyond int64 is
taken as +-(2^63 - 1).

A difference d belongs to rank(|d|), on the side of its sign: ranks 0 to 16 are the magnitudes themselves, and rank
r >= 17 holds 2^(r-13) to 2^(r-12) - 1, except that rank 17 begins at 17.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, device, kernel
from requant.kernels.jit.signature import F64, I8, I16, I32, I64, In, Out
from requant.kernels.scalar.rounding import round_half_even

Value = TypeVar("Value", I8, I16, I32, I64)

LARGEST_EXACT = 16
"""The largest magnitude that has a bucket of its own."""

RANKS = 76
ZERO = RANKS - 1
BUCKETS = 2 * RANKS - 1
UNDEFINED = BUCKETS
MISMATCHES = BUCKETS + 1
BIT_MISMATCHES = BUCKETS + 2
COUNTS = BUCKETS + 3
"""A tally is COUNTS int64: the buckets from the lowest difference to the highest, the undefined, the mismatches, and
the elements whose bits differ, which of real numbers are not counted."""

_BLOCK = 1024
_TABLES = 8
_EXPONENT_TO_RANK = 13
_MAXIMUM = (1 << 63) - 1
_NOTHING = -(1 << 63)
# Beyond this a binary64 no longer tells a magnitude from the power of two above it.
_LARGEST_MAGNITUDE_IN_F64 = 1 << 52
_BEYOND_INT64 = 2.0**63


@device
def _subtract(a: Number, b: Number) -> Number:
    """b - a in int64, saturated to +-(2^63 - 1)."""
    difference = b - a
    if ((a ^ b) & (b ^ difference)) < 0:
        difference = _MAXIMUM if b > a else -_MAXIMUM
    return max(difference, -_MAXIMUM)


@device
def _record(start: Number, unlike: Array, found: Number, positions: Array) -> None:
    """Append the indices of the elements that are unlike, while there is room."""
    for i in range(unlike.size):
        if unlike[i] != 0:
            if found == positions.size:
                break
            positions[found] = start + i
            found += 1


@device
def _tally(differences: Array, magnitudes: Array, tables: Array) -> None:
    """Count each difference in its bucket. Several tables, because one counter cannot be increased every cycle."""
    bits = magnitudes.view(np.int64)
    size = differences.size
    for i in range(size):
        magnitude = abs(differences[i])
        wide = magnitude >= _LARGEST_MAGNITUDE_IN_F64
        magnitudes[i] = np.float64((magnitude >> 11) if wide else magnitude)
    for i in range(size):
        difference = differences[i]
        magnitude = abs(difference)
        wide = magnitude >= _LARGEST_MAGNITUDE_IN_F64
        rank = (bits[i] >> 52) - 1023 + _EXPONENT_TO_RANK + (11 if wide else 0)
        rank = magnitude if magnitude <= LARGEST_EXACT else rank
        bucket = ZERO - rank if difference < 0 else ZERO + rank
        bits[i] = UNDEFINED if difference == _NOTHING else bucket
    for i in range(size):
        # 0 to UNDEFINED: a magnitude below 2^63 has a rank of at most RANKS - 1, and that of -2^63 is not looked at.
        tables[(i % _TABLES) * COUNTS + bits[i]] += 1


def _compare(floats: bool) -> Kernel:
    dtypes = (types.int16, types.int32, types.int64) if floats else (types.int8, types.int16, types.int32, types.int64)

    @kernel(*({Value: each} for each in dtypes))
    def compare(
        a: In[Value],
        b: In[Value],
        start: I64,  # index of a[0] in the whole tensor
        code: I64,  # of floats, the bits of infinity; of integers, what flips unsigned ones to signed
        counts: Out[I64],  # added to: a tally
        positions: Out[I64],  # the indices of the first mismatches, as many as it has room for
    ) -> None:
        magnitude_mask = (np.int64(1) << (8 * a.itemsize - 1)) - 1
        differences = np.empty(_BLOCK, np.int64)
        unlike = np.empty(_BLOCK, np.int64)
        magnitudes = np.empty(_BLOCK, np.float64)
        tables = np.zeros(_TABLES * COUNTS, np.int64)
        for done in range(0, a.size, _BLOCK):
            length = min(_BLOCK, a.size - done)
            left = a[done : done + length]
            right = b[done : done + length]
            block = differences[:length]
            mismatches = 0
            for i in range(length):
                # Unequal bits first: most blocks of most comparisons have none, and then nothing else is done.
                mismatches += left[i] != right[i]
            if mismatches == 0:
                tables[ZERO] += length
                continue
            counts[BIT_MISMATCHES] += mismatches
            if floats:
                for i in range(length):
                    x = np.int64(left[i])
                    y = np.int64(right[i])
                    x_magnitude = x & magnitude_mask
                    y_magnitude = y & magnitude_mask
                    x_key = -x_magnitude if x < 0 else x_magnitude
                    y_key = -y_magnitude if y < 0 else y_magnitude
                    difference = _subtract(x_key, y_key)
                    x_missing = x_magnitude > code
                    y_missing = y_magnitude > code
                    difference = _NOTHING if x_missing | y_missing else difference
                    block[i] = 0 if x_missing & y_missing else difference
            else:
                for i in range(length):
                    block[i] = _subtract(np.int64(left[i]) ^ code, np.int64(right[i]) ^ code)
            mismatches = 0
            flags = unlike[:length]
            for i in range(length):
                flags[i] = block[i] != 0
                mismatches += flags[i]
            if counts[MISMATCHES] < positions.size:
                _record(start + done, flags, counts[MISMATCHES], positions)
            counts[MISMATCHES] += mismatches
            _tally(block, magnitudes[:length], tables)
        for i in range(tables.size):
            counts[i % COUNTS] += tables[i]

    return compare


COMPARE_INTEGERS = _compare(floats=False)
"""Of i8, u8, i16, u16, i32 and i64 arrays."""

COMPARE_FLOATS = _compare(floats=True)
"""Of the patterns of floats, as u16, i32 and i64 arrays."""


@kernel()
def compare_reals(
    a: In[F64],
    b: In[F64],
    steps: In[F64],  # the size of one step at each element
    start: I64,  # index of a[0] in the whole tensor
    counts: Out[I64],  # added to: a tally
    positions: Out[I64],  # the indices of the first mismatches, as many as it has room for
) -> None:
    """Of the real numbers that quantized elements stand for. Unequal reals less than half a step apart differ by 0."""
    differences = np.empty(_BLOCK, np.int64)
    unlike = np.empty(_BLOCK, np.int64)
    magnitudes = np.empty(_BLOCK, np.float64)
    tables = np.zeros(_TABLES * COUNTS, np.int64)
    for done in range(0, a.size, _BLOCK):
        length = min(_BLOCK, a.size - done)
        left = a[done : done + length]
        right = b[done : done + length]
        sizes = steps[done : done + length]
        block = differences[:length]
        flags = unlike[:length]
        mismatches = 0
        for i in range(length):
            x = left[i]
            y = right[i]
            same = (x == y) | ((x != x) & (y != y))
            flags[i] = 0 if same else 1
            mismatches += flags[i]
            difference = round_half_even((y - x) / sizes[i])
            whole = np.int64(difference) if abs(difference) < _BEYOND_INT64 else _MAXIMUM
            whole = -_MAXIMUM if difference <= -_BEYOND_INT64 else whole
            whole = whole if difference == difference else _NOTHING
            block[i] = 0 if same else whole
        if counts[MISMATCHES] < positions.size:
            _record(start + done, flags, counts[MISMATCHES], positions)
        counts[MISMATCHES] += mismatches
        _tally(block, magnitudes[:length], tables)
    for i in range(tables.size):
        counts[i % COUNTS] += tables[i]
