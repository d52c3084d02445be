"""What integer products cost, so that one limit means about the same time for every shape.

The unit is a quarter of a nanosecond of a CPU at 3 GHz. The constants are fitted to measurements of both ways over many
shapes and err on the expensive side; full tiles without VNNI take what is written here, with it a quarter.
"""

from __future__ import annotations

from requant.kernels.contract.tile import TILE_COLUMNS

COST_OF_ELEMENT = 8
"""A sum: its bias, its corrections, and where it is written."""
COST_OF_START = 1 << 17
"""Starting on one more small piece of work: a block of a group, a matrix of a batch."""

_COST_OF_PACKED = 4
# Products for one unit, in tiles and in plain loops; and what an inner loop costs before its first product.
_TILED_PRODUCTS = 16
_PLAIN_PRODUCTS = 2
_COST_OF_RUN = 20


def cost_of_tiles(rows: int, depth: int, columns: int) -> int:
    """Return the cost of a matrix product of packed panels: tiles that are not full cost as much as full ones."""
    filled = -(-columns // TILE_COLUMNS) * TILE_COLUMNS
    packed = (rows + columns) * depth * _COST_OF_PACKED
    return packed + rows * depth * filled // _TILED_PRODUCTS + rows * columns * COST_OF_ELEMENT


def cost_of_runs(runs: int, products: int) -> int:
    """Return the cost of products without tiles, in so many inner loops."""
    return runs * _COST_OF_RUN + products // _PLAIN_PRODUCTS
