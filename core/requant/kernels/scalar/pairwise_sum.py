"""The sum of an array in the order in which numpy's `sum` adds a contiguous one, each step rounded.

Up to 128 numbers: eight running sums of every eighth number, added as ((0+1)+(2+3))+((4+5)+(6+7)), then what is left
over; fewer than eight are added from left to right. More numbers: the sum of both halves, the first of which is a
multiple of eight. Source: numpy 2.4 umath loops, pairwise sum.
"""

from __future__ import annotations

from requant.kernels.jit.jit import Array, Number, device

_BLOCK = 128


@device
def _block_sum(values: Array) -> Number:
    total = values.dtype.type(0)
    if values.size < 8:
        for value in values:
            total = values.dtype.type(total + value)
        return total
    sums = values[:8].copy()
    whole = values.size - values.size % 8
    for begin in range(8, whole, 8):
        for column in range(8):
            sums[column] += values[begin + column]
    for step in (1, 2, 4):
        for column in range(0, 8, 2 * step):
            sums[column] += sums[column + step]
    total = sums[0]
    for index in range(whole, values.size):
        total = values.dtype.type(total + values[index])
    return total


@device
def pairwise_sum(values: Array) -> Number:
    """Return the sum of a 1-D contiguous array of f32 or f64, in its own precision."""
    if values.size <= _BLOCK:
        return _block_sum(values)
    half = values.size // 2
    half -= half % 8
    return pairwise_sum(values[:half]) + pairwise_sum(values[half:])
