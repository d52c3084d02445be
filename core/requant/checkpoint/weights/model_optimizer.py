"""Weights as NVIDIA ModelOpt exports them.

R rounds to the dtype of the dequantized weight, e is 2^(byte - 127), 2^128 for the byte 255; everything else is f32:

    FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, W8A16, W8A8_SQ_PER_CHANNEL, W4A16_AWQ:  value = R(code * R(weight_scale))
    NVFP4, W4A16_NVFP4, NVFP4_AWQ, W4A8_NVFP4_FP8:  value = R(code * f32(weight_scale * weight_scale_2)), code 8 is +0
    MXFP8, MXFP4, W4A8_MXFP4_FP8:  value = R(code * e)

A `pre_quant_scale` [in], which the activations of the module are multiplied by, is folded into the columns of its
weight, as ModelOpt does where it takes one away: value' = R(value * pre_quant_scale). Then the plain layer computes
what the quantized one does.

Three are written, all in f32; a is the largest magnitude of what shares a scale, A that of the fused set:

    FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO:
        s    = a / 448, 1 where a is 0
        code = e4m3(w / s)
    W4A16_NVFP4:
        s2   = A / 2688, 1 where A is 0
        s    = e4m3(clamp(q, 2^-9, 448)), q = a / f32(6 * s2), 1 where that is 0
        code = E2M1(clamp(w / f32(s * s2), -6, 6))

ModelOpt stops with an assertion where a is 0, and writes NaN where A is 0.

The numbers of a weight are code * weight_scale, and code * f32(weight_scale * weight_scale_2), each times
pre_quant_scale. Those of compressed-tensors' NVFP4 are code * f32(weight_scale / weight_global_scale). Between the two
codes and scales stay, and one scale is f32(1 / the other); whether the numbers do is seen by comparing these products
and quotients, which are what the libraries compute. They do where the scale of the whole weight is a power of two;
otherwise a product and a quotient may be rounded to different sides, and then the weight is not held exactly: of all
other scales a fourth or so are held, and no f32 beside the reciprocal holds more.

Against compressed-tensors: `weight_scale_2` is a factor, where its `weight_global_scale` is a divisor, and scales of
integers and FP8 are F32 and rounded first. Codes of 4-bit floats are in the same order, those of W4A16_AWQ are not:
row 2i of the weight is in the lower halves of a row of bytes, row 2i + 1 in the upper, as two's complement.

Source: nvidia-modelopt 0.47.0, `FP8QTensor`, `INT8QTensor`, `NVFP4QTensor`, `MXFP8QTensor`, `MXFP4QTensor`
(`torch/quantization/qtensor`), `pack_int4_in_uint8` and `get_weight_scaling_factor` (`torch/export/quant_utils.py`),
`disable_pre_quant_scale_and_resmooth` (`torch/quantization/model_calib.py`). It has no function that reads W4A16_AWQ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from requant.checkpoint.weights.block_scaled import POWERS, codes_in_units, nvfp4_scales_that_hold, outer_scale, shared
from requant.checkpoint.weights.blocks import (
    Block,
    Extremes,
    ScaledCodes,
    e4m3_codes,
    e4m3_scales,
    largest_magnitudes,
    magnitude_kernel,
    packed_e2m1_codes,
    scales_by_row,
)
from requant.checkpoint.weights.compressed_tensors import FloatQuantized, IntQuantized
from requant.checkpoint.weights.floats import (
    E2M1,
    E4M3,
    EPSILON,
    Array,
    bits_of,
    check_weight,
    float_kernels,
    rounded,
    values,
)
from requant.checkpoint.weights.packing import unpacked_bytes, unpacking_kernels
from requant.checkpoint.weights.repack import SourceNumbers
from requant.checkpoint.weights.weight_format import (
    Codes,
    PlainRows,
    ReadOnlyFormat,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    check_groups,
    matrix_shape,
)
from requant.errors import CheckpointError
from requant.kernels.checkpoint.codes import E4M3_CODES, PACKED_E2M1_CODES
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel

WEIGHT, SCALE, SCALE_2, SMOOTHING = "weight", "weight_scale", "weight_scale_2", "pre_quant_scale"
_LOW_RANK = "svdquant_lora_a"
_E8M0 = ("U8", "F8_E8M0")
# Its table of the 16 values has 0 for the code of -0, too.
_E2M1: Array = E2M1.values + np.float32(0)
_SMALLEST_SCALE = np.float32(2.0**-9)
_INT4: Array = np.where(np.arange(256) % 16 < 8, np.arange(256) % 16, np.arange(256) % 16 - 16).astype(np.float32)


@dataclass(frozen=True)
class ModelOptimizerWeight(WeightFormat):
    """A weight of a module. `layout`: how it is stored, that of compressed-tensors where only its scales are others.

    `smoothing`: the dtype of its `pre_quant_scale`, None without one.
    """

    layout: WeightFormat
    smoothing: str | None = None

    @property
    def rows_together(self) -> int:
        """The rows of the layout."""
        return self.layout.rows_together

    @property
    def needs_extremes(self) -> bool:
        """Those of the layout."""
        return self.layout.needs_extremes

    @property
    def scales_show_not_finite(self) -> bool:
        """As with the layout."""
        return self.layout.scales_show_not_finite

    def overflows(self, extremes: Extremes, dtype: str) -> bool:
        return self.layout.overflows(extremes, dtype)

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        # Scales are F32, whatever the weights are.
        tensors = self.layout.stored("F32", shape)
        return tensors if self.smoothing is None else (*tensors, StoredTensor(SMOOTHING, self.smoothing, shape[1:]))

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        regions = self.layout.regions(dtype, shape, row_begin, row_end)
        if self.smoothing is None or row_begin > 0:
            return regions
        return (*regions, Region(SMOOTHING, 0, 1, 0, shape[1]))

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """Raises CheckpointError for a weight with a part of low rank, too."""
        if _LOW_RANK in tensors:
            raise CheckpointError(
                f"has {_LOW_RANK} and svdquant_lora_b, the product of which is a part of the weight that is not read: "
                "export the model without SVDQuant"
            )
        layout, shape = self.layout.resolve_from_stored(tensors, stated)
        smoothing = tensors[SMOOTHING].dtype if SMOOTHING in tensors else None
        if smoothing is not None and smoothing not in EPSILON:
            raise CheckpointError(f"{SMOOTHING} is {smoothing}; expected one of {', '.join(EPSILON)}")
        return replace(self, layout=layout, smoothing=smoothing), shape

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        return self.layout.quantized(rows, extremes)

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        return self.layout.repacked(source, shape, begin, "F32", extremes)

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        """With a `pre_quant_scale` each element has a scale, rounded to f32."""
        codes = self.layout.scaled_codes(stored)
        if self.smoothing is None:
            return codes
        scales = scales_by_row(codes.scales, codes.block, stored.count, stored.shape[1])
        return replace(codes, block=Block(1, 1), scales=self._by_columns(scales, stored))

    def numbers(self, stored: StoredRows) -> Array:
        numbers = self.layout.numbers(stored)
        if self.smoothing is None:
            return numbers
        with np.errstate(all="ignore"):
            products: Array = numbers * self._factors(stored)
        return products

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        rows = self.layout.dequantize(_with_rounded_scales(stored, dtype), dtype)
        if self.smoothing is None:
            return rows
        with np.errstate(all="ignore"):
            return bits_of(values(rows, dtype) * self._factors(stored), dtype)

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        return self.layout.quantizing_kernels(dtype)

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return self.layout.dequantizing_kernels(dtypes)

    def codes(self, stored: StoredRows) -> Codes:
        codes = self.layout.codes(stored)
        if self.smoothing is None:
            return codes
        return replace(codes, scales=self._by_columns(codes.scales, stored))

    def _by_columns(self, scales: Array, stored: StoredRows) -> Array:
        """Return the scales of rows, [rows, k], times the `pre_quant_scale`: f32 [rows, in]."""
        with np.errstate(all="ignore"):
            products: Array = np.repeat(scales, stored.shape[1] // scales.shape[1], axis=1) * self._factors(stored)
        return products

    def _factors(self, stored: StoredRows) -> Array:
        """Return the `pre_quant_scale`, [1, in]."""
        return stored.floats(SMOOTHING).reshape(1, -1)


def _with_rounded_scales(stored: StoredRows, dtype: str) -> StoredRows:
    """Return rows whose scales are rounded to `dtype`, where they are F32 or narrower floats of that kind.

    The product of a code and a rounded scale is exact in f32, and so rounded once.
    """
    if stored.dtypes[SCALE] not in EPSILON:
        return stored
    scales = rounded(stored.floats(SCALE), dtype)
    return replace(stored, parts={**stored.parts, SCALE: scales}, dtypes={**stored.dtypes, SCALE: "F32"})


@dataclass(frozen=True)
class Fp8(FloatQuantized):
    """`weight` F8_E4M3 [out, in], `weight_scale` F32: [] of a tensor, [out] of channels, and of blocks
    [ceil(out / height), 1, ceil(in / width), 1]."""

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        codes, scales = super().stored(dtype, shape)
        if self.grouping.strategy == "channel":
            return codes, replace(scales, shape=shape[:1])
        if self.grouping.strategy == "block":
            return codes, replace(scales, shape=(scales.shape[0], 1, scales.shape[1], 1))
        return codes, scales

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        regions = super().regions(dtype, shape, row_begin, row_end)
        if self.grouping.height is None:
            return regions
        codes, scales = regions
        columns = self.grouping.columns(shape)
        begin, end = scales.row_begin * columns, scales.row_end * columns
        if self.grouping.strategy == "channel":
            return codes, Region(SCALE, 0, 1, begin, end)
        # As a matrix, a tensor of rank 4 has one column.
        return codes, Region(SCALE, begin, end, 0, 1)

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        if self.grouping.height is None:
            raise CheckpointError("FP8 with one scale for a tensor is only read; its activations need a scale, too")
        block = Block(self.grouping.height, min(self.grouping.width or rows.shape[1], rows.shape[1]))
        largest = largest_magnitudes(rows.bits, rows.dtype, block)
        scales = np.where(largest == 0, np.float32(1), largest / np.float32(E4M3.largest))
        codes = e4m3_codes(rows.bits, rows.dtype, block, scales, rounds=False)
        return self._parts(rows.shape, codes, scales, None)

    def _parts(
        self, shape: tuple[int, int], coded: Array, scales: Array, zero_points: Array | None
    ) -> Mapping[str, Array]:
        """The matrices of scales have the shapes that `regions` says."""
        one_row = self.grouping.strategy == "channel"
        return super()._parts(shape, coded, scales.reshape((1, -1) if one_row else (-1, 1)), zero_points)


@dataclass(frozen=True)
class Int8(ReadOnlyFormat, IntQuantized):
    """`weight` I8 [out, in], `weight_scale` F32 [out]."""


@dataclass(frozen=True)
class FloatGroups(ReadOnlyFormat):
    """`weight` U8 [out, in / 2], or F8_E4M3 [out, in] if `bits` is 8; `weight_scale` [out, in / group].

    `scale_dtype`: F8_E4M3 (NVFP4), with a `weight_scale_2` F32 []; U8 or F8_E8M0 (MXFP4, MXFP8). `group`: None where
    config.json does not say it, as it seldom does: then the shapes do.
    """

    bits: int
    group: int | None
    scale_dtype: str

    @property
    def has_second_scale(self) -> bool:
        """Whether one scale for the whole weight scales those of the groups."""
        return self.scale_dtype == "F8_E4M3"

    @property
    def needs_extremes(self) -> bool:
        """Whether there is one scale for the whole weight."""
        return self.has_second_scale

    @property
    def width(self) -> int:
        """The columns of a group."""
        return self.group or (16 if self.has_second_scale else 32)

    def overflows(self, extremes: Extremes, dtype: str) -> bool:
        """Return whether weight_scale_2 underflows to 0 although not all numbers are 0: below 1.9e-42, in F32 alone."""
        return extremes.magnitude > 0 and not _second_scale(extremes) > 0

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        check_groups(shape, self.width)
        second = (StoredTensor(SCALE_2, "F32", ()),) if self.has_second_scale else ()
        scales = StoredTensor(SCALE, self.scale_dtype, (shape[0], shape[1] // self.width))
        codes = ("U8", (shape[0], shape[1] // 2)) if self.bits == 4 else ("F8_E4M3", shape)
        return (StoredTensor(WEIGHT, *codes), scales, *second)

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """A scale that is a power of two is of the dtype that it has: its bytes are the same."""
        out, bytes_ = _matrix_of_codes(tensors)
        columns = bytes_ * 8 // self.bits
        scale = tensors[SCALE].dtype if SCALE in tensors else self.scale_dtype
        form = replace(self, group=self.group or _group_of(tensors, columns))
        if self.scale_dtype in _E8M0 and scale in _E8M0:
            form = replace(form, scale_dtype=scale)
        return form, (out, columns)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        regions = (
            Region(WEIGHT, row_begin, row_end, 0, shape[1] * self.bits // 8),
            Region(SCALE, row_begin, row_end, 0, shape[1] // self.width),
        )
        return (*regions, Region(SCALE_2, 0, 1, 0, 1)) if self.has_second_scale and row_begin == 0 else regions

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        """Raises CheckpointError for MX formats, which are read only."""
        if not self.has_second_scale:
            return super().quantized(rows, extremes)
        second, block = _second_scale(shared(extremes)), Block(1, self.width)
        with np.errstate(all="ignore"):
            ratios = largest_magnitudes(rows.bits, rows.dtype, block) / (np.float32(E2M1.largest) * second)
            ideal = np.maximum(np.where(ratios == 0, np.float32(1), ratios), _SMALLEST_SCALE)
            scales = e4m3_scales(ideal)
            codes = packed_e2m1_codes(rows.bits, rows.dtype, block, E4M3.values[scales] * second, rounds=False)
        return {WEIGHT: codes, SCALE: scales, SCALE_2: np.array([[second]], "<f4")}

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        """The scale of the whole weight stays what it is, or becomes a power of two.

        Raises CheckpointError for MX formats, which are read only.
        """
        if not self.has_second_scale:
            return super().repacked(source, shape, begin, scale_dtype, extremes)
        block = Block(1, self.width)
        with np.errstate(all="ignore"):
            second = np.float32(outer_scale(source, extremes))
            scales = nvfp4_scales_that_hold(source, block, np.float64(second))
            scales[scales == 0] = 1
            codes = codes_in_units(source, E4M3.values[scales] * second, block, self.bits)
        return {WEIGHT: codes, SCALE: scales, SCALE_2: np.array([[second]], "<f4")}

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        table = E4M3.values if self.bits == 8 else _E2M1 if self.has_second_scale else E2M1.values
        block, scales = Block(1, self.width), self._scales(stored)
        outer = float(_stored_second_scale(stored)) if self.has_second_scale else None
        return ScaledCodes(self._codes(stored), table, stored.shape[1], block, scales, None, "F32", outer)

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        if not self.has_second_scale:
            return super().quantizing_kernels(dtype)
        return (magnitude_kernel(dtype), E4M3_CODES, PACKED_E2M1_CODES, *float_kernels((dtype,)))

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *unpacking_kernels(self.bits), *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        element = E2M1 if self.bits == 4 else E4M3
        places = element.places[self._codes(stored)]
        return Codes(places, -element.highest, element.highest, self._scales(stored), uniform=False)

    def _codes(self, stored: StoredRows) -> Array:
        codes = stored.parts[WEIGHT]
        return unpacked_bytes(codes, 4) if self.bits == 4 else np.ascontiguousarray(codes)

    def _scales(self, stored: StoredRows) -> Array:
        if not self.has_second_scale:
            return POWERS[stored.parts[SCALE]]
        with np.errstate(all="ignore"):
            scales: Array = E4M3.values[stored.parts[SCALE]] * _stored_second_scale(stored)
        return scales


@dataclass(frozen=True)
class Int4RowPairs(ReadOnlyFormat):
    """`weight` U8 [out / 2, in], two rows in a row of bytes; `weight_scale` F32 [out, in / group].

    `group`: None where config.json does not say it: then the shapes do.
    """

    group: int | None
    rows_together = 2

    @property
    def width(self) -> int:
        """The columns of a group."""
        return self.group or 128

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        check_groups(shape, self.width)
        return (
            StoredTensor(WEIGHT, "U8", (shape[0] // 2, shape[1])),
            StoredTensor(SCALE, dtype, (shape[0], shape[1] // self.width)),
        )

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        pairs, columns = _matrix_of_codes(tensors)
        return replace(self, group=self.group or _group_of(tensors, columns)), (2 * pairs, columns)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        return (
            Region(WEIGHT, row_begin // 2, row_end // 2, 0, shape[1]),
            Region(SCALE, row_begin, row_end, 0, shape[1] // self.width),
        )

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        block, scales = Block(1, self.width), stored.floats(SCALE)
        return ScaledCodes(_in_rows(stored), _INT4, stored.shape[1], block, scales, None, "F32")

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        return Codes(_INT4.astype(np.int16)[_in_rows(stored)], -8, 7, stored.floats(SCALE), uniform=True)


def _second_scale(extremes: Extremes) -> np.float32:
    """Return s2."""
    largest = np.float32(extremes.magnitude)
    return np.float32(1) if largest == 0 else largest / np.float32(E2M1.largest * E4M3.largest)


def _stored_second_scale(stored: StoredRows) -> np.float32:
    return np.float32(stored.parts[SCALE_2].reshape(-1)[0])


def _in_rows(stored: StoredRows) -> Array:
    """Return the codes, bytes [rows, in]."""
    pairs: Array = stored.parts[WEIGHT]
    return np.stack([pairs & 15, pairs >> 4], axis=1).reshape(-1, pairs.shape[1])


def _group_of(tensors: Mapping[str, StoredTensor], columns: int) -> int | None:
    """Return how many columns have a scale together, None where the scales do not divide them."""
    shape = tensors[SCALE].shape if SCALE in tensors else ()
    return columns // shape[1] if len(shape) == 2 and shape[1] and columns % shape[1] == 0 else None


def _matrix_of_codes(tensors: Mapping[str, StoredTensor]) -> tuple[int, int]:
    return matrix_shape(tensors[WEIGHT].shape if WEIGHT in tensors else ())
