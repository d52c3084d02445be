"""Tensors of NVFP4 whose scales and elements are ties, or some ulps beside them; of tiny and zero blocks too."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.oracles.small_floats import value_of

Array = NDArray[Any]

BLOCK = 16
_TIES = np.array([0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6], np.float32)


def _scales() -> Array:
    values = [value_of("f8E4M3FN", code) for code in range(1, 127)]
    return np.array([float(value) for value in values if isinstance(value, Fraction)], np.float32)


def _moved(values: Array, rng: np.random.Generator, ulps: int) -> Array:
    bits = values.astype(np.float32).view(np.int32) + rng.integers(-ulps, ulps + 1, values.shape, dtype=np.int32)
    return np.asarray(np.maximum(bits, 0).view(np.float32))


def hostile_blocks(rng: np.random.Generator, largest: float, count: int) -> Array:
    """About `count` blocks with `largest` as their largest magnitude."""
    unit = np.float32(largest) / np.float32(2688)
    scales = _scales()
    with np.errstate(all="ignore"):
        divisors = (rng.choice(scales, (count // 2, 1)) * unit).astype(np.float32)
        at_ties = _moved(divisors * rng.choice(_TIES, (count // 2, BLOCK)), rng, 4)
        at_ties[:, 3] = _moved(divisors[:, 0] * np.float32(6), rng, 2)
        between = (scales[:-1] + scales[1:]) / 2 * np.float64(6) * unit
        of_scales = (rng.choice(between, (count // 4, 1)) * rng.uniform(0, 1, (count // 4, BLOCK))).astype(np.float32)
        of_scales[:, 5] = _moved(rng.choice(between, count // 4), rng, 2)
        wide = np.abs(rng.standard_normal((count // 4, BLOCK))) * largest / 8
        wide = (wide * np.exp2(rng.integers(-40, 0, (count // 4, 1)))).astype(np.float32)
        zeros = np.zeros((4, BLOCK), np.float32)
        zeros[1, 2], zeros[2] = largest, np.float32(1e-44)
    found = np.concatenate([at_ties, of_scales, wide, zeros]) * rng.choice([np.float32(-1), np.float32(1)], BLOCK)
    return np.asarray(np.clip(found, np.float32(-largest), np.float32(largest)), np.float32)


def _difference_of_errors(blocks: Array, largest: float, power: int) -> Array:
    """By how much the error of 4 is above that of 6, in f64."""
    errors = []
    for expansion in (1, 1.5):
        largest_of_blocks = np.abs(blocks).max(axis=1, keepdims=True)
        scales = (largest_of_blocks * (256 / largest) * expansion).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
        units = scales * largest / 1536
        elements = (blocks / np.where(units, units, 1)).astype(ml_dtypes.float4_e2m1fn).astype(np.float64)
        errors.append((np.abs(elements * units - blocks) ** power).sum(axis=1))
    return np.asarray(errors[1] - errors[0])


def undecided_blocks(rng: np.random.Generator, largest: float, count: int, power: int) -> Array:
    """Blocks whose squared errors (`power` 2) or absolute ones (1) by 4 and by 6 are equal but for some ulps."""
    blocks = (rng.uniform(-1, 1, (count, BLOCK)) * largest * np.exp2(rng.uniform(-6, 0, (count, 1)))).astype(np.float32)
    blocks[0, 0] = largest
    place = rng.integers(1, BLOCK, count)
    rows = np.arange(count)
    low, high = blocks.copy(), blocks.copy()
    high[rows, place] *= np.float32(1.3)
    positive = _difference_of_errors(high.astype(np.float64), largest, power) > 0
    kept = positive != (_difference_of_errors(low.astype(np.float64), largest, power) > 0)
    for _ in range(40):
        middle = low.copy()
        middle[rows, place] = (low[rows, place] + high[rows, place]) / 2
        like_high = (_difference_of_errors(middle.astype(np.float64), largest, power) > 0) == positive
        high, low = np.where(like_high[:, None], middle, high), np.where(like_high[:, None], low, middle)
    near = np.concatenate([low[kept], high[kept]])
    near[0, 0] = largest
    return np.asarray(np.clip(near, np.float32(-largest), np.float32(largest)), np.float32)
