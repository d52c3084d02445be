"""The first NaN or infinity of a weight, or the first value too large for a format."""

from __future__ import annotations

import numpy as np

from requant.checkpoint.weights.blocks import Block, largest_magnitudes
from requant.checkpoint.weights.floats import values
from requant.checkpoint.weights.weight_format import Array


def first_not_below(rows: Array, dtype: str, limit: float) -> int | None:
    """Return the index, in row-major order, of the first NaN or magnitude of at least `limit`; None without one.

    `rows` as `WeightFormat.quantize` takes them, C-contiguous. With an infinite limit: the first NaN or infinity.
    """
    if rows.size == 0:
        return None
    of_rows = largest_magnitudes(rows, dtype, Block(1, rows.shape[1]))
    below = of_rows[:, 0] < limit
    if below.all():
        return None
    row = int(np.argmin(below))
    column = int(np.argmin(np.abs(values(rows[row], dtype)) < limit))
    return row * int(rows.shape[1]) + column
