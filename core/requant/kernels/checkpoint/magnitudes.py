"""The largest magnitude of each segment of the rows of a weight, over bit patterns.

Without the sign, patterns have the order of the magnitudes, with infinity and then NaN above all. So the loop is one of
integers, the answer is the same in any order, and shows whether there was anything that is not finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, kernel, readable, writable
from requant.kernels.jit.processor import prefer_wide_vectors


def _largest_magnitudes(width: int) -> Kernel:
    number: types.Type = types.int16 if width == 16 else types.int32
    integer: Any = np.int16 if width == 16 else np.int32
    mask = (1 << (width - 1)) - 1

    @kernel(
        (
            readable(number),  # patterns of [rows, columns] floats
            types.int64,  # columns
            types.int64,  # width: columns of a segment; the last of a row may be shorter
            writable(number),  # largest [rows, ceil(columns / width)]
        )
    )
    def largest_magnitudes(patterns: Array, columns: Number, width: Number, largest: Array) -> None:
        prefer_wide_vectors()
        index = 0
        for row in range(0, patterns.size, columns):
            for begin in range(row, row + columns, width):
                segment = patterns[begin : min(begin + width, row + columns)]
                most = integer(0)
                for i in range(segment.size):
                    magnitude = integer(segment[i] & integer(mask))
                    most = max(most, magnitude)
                largest[index] = most
                index += 1

    return largest_magnitudes


LARGEST_MAGNITUDES: dict[int, Kernel] = {width: _largest_magnitudes(width) for width in (16, 32)}
"""By the bits of a float."""
