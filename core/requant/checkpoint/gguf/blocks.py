"""What the types of blocks in GGUF files have in common: how their numbers become values, and what they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import PreconditionError
from requant.kernels.checkpoint.scaled_groups import scaled_groups
from requant.kernels.simd.vector import LANES
from requant.plan.float_arrays import f32_of_f16

Array = NDArray[Any]

_NONE = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The numbers of some blocks: value = f32(scale * code), or f32(f32(scale * code) - minimum).

    `codes`: int8 [blocks, elements]. `scales`: f32 [blocks, groups]; a group is a run of as many codes as there are to
    a scale. `heads`: f32 [blocks, 1 or 2], the floats that a block stores, of which scales and minimums are products.
    """

    codes: Array
    scales: Array
    heads: Array
    minimums: Array | None = None

    def values(self) -> Array:
        """Return the f32 values, flat, the same bits on every CPU.

        A NaN is that of the product, else that of the minimum: of the float that the block stores for it, or, where an
        infinity makes one, the negative one that x86 makes.
        """
        blocks, elements = self.codes.shape
        groups = self.scales.shape[1]
        nans = np.where(np.isnan(self.heads), self.heads, -np.float32(np.nan))
        target = np.empty(blocks * elements, np.float32)
        scaled_groups(
            _flat(self.codes),
            elements // groups,
            _flat(self.scales),
            _NONE if self.minimums is None else _flat(self.minimums),
            groups,
            _flat(nans[:, 0]),
            _flat(nans[:, -1]),
            target,
        )
        return target


def _flat(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1)


def f16_at(blocks: Array, at: int, count: int = 1) -> Array:
    """Return f32 [blocks, count]: the f16 from byte `at` on."""
    return f32_of_f16(np.ascontiguousarray(blocks[:, at : at + 2 * count]).view("<f2"))


def fields(packed: Array, bits: int) -> Array:
    """Return the fields of so many bits that bytes [..., n] hold, the lowest ones first: [..., 8 / bits, n]."""
    shifts = np.arange(0, 8, bits, dtype="|u1")[:, None]
    return (packed[..., None, :] >> shifts) & np.uint8((1 << bits) - 1)


def packed_fields(codes: Array) -> Array:
    """Return the bytes [..., n] whose fields, the lowest ones first, are codes [..., 2, 4 or 8, n]."""
    count = codes.shape[-2]
    packed = np.zeros((*codes.shape[:-2], codes.shape[-1]), "|u1")
    for place in range(count):
        packed |= codes[..., place, :] << np.uint8(8 // count * place)
    return packed


def side_by_side(blocks: Array) -> Array:
    """Return [n / 16, m, 16] of [n, m]: sixteen blocks beside each other, with zeros in place of missing ones."""
    count, elements = blocks.shape
    missing = -count % LANES
    if missing:
        blocks = np.concatenate([blocks, np.zeros((missing, elements), blocks.dtype)])
    return np.ascontiguousarray(blocks.reshape(-1, LANES, elements).transpose(0, 2, 1))


def apart(numbers: Array, count: int) -> Array:
    """Return [count, m] again."""
    return numbers.transpose(0, 2, 1).reshape(-1, numbers.shape[1])[:count]


def check(usable: Array, block: int, detail: str) -> None:
    """Raise PreconditionError for the first block that is not usable. `{index}` stands for its index in `detail`."""
    if not usable.all():
        raise PreconditionError(detail, index=int(np.argmin(usable)) * block)


def stored_f16(values: Array, block: int) -> Array:
    """Return f32 as f16. Raises PreconditionError for one beyond them, the value itself, or the scale of its block."""
    with np.errstate(over="ignore"):
        stored = values.astype("<f2")
    what = "value" if block == 1 else "scale of the block"
    check(np.isfinite(stored), block, f"the {what} at index {{index}} is beyond f16's 65504")
    return stored
