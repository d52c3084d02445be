"""The scales with which another format holds the numbers of a quantized weight, if it holds them at all.

A number is a code's value times a scale: n = v * S. Another format holds it if n = w * T for one of its codes w and one
of its scales T. Which T to choose is known before any code is looked at:

    small floats   T = m * 2^t, m the significand of S, t the least with max|n| <= largest code * T in the block.
                   Doubling a code gives a code up to the largest, so a block that any T of this significand holds is
                   held by the least. Of a scale in two levels, of which the outer is a power of two, m is 1 where one T
                   spans several S: the product of a code and a scale may be one code.
    integers       T = S, and zero points moved with the range of the codes: n = (k - z) * S.

The codes are then the nearest ones, and whether they are exact is seen by comparing the products, in f64, which holds
them all: code 4 or 8 bits, scales 24.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np

from requant.checkpoint.weights.blocks import Block, ScaledCodes
from requant.checkpoint.weights.floats import Array
from requant.kernels.checkpoint.repack import numbers_in_units, peaks_of_blocks, steps_of_blocks
from requant.kernels.checkpoint.values import exact_numbers

REPACKING_KERNELS = (exact_numbers, numbers_in_units, peaks_of_blocks, steps_of_blocks)


@dataclass(frozen=True, slots=True)
class SourceNumbers:
    """The numbers of some rows of a weight, which begin with a block of either format, and the codes that hold them.

    `numbers`: f64 [rows, in], C-contiguous.
    """

    codes: ScaledCodes
    numbers: Array

    @property
    def outer(self) -> float | None:
        """The outer scale of scales in two levels."""
        return self.codes.outer

    def scales_of_floats(self, block: Block, largest: float) -> Array:
        """Return T of each block, f64 [blocks of rows, blocks of columns]; of a block of zeros the scale that it has.

        `largest`: the value of the largest code.
        """
        peaks, scales = self.peaks(block)
        ideal, now = np.abs(scales).astype(np.float64), self.codes.block
        spans = block.height > now.height or block.width > now.width
        if spans and self.outer is not None and frexp(self.outer)[0] == 0.5:
            ideal = np.where(np.isfinite(ideal) & self._several(block), self.outer, ideal)
        with np.errstate(invalid="ignore"):
            significands, _ = np.frexp(ideal)
            of_peak, exponents = np.frexp(peaks)
            of_largest, exponents_of_largest = np.frexp(significands * largest)
            needed = exponents - exponents_of_largest + (of_peak > of_largest)
            return np.where(peaks == 0, ideal, np.ldexp(significands, needed))

    def peaks(self, block: Block) -> tuple[Array, Array]:
        """Return the largest magnitude of each block, f64, and the scale that it has now, f32."""
        rows, columns = self.numbers.shape
        shape = self._grid(block)
        patterns, scales = np.full(shape, -1, np.int64), np.zeros(shape, np.float32)
        peaks_of_blocks(
            self.numbers.reshape(-1).view(np.int64), rows, columns, *_within(block, rows, columns),
            np.ascontiguousarray(self.codes.scales, np.float32).reshape(-1),
            *_within(self.codes.block, rows, columns), patterns.reshape(-1), scales.reshape(-1),
        )  # fmt: skip
        return np.maximum(patterns, 0).view(np.float64), scales

    def steps(self, block: Block, scales: Array) -> tuple[Array, Array]:
        """Return the lowest and the highest of rint(number / scale) in each block, f64. `scales`: f64."""
        rows, columns = self.numbers.shape
        low, high = np.full(scales.shape, np.inf), np.full(scales.shape, -np.inf)
        steps_of_blocks(
            self.numbers.reshape(-1), rows, columns, *_within(block, rows, columns),
            scales.reshape(-1), low.reshape(-1), high.reshape(-1),
        )  # fmt: skip
        return low, high

    def scales_of_integers(
        self, block: Block, lowest: float, highest: float, *, zero_points: bool
    ) -> tuple[Array, Array | None]:
        """Return T and the zero point of each block, the latter None without `zero_points`.

        `lowest`, `highest`: of the codes. A block with more than one scale gets that of its first element.
        """
        scales = self.of_first_elements(self.codes.scales, block).astype(np.float64)
        if not zero_points:
            return scales, None
        low, high = self.steps(block, scales)
        points: Array = np.zeros(scales.shape)
        if self.codes.zero_points is not None:
            points = np.nan_to_num(self.of_first_elements(self.codes.zero_points, block).astype(np.float64))
        # The lowest code becomes the lowest, as far as all codes stay in range.
        least, most = lowest - low, highest - high
        points = np.clip(points + (lowest - float(self.codes.table.min())), least, np.maximum(most, least))
        return scales, np.nan_to_num(np.clip(points, lowest, highest)).astype(np.float32)

    def in_units(self, scales: Array, block: Block) -> Array:
        """Return the numbers divided by the scales of the blocks in which they lie, f32: the values of codes.

        At an infinite scale an infinity is 1 or -1, by the signs of both, and NaN is 0.
        """
        rows, columns = self.numbers.shape
        units = np.empty((rows, columns), np.float32)
        numbers_in_units(
            self.numbers.reshape(-1), rows, columns, *_within(block, rows, columns),
            np.ascontiguousarray(scales, np.float64).reshape(-1), units.reshape(-1),
        )  # fmt: skip
        return units

    def _grid(self, block: Block) -> tuple[int, int]:
        rows, columns = self.numbers.shape
        return -(-rows // block.height), block.columns(columns)

    def of_first_elements(self, parameters: Array, block: Block) -> Array:
        """Return the parameters that the first element of each block has now."""
        down, across = self._grid(block)
        now, columns = self.codes.block, self.numbers.shape[1]
        grid = parameters.reshape(-1, now.columns(columns))
        return grid[np.arange(down) * block.height // now.height][:, np.arange(across) * block.width // now.width]

    def _several(self, block: Block) -> Array:
        """Return whether the elements of each block have several scales now."""
        columns, now = self.numbers.shape[1], self.codes.block
        down, across = self._grid(block)
        grid = self.codes.scales.reshape(-1, now.columns(columns))
        rows, first = np.arange(down) * block.height // now.height, np.arange(across) * block.width // now.width
        low = np.minimum.reduceat(np.minimum.reduceat(grid, rows, axis=0), first, axis=1)
        high = np.maximum.reduceat(np.maximum.reduceat(grid, rows, axis=0), first, axis=1)
        several: Array = low != high
        return several


def _within(block: Block, rows: int, columns: int) -> tuple[int, int]:
    """Return the height and the width of a block, of one that is larger than the weight those of the weight."""
    return min(block.height, max(rows, 1)), min(block.width, max(columns, 1))


def powers_of_two(scales: Array) -> Array:
    """Return the bytes (E8M0) of the powers of two that are not below scales, as far as there are such; 255 where they
    are not finite.
    """
    with np.errstate(invalid="ignore"):
        significands, exponents = np.frexp(scales)
    powers: Array = np.clip(exponents - (significands == 0.5) + 127, 0, 254).astype(np.uint8)
    powers[~np.isfinite(scales)] = 255
    return powers


@dataclass(frozen=True, slots=True)
class Inexact:
    """The first number of some rows that another format does not hold, what it holds in its place, and how many
    there are.
    """

    row: int
    column: int
    number: float
    held: float
    count: int
    largest_error: float


def compare_numbers(expected: Array, held: Array) -> Inexact | None:
    """Return where the numbers of two formats, f64 [rows, in], differ; None if they do not. A NaN equals a NaN."""
    unlike = (expected != held) & ~(np.isnan(expected) & np.isnan(held))
    if not unlike.any():
        return None
    row, column = np.unravel_index(int(unlike.argmax()), unlike.shape)
    with np.errstate(invalid="ignore"):
        error = float(np.abs(expected - held)[unlike].max())
    first = float(expected[row, column]), float(held[row, column])
    return Inexact(int(row), int(column), *first, int(np.count_nonzero(unlike)), error)
