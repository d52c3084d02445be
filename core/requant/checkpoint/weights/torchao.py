"""Weights as torchao stores its tensors in safetensors: FP8, integers in bytes, MX formats and NVFP4; they are read.

The weight of a module `M` is in tensors `M._weight_<part>`. D is the dtype to which it is dequantized, R rounds to it:

    Float8Tensor                value = R(f32(code * s))             s F32; blocks as the shape of the scales has them
    Int8Tensor,
    IntxUnpackedToInt8Tensor    value = R(f32((code - z) * s))       s F32, F16 or BF16, z I8 or 0
    MXTensor                    value = R(code * R(2^(E - 127)))     NaN where E is 255
    NVFP4Tensor                 value = R(f32(code * f32(t * s)))    t F32 of the whole weight, 1 without one

E2M1 codes lie two to a byte, the first in the lower half; those of FP6 have a byte each. Scales that are swizzled lie
in tiles of 128 rows and 4 columns, [32, 4, 4], where row 32 * i + j of a tile and column k are at [j, i, k]: the layout
of cuBLAS for block scales. What rows and columns lack for whole tiles is filled up, and not read.

Source: torchao 0.18.0, `dequantize` of `Float8Tensor` (`quantization/quantize_/workflows/float8/float8_tensor.py`),
`Int8Tensor`, `IntxUnpackedToInt8Tensor`, `MXTensor` and `NVFP4Tensor` (`prototype/mx_formats`), and `from_blocked`
(`prototype/mx_formats/utils.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from requant.checkpoint.weights.blocks import Block, ScaledCodes
from requant.checkpoint.weights.floats import (
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    E8M0_VALUES,
    EPSILON,
    SIGNED,
    Array,
    CodeTable,
    check_weight,
    float_kernels,
    rounded,
)
from requant.checkpoint.weights.packing import unpacked_bytes, unpacking_kernels
from requant.checkpoint.weights.weight_format import (
    Codes,
    ReadOnlyFormat,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    matrix_shape,
)
from requant.errors import CheckpointError
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel

QDATA, SCALE, ZERO_POINT, TENSOR_SCALE = (
    f"_weight_{part}" for part in ("qdata", "scale", "zero_point", "per_tensor_scale")
)
_TILE_ROWS, _TILE_COLUMNS = 128, 4
_OF_TILE = (32, 4, 4)


@dataclass(frozen=True)
class TorchAoWeight(ReadOnlyFormat):
    """Codes with a grid of scales, each for a block of the same size. `grid`: the rows and columns of scales."""

    grid: tuple[int, int] = (1, 1)

    of_integers: ClassVar[bool] = False

    @property
    def scale_dtype(self) -> str:
        """The dtype of the scales."""
        return "F32"

    @property
    def swizzled(self) -> bool:
        """Whether the scales lie in tiles."""
        return False

    @property
    def rows_together(self) -> int:
        """The rows of a tile."""
        return _TILE_ROWS if self.swizzled else 1

    @abstractmethod
    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        """Return the tensor that holds the codes."""

    @abstractmethod
    def code_values(self) -> Array:
        """Return the values of the 256 bytes that `unpacked_codes` may hold, as f32."""

    @abstractmethod
    def scale_values(self, stored: Array, rows: StoredRows) -> Array:
        """Return stored scales of rows as f32."""

    @abstractmethod
    def places(self) -> tuple[Array, int]:
        """Return the places, as `Codes` counts them, of the 256 bytes, as i16, and the highest."""

    def unpacked_codes(self, stored: StoredRows) -> Array:
        """Return codes, one in a byte, [rows, in]."""
        return np.ascontiguousarray(stored.parts[QDATA]).view(np.uint8)

    def tensor_scale(self, stored: StoredRows) -> float | None:
        """Return the scale of the whole weight, of those in two levels."""
        return None

    def beside_scales(self) -> tuple[StoredTensor, ...]:
        """Return the tensors beside codes and scales."""
        return ()

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the stored tensors; raises CheckpointError where the blocks are not whole."""
        check_weight(dtype, shape)
        if shape[0] % self.grid[0] or shape[1] % self.grid[1]:
            raise CheckpointError(f"a weight of shape {list(shape)} has no {list(self.grid)} blocks of the same size")
        tiles = self._tiles()
        scales = (tiles[0] * 32, tiles[1] * 16) if self.swizzled else self.grid
        return (self.code_tensor(shape), StoredTensor(SCALE, self.scale_dtype, scales), *self.beside_scales())

    def _tiles(self) -> tuple[int, int]:
        return -(-self.grid[0] // _TILE_ROWS), -(-self.grid[1] // _TILE_COLUMNS)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        columns = self.code_tensor(shape).shape[1]
        codes = Region(QDATA, row_begin, row_end, 0, columns)
        if self.swizzled:
            tiles = row_begin // _TILE_ROWS, -(-row_end // _TILE_ROWS)
            return codes, Region(SCALE, 32 * tiles[0], 32 * tiles[1], 0, 16 * self._tiles()[1])
        height = shape[0] // self.grid[0]
        rows = row_begin // height, -(-row_end // height)
        return (
            codes,
            *(Region(suffix, *rows, 0, self.grid[1]) for suffix in (SCALE, ZERO_POINT) if suffix in self._grids()),
        )

    def _grids(self) -> tuple[str, ...]:
        return (SCALE, *(each.suffix for each in self.beside_scales() if each.suffix == ZERO_POINT))

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        block, scales, zero_points = self._parameters(stored)
        codes, columns = self.unpacked_codes(stored), stored.shape[1]
        outer = self.tensor_scale(stored)
        return ScaledCodes(codes, self.code_values(), columns, block, scales, zero_points, "F32", outer)

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        places, highest = self.places()
        _, scales, _ = self._parameters(stored)
        codes = places[self.unpacked_codes(stored)[:, : stored.shape[1]]]
        return Codes(codes, -highest, highest, scales, uniform=self.of_integers)

    def _parameters(self, stored: StoredRows) -> tuple[Block, Array, Array | None]:
        """Return the blocks of single rows, and of each the scale and the zero point."""
        block = Block(1, stored.shape[1] // self.grid[1])
        if self.swizzled:
            scales = _unswizzled(stored.parts[SCALE])[: stored.count, : self.grid[1]]
            return block, self.scale_values(np.ascontiguousarray(scales), stored), None
        height = stored.shape[0] // self.grid[0]
        rows = np.arange(stored.begin, stored.end) // height - stored.begin // height
        scales = stored.parts[SCALE].reshape(-1, self.grid[1])[rows]
        zero_points = None
        if ZERO_POINT in self._grids():
            zero_points = stored.parts[ZERO_POINT].reshape(-1, self.grid[1])[rows].astype(np.float32)
        return block, self.scale_values(scales, stored), zero_points


def _unswizzled(stored: Array) -> Array:
    """Return the scales of rows of whole tiles, with those that fill them up."""
    tiles = stored.shape[0] // 32, stored.shape[1] // 16
    by_tile = np.ascontiguousarray(stored).reshape(*tiles, *_OF_TILE)
    return by_tile.transpose(0, 3, 2, 1, 4).reshape(tiles[0] * _TILE_ROWS, tiles[1] * _TILE_COLUMNS)


def _grid_of(tensors: Mapping[str, StoredTensor]) -> tuple[int, int]:
    """Return the grid of stored scales; a scale alone may have any rank."""
    shape = tensors[SCALE].shape if SCALE in tensors else ()
    if all(extent == 1 for extent in shape):
        return 1, 1
    return matrix_shape(shape)


def _shape_of(tensors: Mapping[str, StoredTensor]) -> tuple[int, int]:
    shape = tensors[QDATA].shape if QDATA in tensors else ()
    if len(shape) > 2:
        raise CheckpointError(
            f"{QDATA} has the shape {list(shape)}: only weights of two dimensions are read. Save the experts of the "
            "model as modules of their own"
        )
    return matrix_shape(shape)


@dataclass(frozen=True)
class Float8TensorWeight(TorchAoWeight):
    """Float8Tensor: `qdata` F8_E4M3 or F8_E5M2 [out, in], `scale` F32, one or a grid of blocks."""

    element: str = "F8_E4M3"

    @property
    def _table(self) -> CodeTable:
        return E5M2 if self.element == "F8_E5M2" else E4M3

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """The blocks are those that the shape of the scales makes, as in the library, whatever the metadata say."""
        shape = _shape_of(tensors)
        element = "F8_E5M2" if tensors[QDATA].dtype == "F8_E5M2" else "F8_E4M3"
        return replace(self, element=element, grid=_grid_of(tensors)), shape

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        return StoredTensor(QDATA, self.element, shape)

    def code_values(self) -> Array:
        return self._table.values

    def places(self) -> tuple[Array, int]:
        return self._table.places, self._table.highest

    def scale_values(self, stored: Array, rows: StoredRows) -> Array:
        return stored


@dataclass(frozen=True)
class Int8TensorWeight(TorchAoWeight):
    """Int8Tensor and IntxUnpackedToInt8Tensor: `qdata` I8 [out, in], `scale`, and `zero_point` I8 unless there is none.

    `block`: the rows and columns of a block, -1 for all of them. `bits`: of the codes.
    """

    block: tuple[int, int] = (1, -1)
    bits: int = 8
    dtype_of_scales: str = "F32"
    has_zero_points: bool = False
    of_integers = True

    @property
    def scale_dtype(self) -> str:
        return self.dtype_of_scales

    def beside_scales(self) -> tuple[StoredTensor, ...]:
        return (StoredTensor(ZERO_POINT, "I8", self.grid),) if self.has_zero_points else ()

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        shape = _shape_of(tensors)
        sizes = [extent if size == -1 else size for size, extent in zip(self.block, shape, strict=True)]
        if any(extent % size for extent, size in zip(shape, sizes, strict=True)):
            raise CheckpointError(f"a weight of shape {list(shape)} has no whole blocks of {list(self.block)}")
        scale = tensors.get(SCALE)
        return replace(
            self,
            grid=(shape[0] // sizes[0], shape[1] // sizes[1]),
            dtype_of_scales=scale.dtype if scale is not None and scale.dtype in EPSILON else "F32",
        ), shape

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        return StoredTensor(QDATA, "I8", shape)

    def code_values(self) -> Array:
        return SIGNED

    def places(self) -> tuple[Array, int]:
        return SIGNED.astype(np.int16), (1 << (self.bits - 1)) - 1

    def codes(self, stored: StoredRows) -> Codes:
        return replace(super().codes(stored), lowest=-(1 << (self.bits - 1)))

    def scale_values(self, stored: Array, rows: StoredRows) -> Array:
        return replace(rows, parts={SCALE: stored}).floats(SCALE)


@dataclass(frozen=True)
class _TiledWeight(TorchAoWeight):
    """Codes with a scale for each `width` columns of a row. `in_tiles`: whether the scales are swizzled."""

    width: int = 32
    in_tiles: bool = False

    @property
    def swizzled(self) -> bool:
        return self.in_tiles

    def columns_per_byte(self) -> int:
        """Return how many codes share a byte."""
        return 1

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        out, columns = _shape_of(tensors)
        shape = out, columns * self.columns_per_byte()
        if shape[1] % self.width:
            raise CheckpointError(f"a weight of shape {list(shape)} has no whole blocks of {self.width}")
        return replace(self, grid=(out, shape[1] // self.width)), shape

    def unpacked_codes(self, stored: StoredRows) -> Array:
        if self.columns_per_byte() == 1:
            return super().unpacked_codes(stored)
        return unpacked_bytes(stored.parts[QDATA], 4)

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        of_codes = unpacking_kernels(8 // self.columns_per_byte())
        return (*super().dequantizing_kernels(dtypes), *of_codes)


_MX_ELEMENTS = {
    "float8_e4m3fn": ("F8_E4M3", E4M3),
    "float8_e5m2": ("F8_E5M2", E5M2),
    "fp6_e2m3": ("U8", E2M3),
    "fp6_e3m2": ("U8", E3M2),
    "float4_e2m1fn_x2": ("U8", E2M1),
}
"""By `elem_dtype`: the dtype of `qdata`, and the codes."""
MX_ELEMENTS = tuple(_MX_ELEMENTS)


@dataclass(frozen=True)
class MxTensorWeight(_TiledWeight):
    """MXTensor: `qdata` of an element type, `scale` F8_E8M0 [out, in / width]."""

    element: str = "float8_e4m3fn"

    @property
    def scale_dtype(self) -> str:
        return "F8_E8M0"

    def columns_per_byte(self) -> int:
        return 2 if self.element == "float4_e2m1fn_x2" else 1

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        return StoredTensor(QDATA, _MX_ELEMENTS[self.element][0], (shape[0], shape[1] // self.columns_per_byte()))

    def code_values(self) -> Array:
        return _MX_ELEMENTS[self.element][1].values

    def places(self) -> tuple[Array, int]:
        table = _MX_ELEMENTS[self.element][1]
        return table.places, table.highest

    def scale_values(self, stored: Array, rows: StoredRows) -> Array:
        return E8M0_VALUES[stored]

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        """The scales are rounded to `dtype` too."""
        codes = self.scaled_codes(stored)
        return replace(codes, scales=rounded(codes.scales, dtype)).values(dtype).reshape(stored.count, -1)


@dataclass(frozen=True)
class Nvfp4TensorWeight(_TiledWeight):
    """NVFP4Tensor: `qdata` U8 [out, in / 2], `scale` F8_E4M3 [out, in / 16], and maybe `per_tensor_scale` F32 []."""

    width: int = 16
    has_tensor_scale: bool = False

    @property
    def scale_dtype(self) -> str:
        return "F8_E4M3"

    def columns_per_byte(self) -> int:
        return 2

    def beside_scales(self) -> tuple[StoredTensor, ...]:
        return (StoredTensor(TENSOR_SCALE, "F32", (1,)),) if self.has_tensor_scale else ()

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        return StoredTensor(QDATA, "U8", (shape[0], shape[1] // 2))

    def code_values(self) -> Array:
        return E2M1.values

    def places(self) -> tuple[Array, int]:
        return E2M1.places, E2M1.highest

    def scale_values(self, stored: Array, rows: StoredRows) -> Array:
        values: Array = E4M3.values[stored]
        if (outer := self.tensor_scale(rows)) is None:
            return values
        with np.errstate(all="ignore"):
            scales: Array = values * np.float32(outer)
        return scales

    def tensor_scale(self, stored: StoredRows) -> float | None:
        return float(stored.parts[TENSOR_SCALE].reshape(-1)[0]) if self.has_tensor_scale else None
