"""f32 inputs that find mistakes: ties and their neighbours, the bounds and theirs, specials, random bit patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.cases import EXHAUSTIVE, sample_array

SPECIAL = np.array(
    [0x7FC00000, 0xFFC00000, 0x7F800001, 0x7F800000, 0xFF800000, 0x00000000, 0x80000000, 0x00000001, 0x80000001,
     0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x4F000000, 0xCF000000, 0x4EFFFFFF, 0xCF000001, 0x3EFFFFFF,
     0xBEFFFFFF, 0x3F000000, 0xBF000000, 0x3F000001, 0x4B000000, 0x4B000001, 0x4A800001],
    "<u4",
).view("<f4")  # fmt: skip


def neighbours(values: NDArray[Any]) -> NDArray[Any]:
    """Each value with the f32 below and above it."""
    below = np.nextafter(values, np.float32(-np.inf), dtype=np.float32)
    above = np.nextafter(values, np.float32(np.inf), dtype=np.float32)
    return np.concatenate([below, values, above])


def around_ties(scale: float, zero_point: int, lowest: int, highest: int, rng: np.random.Generator) -> NDArray[Any]:
    """Values at and beside steps and half steps of a quantizer, all of them for 8 bits, and of its bounds."""
    steps = np.arange(lowest - 3, highest + 4) if highest - lowest < 1000 else rng.integers(lowest, highest, 500)
    steps = sample_array(steps, 40)
    edges = np.array([lowest, highest, 0, zero_point])
    whole = np.concatenate([steps, edges - 1, edges, edges + 1]).astype(np.float64) - zero_point
    with np.errstate(over="ignore"):
        return neighbours((np.concatenate([whole, whole + 0.5]) * scale).astype(np.float32))


def sixteen_bits() -> NDArray[np.uint16]:
    """All patterns of 16 bits. In a sample every 67th, and of each sign and exponent those at and beside powers of two
    and ties of the narrower formats; the last of them are NaNs.
    """
    everything = np.arange(1 << 16, dtype=np.uint16)
    telling = np.isin(everything & 0xFF, (0x00, 0x01, 0x08, 0x18, 0x40, 0x7F, 0x80, 0x81, 0xC0, 0xFF))
    return everything if EXHAUSTIVE else everything[telling | (everything % 67 == 0)]


def patterns(count: int, rng: np.random.Generator) -> NDArray[Any]:
    """Random bit patterns: every exponent, NaN and infinity among them."""
    return rng.integers(0, 1 << 32, count, dtype=np.uint32).view("<f4")
