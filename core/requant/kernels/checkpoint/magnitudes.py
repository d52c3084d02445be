"""The largest magnitude of each segment of the rows of a weight, over bit patterns.

Without the sign, patterns have the order of the magnitudes, with infinity and then NaN above all. So the loop is one of
integers, the answer is the same in any order, and shows whether there was anything that is not finite.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import I16, I32, I64, In, Out

Bits = TypeVar("Bits", I16, I32)


def _largest_magnitudes(width: int) -> Kernel:
    number: types.Type = types.int16 if width == 16 else types.int32
    integer: Any = np.int16 if width == 16 else np.int32
    mask = (1 << (width - 1)) - 1

    @kernel({Bits: number})
    def largest_magnitudes(
        patterns: In[Bits],  # of [rows, columns] floats
        columns: I64,
        width: I64,  # columns of a segment; the last of a row may be shorter
        largest: Out[Bits],  # [rows, ceil(columns / width)]
    ) -> None:
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
