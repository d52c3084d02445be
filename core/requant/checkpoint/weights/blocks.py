"""Weights by the blocks of elements that share a scale: extremes, codes and values, by the kernels; values to refuse.

A block is (height, width): that many rows and columns, cut off at the edges of the weight. Rows of a weight are arrays
of bits (`DTYPES[dtype].array`), C-contiguous. Scales and zero points are f32, a matrix of one for each block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np

from requant.checkpoint.weights.floats import E2M1, E2M3, E4M3, Array, values
from requant.kernels.checkpoint.codes import E2M3_CODES, E4M3_CODES, PACKED_E2M1_CODES
from requant.kernels.checkpoint.magnitudes import LARGEST_MAGNITUDES
from requant.kernels.checkpoint.values import exact_numbers, scaled_values
from requant.kernels.jit.jit import Kernel
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.widen import FloatKind
from requant.kernels.statistics.reduce import MINIMUM_MAXIMUM

_PRECISIONS = {"F32": Precision.NATIVE, "F16": Precision.F16, "BF16": Precision.BF16}
_NONE = np.zeros(0, np.float32)


class Block(NamedTuple):
    """Rows and columns that share a scale."""

    height: int
    width: int

    def columns(self, columns: int) -> int:
        """Return how many blocks so many columns have."""
        return -(-columns // self.width)


@dataclass(frozen=True, slots=True)
class Extremes:
    """The least and the largest value of a whole tensor, or of a set of tensors that share a scale. NaN if any is."""

    minimum: float
    maximum: float

    @property
    def magnitude(self) -> float:
        """The larger of their magnitudes."""
        return max(abs(self.minimum), abs(self.maximum))

    def union(self, other: Extremes) -> Extremes:
        """Return the extremes of both; NaN if one is."""
        if self.minimum != self.minimum or other.minimum != other.minimum:
            return Extremes(float("nan"), float("nan"))
        return Extremes(min(self.minimum, other.minimum), max(self.maximum, other.maximum))


def largest_magnitudes(rows: Array, dtype: str, block: Block) -> Array:
    """Return the largest |value| of each block as f32; NaN if any is one."""
    return values(largest_patterns(rows, dtype, block), dtype)


def largest_patterns(rows: Array, dtype: str, block: Block) -> Array:
    """Return the same as bits of `dtype`."""
    integers = np.int32 if dtype == "F32" else np.int16
    largest = np.empty((rows.shape[0], block.columns(rows.shape[1])), integers)
    kernel = magnitude_kernel(dtype)
    kernel(rows.reshape(-1).view(integers), rows.shape[1], block.width, largest.reshape(-1))
    if block.height > 1:
        largest = np.maximum.reduceat(largest, np.arange(0, rows.shape[0], block.height), axis=0)
    return largest.view(rows.dtype)


def magnitude_kernel(dtype: str) -> Kernel:
    """Return the kernel of `largest_magnitudes` and `first_not_below`."""
    return LARGEST_MAGNITUDES[32 if dtype == "F32" else 16]


def first_not_below(rows: Array, dtype: str, limit: float) -> int | None:
    """Return the index, in row-major order, of the first NaN or magnitude of at least `limit`; None without one.

    With an infinite limit: the first NaN or infinity.
    """
    if rows.size == 0:
        return None
    of_rows = largest_magnitudes(rows, dtype, Block(1, rows.shape[1]))
    below = of_rows[:, 0] < limit
    if below.all():
        return None
    row = int(np.argmin(below))
    column = int(np.argmin(np.abs(values(rows[row], dtype)) < limit))
    return row * int(rows.shape[1]) + column


def extremes_of_groups(rows: Array, dtype: str, width: int) -> tuple[Array, Array]:
    """Return the smallest and the largest value of each `width` columns of each row, which have whole blocks.

    A NaN is the one or the other, as its sign says.
    """
    shape = (rows.shape[0], rows.shape[1] // width)
    return _extremes(rows, dtype, width, shape)


def whole_extremes(rows: Array, dtype: str) -> Extremes:
    """Return the extremes of all rows."""
    lows, highs = _extremes(rows, dtype, rows.size, (1, 1))
    lowest, highest = float(lows[0, 0]), float(highs[0, 0])
    return Extremes(lowest, highest) if lowest <= highest else Extremes(float("nan"), float("nan"))


def extremes_kernel(dtype: str) -> Kernel:
    """Return the kernel of `extremes_of_groups` and `whole_extremes`."""
    return MINIMUM_MAXIMUM[32 if dtype == "F32" else 16, False]


def _extremes(rows: Array, dtype: str, run: int, shape: tuple[int, int]) -> tuple[Array, Array]:
    integers = np.int32 if dtype == "F32" else np.int16
    limits = np.iinfo(integers)
    lows, highs = np.full(shape, limits.max, integers), np.full(shape, limits.min, integers)
    kernel = extremes_kernel(dtype)
    patterns = rows.reshape(-1).view(integers)
    kernel(patterns, 0, run, lows.size, patterns.size, 1, lows.reshape(-1), highs.reshape(-1))

    def numbers(keys: Array) -> Array:
        # A key is its own inverse.
        return values((keys ^ ((keys >> (limits.bits - 1)) & limits.max)).view(rows.dtype), dtype)

    return numbers(lows), numbers(highs)


def codes(
    kernel: Kernel,
    rows: Array,
    dtype: str,
    block: Block,
    scales: Array,
    zero_points: Array | None,
    *,
    rounds: bool,
    lowest: float,
    highest: float,
    offset: int = 0,
    stride: int,
    per_byte: int = 1,
) -> Array:
    """Return the codes of a kernel of `requant.kernels.checkpoint.codes`: bytes, [rows, stride / per_byte].

    `stride`: codes of a row, of which those beyond its columns are 0. `rounds`: whether each step is rounded to
    `dtype`.
    """
    count, columns = rows.shape
    parameters_checked(scales, zero_points, count, columns, block)
    make = np.empty if columns == stride else np.zeros
    target = make((count, stride // per_byte), np.uint8)
    kernel(
        rows.reshape(-1).view(np.uint8),
        int(FloatKind[dtype]),
        count,
        columns,
        block.height,
        block.width,
        scales.reshape(-1),
        _NONE if zero_points is None else zero_points.reshape(-1),
        int(_PRECISIONS[dtype] if rounds else Precision.NATIVE),
        np.float32(lowest),
        np.float32(highest),
        np.int32(offset),
        stride,
        target.reshape(-1),
    )
    return target


def _float_codes(
    kernel: Kernel,
    largest: float,
    rows: Array,
    dtype: str,
    block: Block,
    scales: Array,
    *,
    rounds: bool,
    offset: int = 0,
    per_byte: int = 1,
) -> Array:
    """Return the codes of small floats up to `largest` by magnitude."""
    return codes(
        kernel,
        rows,
        dtype,
        block,
        scales,
        None,
        rounds=rounds,
        lowest=-largest,
        highest=largest,
        offset=offset,
        stride=rows.shape[1],
        per_byte=per_byte,
    )


def e4m3_codes(rows: Array, dtype: str, block: Block, scales: Array, *, rounds: bool) -> Array:
    """Return f8E4M3FN(clamp(R(w / s), -448, 448)) as bytes."""
    return _float_codes(E4M3_CODES, E4M3.largest, rows, dtype, block, scales, rounds=rounds)


def e4m3_scales(ideal: Array) -> Array:
    """Return f8E4M3FN of scales, f32 [rows, n], up to 448, as bytes."""
    return e4m3_codes(ideal, "F32", Block(*ideal.shape), np.ones(1, np.float32), rounds=False)


def e2m3_codes(rows: Array, dtype: str, block: Block, scales: Array, *, rounds: bool) -> Array:
    """Return E2M3(clamp(R(w / s), -7.5, 7.5)), RNE, as bytes. NaN gives 0x20.

    The sign bit is that of the quotient, also of -0 where each step is rounded as on a CPU; else -0 gives 0. Source:
    compressed-tensors 0.20.0, `quantization/utils/fp6_utils.py`, `compressors/mxfp6/helpers.py`.
    """
    offset = 0x20 if rounds else 0
    return _float_codes(E2M3_CODES, E2M3.largest, rows, dtype, block, scales, rounds=rounds, offset=offset)


def packed_e2m1_codes(rows: Array, dtype: str, block: Block, scales: Array, *, rounds: bool) -> Array:
    """Return E2M1(clamp(R(w / s), -6, 6)), two to a byte, the first in the lower half: [rows, in / 2].

    RNE by thresholds: > .25, >= .75, > 1.25, >= 1.75, > 2.5, >= 3.5, > 5. The sign bit is that of what is below 0, also
    where the code is 0; -0 gives 0, and so does NaN. Source: compressed-tensors 0.20.0,
    `quantization/utils/fp4_utils.py`, `compressors/nvfp4/helpers.py`.
    """
    return _float_codes(PACKED_E2M1_CODES, E2M1.largest, rows, dtype, block, scales, rounds=rounds, per_byte=2)


@dataclass(frozen=True, slots=True)
class ScaledCodes:
    """Codes with all that their values depend on: (table[code] - z) * s, where `precision` is the dtype of each step.

    `codes`: bytes, [rows, at least `columns`], C-contiguous. `table`: 256 f32. `scales`, `zero_points`: f32, a matrix
    with one for each block; no zero points are zeros. `outer`: of scales in two levels, the one of the whole weight.
    """

    codes: Array
    table: Array
    columns: int
    block: Block
    scales: Array
    zero_points: Array | None
    precision: str
    outer: float | None = None

    def values(self, dtype: str) -> Array:
        """Return f32((table[code] - z) * s), rounded to `precision` and then to `dtype`, as bits of that."""
        rows, width = self._checked()
        item = 4 if dtype == "F32" else 2
        target = np.empty((rows, self.columns * item), np.uint8)
        scaled_values(
            *self._decoded(rows, width),
            int(Precision.NATIVE if self.precision == dtype else _PRECISIONS[self.precision]),
            int(FloatKind[dtype]),
            target.reshape(-1),
        )
        return target.view("<f4" if dtype == "F32" else "<u2")

    def numbers(self) -> Array:
        """Return (table[code] - z) * s as f64, [rows, columns]. It is exact: both factors have at most 24 bits."""
        rows, width = self._checked()
        numbers = np.empty((rows, self.columns))
        exact_numbers(*self._decoded(rows, width), numbers.reshape(-1))
        return numbers

    def _checked(self) -> tuple[int, int]:
        """Return the extents of the codes. Kernels trust that there is a parameter for each block."""
        rows, width = self.codes.shape
        parameters_checked(self.scales, self.zero_points, rows, self.columns, self.block)
        if width < self.columns or self.table.size != 256:
            raise ValueError(f"{width} codes in a row and {self.table.size} values; expected {self.columns} and 256")
        return rows, width

    def _decoded(self, rows: int, width: int) -> tuple[Array, int, Array, int, int, int, int, Array, Array]:
        """Return the arguments of a kernel that decodes."""
        return (
            self.codes.reshape(-1).view(np.uint8),
            width,
            self.table,
            rows,
            self.columns,
            self.block.height,
            self.block.width,
            self.scales.reshape(-1),
            _NONE if self.zero_points is None else self.zero_points.reshape(-1),
        )


def scales_by_row(scales: Array, block: Block, rows: int, columns: int) -> Array:
    """Return the scales that each of some rows has, [rows, k], each for columns / k of them."""
    of_rows = np.repeat(scales, min(block.height, rows), axis=0)[:rows]
    # Where the edge of the weight cuts blocks off, they are not of equal widths.
    width = gcd(block.width, columns)
    return np.repeat(of_rows, block.width // width, axis=1)[:, : columns // width]


def parameters_checked(scales: Array, zero_points: Array | None, rows: int, columns: int, block: Block) -> None:
    """Kernels index them by the place of a block, and trust that they are there."""
    expected = -(-rows // block.height) * block.columns(columns)
    for each in (scales, zero_points):
        if each is not None and each.size != expected:
            raise ValueError(f"{each.size} parameters for {expected} blocks of {rows} rows and {columns} columns")
