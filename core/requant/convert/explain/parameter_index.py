"""Which scale and zero point belong to an element."""

from __future__ import annotations

from collections.abc import Sequence

from requant.plan.channels import block_counts


def parameter_index(shape: Sequence[int], blocks: Sequence[int], element: int) -> int:
    """Return the index of an element's parameter, both row-major. `blocks`: the block size along each dimension."""
    index, weight = 0, 1
    for size, block, count in zip(
        reversed(shape), reversed(blocks), reversed(block_counts(shape, blocks)), strict=True
    ):
        element, place = divmod(element, size)
        index += place // block * weight
        weight *= count
    return index
