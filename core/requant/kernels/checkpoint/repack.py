"""The kernels that look for the scales with which another format holds some numbers, f64, and divide by them.

Blocks are `height` rows of `width` columns, cut off at the edges; their parameters are [ceil(rows / height),
ceil(columns / width)].
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import kernel
from requant.kernels.jit.signature import F32, F64, I64, In, Out

_MAGNITUDE = (1 << 63) - 1


@kernel()
def peaks_of_blocks(
    patterns: In[I64],  # of the numbers: [rows, columns]
    rows: I64,
    columns: I64,
    height: I64,
    width: I64,
    scales: In[F32],  # that the numbers have now, by blocks of their own
    scale_height: I64,
    scale_width: I64,
    peaks: Out[I64],  # patterns of the largest magnitudes; those of NaN are above all
    of_peaks: Out[F32],  # the scales of these
) -> None:
    """Find the largest magnitude of each block, and the scale that it has now. At first all peaks are -1."""
    per_row, scales_per_row = (columns + width - 1) // width, (columns + scale_width - 1) // scale_width
    for row in range(rows):
        first, first_scale = row // height * per_row, row // scale_height * scales_per_row
        column = 0
        while column < columns:
            block, scale = column // width, column // scale_width
            end = min(columns, (block + 1) * width, (scale + 1) * scale_width)
            segment = patterns[row * columns + column : row * columns + end]
            most = np.int64(0)
            for i in range(segment.size):
                most = max(most, np.int64(segment[i] & _MAGNITUDE))
            if most > peaks[first + block]:
                peaks[first + block] = most
                of_peaks[first + block] = scales[first_scale + scale]
            column = end


@kernel()
def steps_of_blocks(
    numbers: In[F64],  # [rows, columns]
    rows: I64,
    columns: I64,
    height: I64,
    width: I64,
    scales: In[F64],
    lowest: Out[F64],  # at first infinity
    highest: Out[F64],  # at first minus infinity
) -> None:
    """Find the lowest and the highest of rint(number / scale) in each block. What is not finite counts as 0."""
    per_row = (columns + width - 1) // width
    for row in range(rows):
        block = row // height * per_row
        for column in range(0, columns, width):
            scale, low, high = scales[block], lowest[block], highest[block]
            for i in range(row * columns + column, row * columns + min(column + width, columns)):
                step = np.rint(numbers[i] / scale)
                step = step if abs(step) < np.inf else 0.0
                low, high = min(low, step), max(high, step)
            lowest[block], highest[block] = low, high
            block += 1


@kernel()
def numbers_in_units(
    numbers: In[F64],  # [rows, columns]
    rows: I64,
    columns: I64,
    height: I64,
    width: I64,
    scales: In[F64],
    target: Out[F32],  # [rows, columns]
) -> None:
    """Divide by scales. Where the quotient is not finite, an infinity gives 1 or -1, which times the scale has its
    sign, and all else 0.
    """
    per_row = (columns + width - 1) // width
    for row in range(rows):
        block = row // height * per_row
        for column in range(0, columns, width):
            scale = scales[block]
            block += 1
            for i in range(row * columns + column, row * columns + min(column + width, columns)):
                number = numbers[i]
                unit = number / scale
                sign = np.copysign(1.0, number) * np.copysign(1.0, scale) if abs(number) == np.inf else 0.0
                target[i] = np.float32(unit if abs(unit) < np.inf else sign)
