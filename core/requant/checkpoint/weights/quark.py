"""Weights as AMD Quark stores them: FP8, FP6, FP4, and integers of 8 and 4 bits; they are read.

    value = f32((code - z) * s), rounded to the dtype of the weight          z = 0 for floats

A scale is for the tensor, a row, a block, or a group of a row. Those of groups of floats are E8M0, 2^(byte - 127) with
an infinity for 255, or F8_E4M3 times one F32, s = f32(e4m3 * weight_scale_2), or plain floats, as all others are.

| codes | `weight` | scales of groups |
| --- | --- | --- |
| FP8 | F8_E4M3, F8_E5M2 [out, in] | |
| FP4, the first in the lower half | U8 [out, in / 2] | [out, in / g] |
| FP6, the first in the lowest bits | U8 [out, 3 * in / 4] | [out, in / g] |
| 8-bit integers | I8, U8 [out, in]; in groups [in, out] | [in / g, out] |
| 4-bit integers | I32 [out, in / 8]; in groups [in, out / 8] | [in / g, out] |

Of eight 4-bit integers, code (0, 2, 4, 6, 1, 3, 5, 7)[i] has the bits [4i, 4i + 4), or, without `reorder`,
code i. They are signed as int4 and unsigned as uint4, and so are their zero points, which are packed along rows of the
weight. `weight_zero_point` is there for symmetric codes too, with zeros.

Source: amd-quark 0.13, `quark/torch/utils/pack.py`, `StaticScaledRealQuantizer.forward` and `SequentialRealQuantizer`
(`export/nn/modules/realquantizer.py`), `dequantize_impl` (`kernel/hw_emulation/hw_emulation_interface.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from requant.checkpoint.weights.block_scaled import POWERS
from requant.checkpoint.weights.blocks import Block, ScaledCodes
from requant.checkpoint.weights.floats import (
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    EPSILON,
    UNSIGNED,
    Array,
    CodeTable,
    check_weight,
    float_kernels,
)
from requant.checkpoint.weights.packing import unpacked, unpacked_bytes, unpacking_kernels
from requant.checkpoint.weights.weight_format import (
    Codes,
    ReadOnlyFormat,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    check_groups,
    matrix_shape,
)
from requant.errors import CheckpointError
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel

WEIGHT, SCALE, ZERO_POINT, SECOND_SCALE = "weight", "weight_scale", "weight_zero_point", "weight_scale_2"
_LANES = 8
_PLACES = np.array([0, 2, 4, 6, 1, 3, 5, 7])
"""The place in its eight of the code in the half byte i."""
_WORD = 32


@dataclass(frozen=True, slots=True)
class QuarkCodes:
    """A type of codes. `stored`: the dtype of `weight`. `table`: of floats. `lowest`: of integers."""

    bits: int
    stored: str
    table: CodeTable | None = None
    lowest: int = 0

    def values(self) -> Array:
        """Return the values of the 256 bytes that may hold one, as f32."""
        if self.table is not None:
            return self.table.values
        codes = UNSIGNED % (1 << self.bits)
        return codes if self.lowest == 0 else np.where(codes >= -self.lowest, codes - (1 << self.bits), codes)


CODES: Mapping[str, QuarkCodes] = {
    "fp8_e4m3": QuarkCodes(8, "F8_E4M3", E4M3),
    "fp8_e5m2": QuarkCodes(8, "F8_E5M2", E5M2),
    "fp6_e2m3": QuarkCodes(6, "U8", E2M3),
    "fp6_e3m2": QuarkCodes(6, "U8", E3M2),
    "fp4": QuarkCodes(4, "U8", E2M1),
    "int8": QuarkCodes(8, "I8", lowest=-128),
    "uint8": QuarkCodes(8, "U8"),
    "int4": QuarkCodes(4, "I32", lowest=-8),
    "uint4": QuarkCodes(4, "I32"),
}
"""By `dtype`."""

FLOAT_SCALES, POWERS_OF_TWO, TWO_LEVELS = "float", "e8m0", "two levels"
PER_TENSOR, PER_CHANNEL, PER_GROUP, PER_BLOCK = "per_tensor", "per_channel", "per_group", "per_block"


@dataclass(frozen=True)
class QuarkWeight(ReadOnlyFormat):
    """`weight`, `weight_scale`, and for integers `weight_zero_point`.

    `dtype`: of the codes, by CODES. `scheme`, `block`: what shares a scale, and the rows and columns of a block or a
    group. `scales`: of groups. `reordered`: of 4-bit integers. `symmetric`: whether zero points may be missing. The
    others are those of a weight: the dtype of its scales, and whether it has zero points.
    """

    dtype: str
    scheme: str
    block: tuple[int, int] = (1, 1)
    scales: str = FLOAT_SCALES
    reordered: bool = True
    symmetric: bool = True
    scale_dtype: str = "F32"
    has_zero_points: bool = False

    @property
    def of_codes(self) -> QuarkCodes:
        """The type of the codes."""
        return CODES[self.dtype]

    @property
    def _is_integer(self) -> bool:
        return self.of_codes.table is None

    @property
    def transposed(self) -> bool:
        """Whether rows of the weight are columns of what is stored."""
        return self._is_integer and self.scheme == PER_GROUP

    @property
    def _packs_rows(self) -> bool:
        """Whether words have something of eight rows."""
        by_row = self.transposed or (self.scheme == PER_CHANNEL and self.has_zero_points)
        return by_row and self.of_codes.stored == "I32"

    @property
    def rows_together(self) -> int:
        """The rows that share words."""
        return _LANES if self._packs_rows else 1

    def grid(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Return the rows and columns of scales of a weight."""
        if self.scheme == PER_TENSOR:
            return 1, 1
        if self.scheme == PER_CHANNEL:
            return shape[0], 1
        return shape[0] // self.block[0], shape[1] // self.block[1]

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the stored tensors; raises CheckpointError where groups, blocks or words are not whole."""
        check_weight(dtype, shape)
        out, columns = shape
        if self.scheme == PER_GROUP:
            check_groups(shape, self.block[1])
        if self.scheme == PER_BLOCK and (out % self.block[0] or columns % self.block[1]):
            raise CheckpointError(f"a weight of shape {list(shape)} has no whole blocks of {list(self.block)}")
        if not self.transposed and columns * self.of_codes.bits % (_WORD if self.of_codes.stored == "I32" else 8):
            raise CheckpointError(f"rows of {columns} codes of {self.of_codes.bits} bits are not whole")
        grid = self.grid(shape)
        scales = StoredTensor(SCALE, self.scale_dtype, grid[::-1] if self.transposed else grid)
        second = (StoredTensor(SECOND_SCALE, "F32", (1,)),) if self.scales == TWO_LEVELS else ()
        return StoredTensor(WEIGHT, self.of_codes.stored, self._code_shape(shape)), scales, *second, *self._zeros(shape)

    def _code_shape(self, shape: tuple[int, int]) -> tuple[int, int]:
        out, columns = shape
        words = self.of_codes.stored == "I32"
        if self.transposed:
            return columns, -(-out // _LANES) if words else out
        return out, columns // _LANES if words else columns * self.of_codes.bits // 8

    def _zeros(self, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the tensor of zero points, if there are any."""
        if not self.has_zero_points:
            return ()
        rows, columns = self.grid(shape)
        if self.of_codes.stored == "I32" and self.scheme != PER_TENSOR:
            rows = -(-rows // _LANES)
        place = (columns, rows) if self.transposed else (rows, columns)
        return (StoredTensor(ZERO_POINT, self.of_codes.stored, place),)

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """The rows of transposed words are those of the scales."""
        codes, scale = (tensors[each].shape if each in tensors else () for each in (WEIGHT, SCALE))
        rows, columns = matrix_shape(codes)
        if self.transposed:
            out, stored_columns = matrix_shape(scale)[1], rows
        else:
            out, stored_columns = rows, columns * (_LANES if self.of_codes.stored == "I32" else 1)
            if self.of_codes.stored == "U8" and self.of_codes.bits < 8:
                stored_columns = columns * 8 // self.of_codes.bits
        of_scales = self.scale_dtype
        if self.scales == FLOAT_SCALES and SCALE in tensors and tensors[SCALE].dtype in EPSILON:
            of_scales = tensors[SCALE].dtype
        has_zero_points = self._is_integer and (not self.symmetric or ZERO_POINT in tensors)
        return replace(self, scale_dtype=of_scales, has_zero_points=has_zero_points), (out, stored_columns)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """Return rows, or where the weight is transposed columns, of each stored tensor."""
        rows, words = (row_begin, row_end), (row_begin // _LANES, -(-row_end // _LANES))
        in_words = self.of_codes.stored == "I32"
        code_shape, (scale_rows, scale_columns) = self._code_shape(shape), self.grid(shape)
        if self.transposed:
            of_codes = words if in_words else rows
            found = [Region(WEIGHT, 0, code_shape[0], *of_codes), Region(SCALE, 0, scale_columns, *rows)]
            zeros = Region(ZERO_POINT, 0, scale_columns, *of_codes)
        else:
            height = shape[0] // scale_rows
            of_scales = row_begin // height, -(-row_end // height)
            found = [Region(WEIGHT, *rows, 0, code_shape[1]), Region(SCALE, *of_scales, 0, scale_columns)]
            packed = in_words and self.scheme != PER_TENSOR
            zeros = Region(ZERO_POINT, *(words if packed else of_scales), 0, scale_columns)
        return (*found, zeros) if self.has_zero_points else tuple(found)

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        codes, scales, zeros = self._codes(stored), self._scales(stored), self._zero_points(stored)
        columns = stored.shape[1]
        block = Block(1, columns // scales.shape[1])
        outer = float(stored.parts[SECOND_SCALE].reshape(-1)[0]) if self.scales == TWO_LEVELS else None
        return ScaledCodes(codes, self.of_codes.values(), columns, block, scales, zeros, "F32", outer)

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *unpacking_kernels(self.of_codes.bits), *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        codes, of_codes = self._codes(stored)[:, : stored.shape[1]], self.of_codes
        if of_codes.table is not None:
            highest = of_codes.table.highest
            return Codes(of_codes.table.places[codes], -highest, highest, self._scales(stored), uniform=False)
        places = of_codes.values().astype(np.int16)[codes]
        highest = of_codes.lowest + (1 << of_codes.bits) - 1
        return Codes(places, of_codes.lowest, highest, self._scales(stored), uniform=True)

    def _codes(self, stored: StoredRows) -> Array:
        """Return codes, one in a byte, [rows, at least in]."""
        codes = stored.parts[WEIGHT]
        if self.of_codes.stored == "I32":
            return self._rows(codes, stored.count) if self.transposed else self._unpacked(codes)
        if self.transposed:
            return np.ascontiguousarray(codes.T).view(np.uint8)
        if self.of_codes.bits < 8:
            return unpacked_bytes(codes, self.of_codes.bits)
        return np.ascontiguousarray(codes).view(np.uint8)

    def _unpacked(self, words: Array) -> Array:
        """Return the codes of words, eight for each, along their rows."""
        codes = unpacked(words, 4, words.shape[1] * _LANES)
        if not self.reordered:
            return codes
        ordered = np.empty_like(codes).reshape(len(words), -1, _LANES)
        ordered[:, :, _PLACES] = codes.reshape(ordered.shape)
        return ordered.reshape(codes.shape)

    def _rows(self, words: Array, count: int) -> Array:
        """Return the codes of words that hold eight rows, [count, rows of words]."""
        return np.ascontiguousarray(self._unpacked(words)[:, :count].T)

    def _of_rows(self, grid: Array, stored: StoredRows) -> Array:
        """Return for each row what it has of a grid."""
        height = stored.shape[0] // self.grid(stored.shape)[0]
        rows = np.arange(stored.begin, stored.end) // height - stored.begin // height
        return np.ascontiguousarray(grid.reshape(-1, self.grid(stored.shape)[1])[rows])

    def _scales(self, stored: StoredRows) -> Array:
        """Return the scales, f32 [rows, k]."""
        scales = stored.parts[SCALE]
        if self.scales == POWERS_OF_TWO:
            return POWERS[self._of_rows(scales, stored)]
        if self.scales == TWO_LEVELS:
            with np.errstate(all="ignore"):
                levels: Array = E4M3.values[scales] * stored.parts[SECOND_SCALE].reshape(-1)[0]
            return self._of_rows(levels, stored)
        numbers = stored.floats(SCALE)
        return np.ascontiguousarray(numbers.T) if self.transposed else self._of_rows(numbers, stored)

    def _zero_points(self, stored: StoredRows) -> Array | None:
        if not self.has_zero_points:
            return None
        zeros, values = stored.parts[ZERO_POINT], self.of_codes.values()
        if self.of_codes.stored != "I32":
            of_rows = zeros.T if self.transposed else self._of_rows(zeros, stored)
            return np.ascontiguousarray(of_rows).astype(np.float32)
        if self.scheme == PER_TENSOR:
            # One that is not packed.
            return self._of_rows(zeros.astype(np.float32), stored)
        by_row = self._rows(zeros if self.transposed else zeros.T, stored.count)
        return values[by_row]
