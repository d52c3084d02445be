"""The scales with which another format holds the numbers of a quantized weight, if it holds them at all.

A number is a code's value times a scale: n = v * S. Another format holds it if n = w * T for one of its codes w and one
of its scales T. Which T to choose is known before any code is looked at:

    small floats   T = m * 2^t, m the significand of S, t the least with max|n| <= largest code * T in the block.
                   Doubling a code gives a code up to the largest, so a block that any T of this significand holds is
                   held by the least.
    integers       T = S, and zero points moved with the range of the codes: n = (k - z) * S.

The codes are then the nearest ones, and whether they are exact is seen by comparing the products, in f64, which holds
them all: code 4 or 8 bits, scales 24.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.checkpoint.weights.blocks import Block, ScaledCodes, of_elements
from requant.checkpoint.weights.floats import Array


@dataclass(frozen=True, slots=True)
class BlockedNumbers:
    """The numbers of some rows of a weight by the blocks of another format, and the scales that they have now.

    `numbers`, `scales`, `zero_points`: f64 [blocks of rows, blocks of columns, elements]; blocks that the edge of the
    weight cuts off are filled up with zeros. `lowest`: the value of the lowest code.
    """

    numbers: Array
    scales: Array
    zero_points: Array
    lowest: float

    @classmethod
    def of(cls, source: ScaledCodes, columns: int, block: Block) -> BlockedNumbers:
        """Return the numbers of rows that begin with a block."""
        scales = source.of_elements(source.scales).astype(np.float64)
        zero_points = np.zeros_like(scales)
        if source.zero_points is not None:
            zero_points = source.of_elements(source.zero_points).astype(np.float64)
        numbers, scales, zero_points = (
            _blocked(each.reshape(-1, columns), block) for each in (source.numbers(), scales, zero_points)
        )
        return cls(numbers, scales, zero_points, float(source.table.min()))

    def scales_of_floats(self, largest: float) -> Array:
        """Return T of each block, f64 [blocks of rows, blocks of columns]; of a block of zeros the scale that it has.

        `largest`: the value of the largest code.
        """
        magnitudes = np.abs(self.numbers)
        at = magnitudes.argmax(axis=-1)[..., None]
        peaks = np.take_along_axis(magnitudes, at, axis=-1)[..., 0]
        scales = np.take_along_axis(np.abs(self.scales), at, axis=-1)[..., 0]
        with np.errstate(invalid="ignore"):
            significands, _ = np.frexp(scales)
            of_peak, exponents = np.frexp(peaks)
            of_largest, exponents_of_largest = np.frexp(significands * largest)
            needed = exponents - exponents_of_largest + (of_peak > of_largest)
            return np.where(peaks == 0, scales, np.ldexp(significands, needed))

    def scales_of_integers(self, lowest: float, highest: float, *, zero_points: bool) -> tuple[Array, Array | None]:
        """Return T and the zero point of each block, the latter None without `zero_points`.

        `lowest`, `highest`: of the codes. A block with more than one scale gets that of its first element.
        """
        scales = self.scales[..., :1]
        if not zero_points:
            return scales[..., 0], None
        with np.errstate(all="ignore"):
            steps = np.rint(self.numbers / scales)
        steps = np.where(np.isfinite(steps), steps, 0.0)
        # The lowest code becomes the lowest, as far as all codes stay in range.
        least, most = lowest - steps.min(axis=-1), highest - steps.max(axis=-1)
        points = np.clip(
            np.nan_to_num(self.zero_points[..., 0]) + (lowest - self.lowest), least, np.maximum(most, least)
        )
        return scales[..., 0], np.nan_to_num(np.clip(points, lowest, highest)).astype(np.float32)


def in_units(source: ScaledCodes, columns: int, scales: Array, block: Block) -> Array:
    """Return the numbers of rows divided by the scales, f32, of the blocks in which they lie: the values of codes."""
    numbers = source.numbers().reshape(-1, columns)
    with np.errstate(all="ignore"):
        units = numbers / of_elements(scales, block, *numbers.shape)
    finite: Array = np.where(np.isfinite(units), units, 0.0).astype(np.float32)
    return finite


def powers_of_two(scales: Array) -> Array:
    """Return the bytes (E8M0) of the powers of two that are not below scales, as far as there are such."""
    with np.errstate(invalid="ignore"):
        significands, exponents = np.frexp(scales)
    powers: Array = np.clip(exponents - (significands == 0.5) + 127, 0, 254).astype(np.uint8)
    return powers


def _blocked(elements: Array, block: Block) -> Array:
    """Return [rows, columns] as [blocks of rows, blocks of columns, elements of a block]."""
    rows, columns = elements.shape
    height = min(block.height, max(rows, 1))
    down, across = -(-rows // height), block.columns(columns)
    if (down * height, across * block.width) != (rows, columns):
        whole = np.zeros((down * height, across * block.width), elements.dtype)
        whole[:rows, :columns] = elements
        elements = whole
    return elements.reshape(down, height, across, block.width).swapaxes(1, 2).reshape(down, across, -1)


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
