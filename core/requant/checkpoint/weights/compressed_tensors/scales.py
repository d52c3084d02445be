"""Scales and zero points of integers and FP8.

Source: compressed-tensors 0.20.0, `calculate_qparams` (`quantization/utils/helpers.py`). R rounds to the weight's
dtype W, and mn = min(0, smallest), mx = max(0, largest) of what shares a scale.

    symmetric:    s = R(max(-mn, mx) / ((hi - lo) / 2))
    asymmetric:   s = R(R(mx - mn) / (hi - lo)), z = int8(rint(clamp(R(lo - R(mn / s)), lo, hi))), 0 where that is NaN
    s = 0:        the epsilon of W
"""

from __future__ import annotations

import numpy as np

from requant.checkpoint.weights.floats import EPSILON, rounded
from requant.checkpoint.weights.weight_format import Array


def symmetric_scales(largest: Array, half_range: float, dtype: str) -> Array:
    """Return the scales of codes without zero points, rounded to `dtype`, as f32. `half_range`: (hi - lo) / 2."""
    return _not_zero(rounded(largest / np.float32(half_range), dtype), dtype)


def asymmetric_scales(lows: Array, highs: Array, bits: int, dtype: str) -> tuple[Array, Array]:
    """Return the scales, and the zero points, as f32."""
    zero, lowest, highest = np.float32(0), np.float32(-(2.0 ** (bits - 1))), np.float32(2.0 ** (bits - 1) - 1)
    smallest, largest = np.minimum(lows, zero), np.maximum(highs, zero)
    with np.errstate(all="ignore"):
        scales = rounded(rounded(largest - smallest, dtype) / (highest - lowest), dtype)
        ideal = rounded(lowest - rounded(smallest / scales, dtype), dtype)
    points = np.rint(np.clip(ideal, lowest, highest))
    return _not_zero(scales, dtype), np.where(np.isnan(points), zero, points)


def _not_zero(scales: Array, dtype: str) -> Array:
    return np.where(scales == 0, EPSILON[dtype], scales)
