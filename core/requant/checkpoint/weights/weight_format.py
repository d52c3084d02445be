"""The interface of a format for the weight of a linear module: names, shapes, and the conversion of some of its rows.

A weight is a matrix [out, in] of dtype BF16, F16 or F32. It is converted some rows at a time, in any order and in any
number of threads, with the same bits. Where a scale depends on the whole tensor, or on a set of tensors that share it,
all rows are read for their extremes first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from requant.checkpoint.weights.blocks import Extremes, ScaledCodes, extremes_kernel, whole_extremes
from requant.checkpoint.weights.floats import Array, values
from requant.checkpoint.weights.repack import SourceNumbers
from requant.errors import CheckpointError
from requant.kernels.jit.jit import Kernel


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that a weight becomes. `suffix` follows the module's name: `weight_packed`, `weight_scale`.

    `matrix`: the shape in which its bytes are read, where that is another.
    """

    suffix: str
    dtype: str
    shape: tuple[int, ...]
    matrix: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """Where some rows of a weight lie in a stored tensor, seen as a matrix: the stored rows and columns [begin, end).

    A stored tensor of rank 1 is one row; a region that spans all columns is one range of bytes.
    """

    suffix: str
    row_begin: int
    row_end: int
    column_begin: int
    column_end: int


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Rows of a weight of `shape` [out, in], from the row `begin` on.

    `bits`: [rows, in] elements as `DTYPES[dtype].array`, C-contiguous.
    """

    bits: Array
    dtype: str
    shape: tuple[int, int]
    begin: int

    @property
    def kernel_bytes(self) -> Array:
        """The elements as kernels take them."""
        return self.bits.reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows [begin, end) of a quantized weight of `shape` [out, in], as they are stored.

    `parts`: by suffix, the matrices of `WeightFormat.regions`, and what is stored once as a whole. `dtypes`: those in
    which they are stored, by suffix.
    """

    parts: Mapping[str, Array]
    dtypes: Mapping[str, str]
    shape: tuple[int, int]
    begin: int
    end: int

    @staticmethod
    def whole(parts: Mapping[str, Array], tensors: Iterable[StoredTensor], shape: tuple[int, int]) -> StoredRows:
        """Return all rows of a weight. `tensors`: those that store it, of which `parts` are the matrices."""
        return StoredRows(parts, {each.suffix: each.dtype for each in tensors}, shape, 0, shape[0])

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.end - self.begin

    def floats(self, suffix: str) -> Array:
        """Return the part of a suffix, stored as BF16, F16 or F32, as f32, C-contiguous."""
        return values(np.ascontiguousarray(self.parts[suffix]), self.dtypes[suffix])


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes and scales of a range of rows.

    `codes`: [rows, in] i16, the integers, or the places of floats in the order of all values of their type (0: zero),
    so that neighbours differ by 1. `lowest`, `highest`: of all that are written. `scales`: f32 [rows, k], each for
    in / k columns, rounded up: a code's value times its scale is the weight. `uniform`: whether the values of all
    neighbours are one scale apart, as those of integers are.
    """

    codes: Array
    lowest: int
    highest: int
    scales: Array
    uniform: bool


class WeightFormat(ABC):
    """One way to store a weight, with the parameters of a scheme (bits, group size) and of a profile (its rounding).

    Instances are immutable and hold no tensor.
    """

    is_plain: ClassVar[bool] = False
    """Whether it stores floats as floats: of another dtype, or in another order."""

    @property
    def rows_together(self) -> int:
        """Pieces begin at a multiple of this many rows."""
        return 1

    @property
    def marks(self) -> tuple[frozenset[str], ...]:
        """Sets of general names, such as `weight` and `scale`: a module that has all of one is quantized so."""
        return ()

    @property
    def rows_within(self) -> int:
        """No piece of a weight that is dequantized crosses a multiple of this many rows; 0: it may cross all."""
        return 0

    def tensor_name(self, module: str) -> str:
        """Return the name of the tensor that the weight of a module is, dequantized."""
        return f"{module}.weight"

    def tensor_shape(self, shape: tuple[int, int]) -> tuple[int, ...]:
        """Return the shape of that tensor. `shape`: of the weight, a matrix with the same elements in their order."""
        return shape

    @property
    def needs_extremes(self) -> bool:
        """Whether `quantize` needs the extremes of the whole tensor, or of the set of tensors that share a scale."""
        return False

    def extremes(self, rows: Array, dtype: str) -> Extremes:
        """Return the extremes of some rows that `quantize` needs."""
        return whole_extremes(rows, dtype)

    @abstractmethod
    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the tensors that store a weight; none if the format does not quantize such a weight.

        Raises CheckpointError where the shape or dtype does not fit.
        """

    @abstractmethod
    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """Return the parts of the stored tensors for these rows, which `quantize` writes and `dequantize` reads.

        What is stored once for the whole weight (`weight_shape`, `weight_global_scale`) belongs to the first rows for
        writing, and is given to every call of `dequantize` as a whole.
        """

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """Return the format of a weight of a checkpoint, with what its tensors alone say, and the weight's shape.

        `tensors`: by suffix, those of the module. `stated`: the shape that one of them holds, None if none does.
        Raises CheckpointError where the shape is not known.
        """
        shape: tuple[int, ...] = stated or ()
        if (whole := tensors.get("weight")) is not None:
            shape = whole.shape
        elif (packed := tensors.get("weight_packed")) is not None and packed.dtype == "U8" and len(packed.shape) == 2:
            shape = packed.shape[0], packed.shape[1] * 2
        return self, matrix_shape(shape)

    def magnitude_limit(self, dtype: str) -> float:
        """Return the magnitude from which on a finite value of `dtype` has no scale that shows in what is stored.

        Infinity where there is none, or where a scale that overflows is stored as an infinity or a NaN.
        """
        return inf

    def overflows(self, extremes: Extremes, dtype: str) -> bool:
        """Return whether the scale that finite extremes ask for overflows, and something else is stored instead."""
        return False

    @property
    def scales_show_not_finite(self) -> bool:
        """Whether a NaN or an infinity among the elements of a scale always is in `overflowed_scales`."""
        return False

    def overflowed_scales(self, suffix: str, scales: Array) -> Array:
        """Return which stored scales, as f32, are those of values whose scale overflows: infinite ones, and NaN."""
        return ~np.isfinite(scales)

    def quantize(
        self, rows: Array, dtype: str, shape: tuple[int, int], row_begin: int, extremes: Extremes | None = None
    ) -> list[tuple[Region, Array]]:
        """Return the bytes of the stored tensors for some rows.

        `rows`: the bits of [rows, in] elements as `DTYPES[dtype].array`, C-contiguous. `shape`: of the whole weight.
        The arrays are matrices of the stored dtype's `array`, as large as their regions. A NaN or an infinity is
        converted as the library does; whoever refuses them looks with `first_not_below` before, and for scales that
        are not finite afterwards.
        """
        parts = self.quantized(PlainRows(rows, dtype, shape, row_begin), extremes)
        return [(each, parts[each.suffix]) for each in self.regions(dtype, shape, row_begin, row_begin + rows.shape[0])]

    @abstractmethod
    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        """Return the matrices of the stored tensors for some rows, by suffix; also those that are stored once."""

    @abstractmethod
    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        """Return the codes of rows with their scales, as the library computes with them."""

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        """Return rows as bits of `dtype`, [rows, in].

        The library computes in the dtype of the scales, and its result is then rounded (RNE) to `dtype`.
        """
        return self.scaled_codes(stored).values(dtype).reshape(stored.count, -1)

    def numbers(self, stored: StoredRows) -> Array:
        """Return the numbers that rows hold, before any dtype rounds them: f64, [rows, in]."""
        return self.scaled_codes(stored).numbers().reshape(stored.count, -1)

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        """Return the matrices of the stored tensors for rows of another format, from the row `begin` on.

        Their scales are those with which codes hold the numbers, if any do; the codes are the nearest. `scale_dtype`:
        of scales that are stored in BF16, F16 or F32. `extremes`: of the numbers, where `needs_extremes`.
        Raises CheckpointError for a format to which nothing is repacked.
        """
        raise CheckpointError("codes and scales of another format cannot be moved to this one: quantize instead")

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        """Return the kernels that `quantize` calls for a weight of `dtype`."""
        return ()

    def extremes_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        """Return the kernels that `extremes` calls for a weight of `dtype`."""
        return (extremes_kernel(dtype),)

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        """Return the kernels that `dequantize` calls. `dtypes`: of the stored tensors and of the weight."""
        return ()

    @abstractmethod
    def codes(self, stored: StoredRows) -> Codes:
        """Return the codes and scales of rows."""


class ReadOnlyFormat(WeightFormat):
    """A format that is dequantized, and that no scheme quantizes to."""

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        raise CheckpointError(f"{type(self).__name__} is only read; choose a scheme to quantize to")


def check_groups(shape: tuple[int, int], group: int) -> None:
    """Raise CheckpointError unless the rows of a weight [out, in] are whole groups."""
    if shape[1] % group:
        raise CheckpointError(
            f"a weight of shape {list(shape)} cannot be quantized in groups of {group}: its rows of {shape[1]} are "
            "not a multiple of that. Add the module to ignore, or choose another group size"
        )


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return [out, in] of a weight. Raises CheckpointError unless it is a matrix with elements."""
    if len(shape) != 2 or min(shape) < 1:
        raise CheckpointError(
            "has quantized parameters, but none that determines the shape of its weight: no matrix with elements"
        )
    return shape[0], shape[1]


def dtype_of_scales(tensors: Mapping[str, StoredTensor], otherwise: str) -> str:
    """Return the dtype of `scales` where it is F16 or BF16."""
    scales = tensors.get("scales")
    return scales.dtype if scales is not None and scales.dtype in ("F16", "BF16") else otherwise
