"""The parameters of two sides, and perhaps of multipliers of their own, brought to one granularity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import UnsupportedError
from requant.plan.channels import Channels, block_counts, channels_of, whole_blocks

# Two sides of different granularity have as many parameters as both together tell apart.
_MAX_PARAMETERS = 65_536


@dataclass(frozen=True, slots=True)
class Granularity:
    """The coarsest blocks that lie within one block of every side. `indices[k]` has the parameter of side k for each.

    `blocks` is their size along each dimension, `count` their number; they are in row-major order.
    """

    channels: Channels
    blocks: tuple[int, ...]
    count: int
    indices: tuple[NDArray[np.int64], ...]


def _index(shape: Sequence[int], blocks: Sequence[int], side: Sequence[int]) -> NDArray[np.int64]:
    """Return, for each block, the row-major index of the block of `side` that it lies in."""
    rank = len(shape)
    of_side = block_counts(shape, side)
    index: NDArray[Any] = np.zeros((1,) * rank, np.int64)
    for axis, count in enumerate(block_counts(shape, blocks)):
        along = np.arange(count) * blocks[axis] // side[axis] * prod(of_side[axis + 1 :])
        index = index + along.reshape([-1 if i == axis else 1 for i in range(rank)])
    return index.ravel()


def common_granularity(shape: Sequence[int], *sides: tuple[Sequence[int], int]) -> Granularity:
    """Combine sides, each given by the size of its blocks along each dimension and the number of its parameters.

    Raise UnsupportedError if that makes more parameters than any side has, and more than 65536.
    """
    most = max(count for _, count in sides)
    if 0 in shape:
        # No element has a parameter; the multipliers are derived and told all the same.
        indices = tuple(np.arange(most) % count for _, count in sides)
        return Granularity(Channels(1, 1, 1), whole_blocks(shape), most, indices)
    blocks = tuple(gcd(*sizes) for sizes in zip(*(blocks for blocks, _ in sides), strict=True))
    count = prod(block_counts(shape, blocks))
    if count > max(most, _MAX_PARAMETERS):
        raise UnsupportedError(
            f"the granularities of input and output make {count} parameters together; at most {_MAX_PARAMETERS} are "
            "computed with"
        )
    indices = tuple(_index(shape, blocks, side) for side, _ in sides)
    return Granularity(channels_of(shape, blocks), blocks, count, indices)
