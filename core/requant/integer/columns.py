"""The right side of a product, made ready once: sums of products with any rows, exact in 32 or 64 bits.

    sums[m, n] = sum over k of (a[m, k] - za[m]) * (b[k, n] - zb[n]) + bias[n]

Sums of 32 bits are taken modulo 2^32. Kernels: `requant.kernels.contract.accumulate`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from requant.integer.accumulation import Integers
from requant.kernels.contract.accumulate import (
    BYTES_OF_GROUP,
    CORRECT,
    MULTIPLY_BYTES,
    MULTIPLY_PAIRS,
    PACK_COLUMNS_OF_BYTES,
    PACK_COLUMNS_OF_PAIRS,
    PACK_ROWS_OF_BYTES,
    PACK_ROWS_OF_PAIRS,
    add_widened,
    multiply_unpacked,
)
from requant.kernels.contract.tile import ROWS_ARE_UNSIGNED, TILE_COLUMNS, TILE_ROWS

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


Array = NDArray[Any]

# Bytes of packed columns, for each column, that a tile goes through: 64 of them stay in the caches next to the core.
_CHUNK_BYTES = 1024
# Columns whose sums are kept at a time.
_COLUMN_BLOCK = 4096
# Sums of 64 bits are made of sums of 32 over this many k; with fewer, packing does not pay.
_SHORTEST_CHUNK = 64
_LARGEST_INT32 = (1 << 31) - 1


class Columns(Protocol):
    """The right side of a product with `depth` k."""

    depth: int

    def accumulate(self, rows: Array, zeros: Array, bias: Array, target: Array, stride: int) -> None:
        """Write the sums of rows (stored integers, m by k, contiguous) with zero points `zeros` (int64, one for each).

        `bias` and `target` are of the sums' dtype; target is flat, with `stride` numbers from row to row.
        """


def exact_depth(lhs: Integers, rhs: Integers) -> int:
    """How many products of stored integers always sum up to less than 2^31."""
    return _LARGEST_INT32 // (lhs.largest_stored * rhs.largest_stored)


def is_tiled(lhs: Integers, rhs: Integers, sums: np.dtype[Any], depth: int) -> bool:
    """Whether `TiledColumns` can make the sums: 64 bits need a useful number of products that 32 bits hold."""
    return sums.itemsize == 4 or exact_depth(lhs, rhs) >= min(depth, _SHORTEST_CHUNK)


class TiledColumns:
    """Columns packed for tiles."""

    def __init__(
        self, numbers: Array, lhs: Integers, rhs: Integers, zeros: Array, sums: np.dtype[Any], first: int, count: int
    ) -> None:
        """Pack `count` columns from `first` on of `numbers` (stored integers, k by n, contiguous).

        `zeros` are the zero points of those columns.
        """
        self.depth, width = numbers.shape
        self._columns, self._sums = count, sums
        self._bytes = MULTIPLY_BYTES is not None and lhs.dtype.itemsize == rhs.dtype.itemsize == 1
        unit = BYTES_OF_GROUP if self._bytes else BYTES_OF_GROUP // 2
        self._unit, longest = unit, _CHUNK_BYTES // BYTES_OF_GROUP * unit
        if sums.itemsize == 8:
            longest = min(longest, max(unit, exact_depth(lhs, rhs) // unit * unit))
        self._chunks = [(k, min(longest, self.depth - k)) for k in range(0, self.depth, longest)]
        # Bytes become signed on the right, and on the left what the instruction takes; 16-bit numbers become signed.
        self._row_flip, self._row_offset = self._packing(lhs, to_unsigned=self._bytes and ROWS_ARE_UNSIGNED)
        flip, offset = self._packing(rhs, to_unsigned=False)
        source = self._viewed(numbers.ravel())
        pack = PACK_COLUMNS_OF_BYTES if self._bytes else PACK_COLUMNS_OF_PAIRS[source.dtype.name]
        self._panels = -(-count // TILE_COLUMNS)
        totals = np.zeros(count, np.int64)
        self._packed = []
        for k, depth in self._chunks:
            size = self._panels * TILE_COLUMNS * self._groups(depth) * unit
            packed = np.zeros(size, np.int8 if self._bytes else np.int16)
            pack(source, width, first, count, k, depth, flip, packed, totals)
            self._packed.append(packed)
        # int64 to int32 is modulo 2^32.
        self._zeros, self._totals = (zeros - offset).astype(sums), totals.astype(sums)

    def _packing(self, side: Integers, *, to_unsigned: bool) -> tuple[int, int]:
        """Return what kernels flip of each number, and what it has then been lessened by."""
        if self._bytes:
            flip = 0 if side.is_unsigned is to_unsigned else 128
            return flip, flip if side.is_unsigned else -flip
        flip = -(1 << 15) if side.dtype == np.uint16 else 0
        return flip, -flip

    def _viewed(self, numbers: Array) -> Array:
        """Return stored integers in the dtype that kernels take them in."""
        if self._bytes:
            return numbers.view(np.uint8)
        return numbers.view(np.int16) if numbers.dtype == np.uint16 else numbers

    def _groups(self, depth: int) -> int:
        return -(-depth // self._unit)

    def accumulate(self, rows: Array, zeros: Array, bias: Array, target: Array, stride: int) -> None:
        count = rows.shape[0]
        source = self._viewed(rows.reshape(-1))
        pack = PACK_ROWS_OF_BYTES if self._bytes else PACK_ROWS_OF_PAIRS[source.dtype.name]
        padded = -(-count // TILE_ROWS) * TILE_ROWS
        totals = np.zeros(count, np.int64)
        packed = []
        for k, depth in self._chunks:
            chunk = np.zeros(padded * self._groups(depth) * self._unit, np.uint8 if self._bytes else np.int16)
            pack(source, self.depth, count, k, depth, self._row_flip, chunk, totals)
            packed.append(chunk)
        packed_zeros = zeros - self._row_offset
        differences = (totals - self.depth * packed_zeros).astype(self._sums)
        packed_zeros = packed_zeros.astype(self._sums)
        block = _COLUMN_BLOCK // TILE_COLUMNS
        for panel in range(0, self._panels, block):
            first = panel * TILE_COLUMNS
            columns = slice(first, min(first + block * TILE_COLUMNS, self._columns))
            sums, width = self._multiplied(packed, count, padded, panel, min(block, self._panels - panel), columns)
            CORRECT[self._sums.name](
                sums,
                width,
                columns.stop - first,
                differences,
                packed_zeros,
                self._zeros[columns],
                self._totals[columns],
                bias[columns],
                target[first:],
                stride,
            )

    def _multiplied(
        self, packed: list[Array], count: int, padded: int, panel: int, panels: int, columns: slice
    ) -> tuple[Array, int]:
        """Return the sums of packed products, and how many there are in a row."""
        multiply = MULTIPLY_BYTES if self._bytes else MULTIPLY_PAIRS
        assert multiply is not None
        width = panels * TILE_COLUMNS
        sums = np.zeros(padded * width, np.int32)
        if self._sums.itemsize == 4:
            for (_, depth), a, b in zip(self._chunks, packed, self._packed, strict=True):
                multiply(a, b, self._groups(depth), panel, panels, sums)
            return sums, width
        column_count = columns.stop - columns.start
        totals = np.zeros(count * column_count, np.int64)
        for (_, depth), a, b in zip(self._chunks, packed, self._packed, strict=True):
            multiply(a, b, self._groups(depth), panel, panels, sums)
            add_widened(sums, width, column_count, totals)
            sums[:] = 0
        return totals, column_count


class UnpackedColumns:
    """Columns as they are, for sums of 64 bits of products that 32 bits cannot add up."""

    def __init__(self, numbers: Array, zeros: Array) -> None:
        """Take `numbers` (stored integers, k by n, contiguous) and a zero point for each n."""
        self.depth = numbers.shape[0]
        self._numbers = (numbers.astype(np.int32) - zeros.astype(np.int32)).ravel()

    def accumulate(self, rows: Array, zeros: Array, bias: Array, target: Array, stride: int) -> None:
        assert stride == bias.size
        differences = (rows.astype(np.int32) - zeros.astype(np.int32)[:, None]).ravel()
        multiply_unpacked(differences, self._numbers, self.depth, bias, target[: rows.shape[0] * stride])
