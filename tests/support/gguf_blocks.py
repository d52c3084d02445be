"""Blocks of GGUF's types with any codes and scales, and with floats that a sane file does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

F16_AT = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "Q1_0": [0], "Q2_0": [0], "TQ1_0": [52], "TQ2_0": [64], "IQ4_NL": [0], "IQ4_XS": [0],
    "IQ3_S": [0], "IQ3_XXS": [0], "IQ2_S": [0], "IQ2_XS": [0], "IQ2_XXS": [0], "IQ1_S": [0],
}  # fmt: skip
"""Where blocks have f16. Q8_K has an f32, IQ1_M the parts of an f16."""

ODD_F16 = (
    *(0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF),
    *(0x7C00, 0xFC00, 0x7C01, 0xFD23, 0x7E00, 0xFE00, 0x7FFF),
)
ODD_F32 = (0, 0x80000000, 1, 0x7FFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFF900001, 0x7FC00000)


def any_blocks(name: str, block_bytes: int, count: int, random: np.random.Generator) -> Array:
    """Random bytes [count, block_bytes]: in every second block each float is an odd one. The first 256 have all values
    of a byte at each place."""
    blocks = random.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    blocks[:256] += np.arange(256, dtype=np.uint8)[: len(blocks), None] - blocks[:1]
    odd = blocks[::2]
    drawn = random.choice(np.array(ODD_F16, "<u2"), (len(odd), 2))
    for column, at in enumerate(F16_AT.get(name, ())):
        odd[:, at : at + 2] = drawn[:, column].copy().view("|u1").reshape(-1, 2)
    if name == "Q8_K":
        odd[:, :4] = random.choice(np.array(ODD_F32, "<u4"), len(odd)).view("|u1").reshape(-1, 4)
    if name == "IQ1_M":
        words = odd[:, 48:56].copy().view("<u2") & np.uint16(0x0FFF)
        quarters = drawn[:, :1] >> np.arange(0, 16, 4, dtype="<u2") << 12
        odd[:, 48:56] = (words | quarters).astype("<u2").view("|u1")
    return blocks


def odd_rows(random: np.random.Generator, count: int) -> Array:
    """f32 [some, 256] with `count` rows of each kind: magnitudes far apart and below 1e-15, ties, zeros of both signs,
    one sign only, few values that are not 0."""
    shape = (count, 256)

    def normal() -> Array:
        return random.standard_normal(shape)

    def powers(lowest: int, highest: int, width: int) -> Array:
        return np.exp2(random.integers(lowest, highest, (count, 256 // width))).repeat(width, axis=1)

    kinds = [
        normal(),
        normal() * powers(-40, 8, 32),
        normal() * powers(-140, 12, 16),
        normal() * powers(10, 20, 256),
        normal() * 1e-14,
        random.integers(-24, 25, shape) / 4,
        random.standard_t(2, shape) * 0.02,
        np.abs(normal()),
        -np.abs(normal()),
        random.uniform(0.9, 1, shape),
        normal() * (random.random(shape) < 0.03),
        normal() * (random.random((count, 8)) < 0.5).repeat(32, axis=1),
        (normal().astype("<f4").view("<u4") & np.uint32(0xFFFF0000)).view("<f4"),
        *(np.full((1, 256), value) for value in (0.0, -0.0, 0.37, -1e-20, 1e-16, -1e-15)),
    ]
    rows: Array = np.concatenate(kinds).astype("<f4")
    return np.ascontiguousarray(rows)
