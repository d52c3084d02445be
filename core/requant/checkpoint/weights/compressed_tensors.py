"""Weights as compressed-tensors stores integers and FP8: vLLM, SGLang and transformers load these.

A scale of the weight's dtype W is shared by a tensor, channel, group or block. R rounds to W, the CUDA profile has no R
in the codes, and rint is RNE. With mn = min(0, smallest), mx = max(0, largest) of what shares a scale:

    symmetric:    s = R(max(-mn, mx) / ((hi - lo) / 2))
    asymmetric:   s = R(R(mx - mn) / (hi - lo)), z = int8(rint(clamp(R(lo - R(mn / s)), lo, hi))), 0 where that is NaN
    s = 0:        the epsilon of W
    integers:     code = rint(clamp(R(R(w / s) + z), -2^(b-1), 2^(b-1) - 1)), 0 where that is NaN
                  value = R(R(code - z) * s)
    FP8:          code = f8E4M3FN(clamp(R(w / s), -448, 448)), RNE
                  value = R(code * s)

Groups of integers may be ordered by activations (`actorder` group, which 0.20 no longer writes): then `weight_g_idx`,
I32 [in], has the group of each column, or -1 everywhere for groups of neighbours. It is read only.

Source: https://github.com/vllm-project/compressed-tensors, version 0.20.0, each checked against its output:
`calculate_qparams` (`quantization/utils/helpers.py`), `quantization/lifecycle/forward_helpers.py`,
`compressors/naive_quantized`, `compressors/pack_quantized`. Of `weight_g_idx` version 0.12.2, which sorts the columns
by their groups (`_process_quantization`, `quantization/lifecycle/forward.py`): groups that do not have g columns each
would be cut anew, and are refused.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from requant.checkpoint.weights.blocks import (
    Block,
    Extremes,
    ScaledCodes,
    codes,
    e4m3_codes,
    extremes_kernel,
    extremes_of_groups,
    largest_magnitudes,
    magnitude_kernel,
    scales_by_row,
)
from requant.checkpoint.weights.floats import (
    E4M3,
    EPSILON,
    SIGNED,
    UNSIGNED,
    Array,
    bits_of,
    check_weight,
    float_kernels,
    rounded,
)
from requant.checkpoint.weights.packing import (
    loose_codes,
    loose_words,
    loosely_unpacked,
    packed,
    packing_kernels,
    padded,
    unpacked,
    unpacking_kernels,
    whole,
    words,
)
from requant.checkpoint.weights.repack import SourceNumbers
from requant.checkpoint.weights.weight_format import (
    Codes,
    PlainRows,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    check_groups,
)
from requant.errors import CheckpointError
from requant.kernels.checkpoint.codes import E4M3_CODES, INTEGER_CODES, PACKED_INTEGER_CODES
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel

G_IDX = "weight_g_idx"
CODES = "weight_packed"


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which elements of a weight share a scale: blocks of `height` rows and `width` columns; None: all of them.

    tensor (None, None), channel (1, None), group (1, g), block (h, w). Only blocks may be cut off at the edges. Source:
    `QuantizationStrategy` (`quantization/quant_args.py`).
    """

    height: int | None
    width: int | None

    @property
    def strategy(self) -> str:
        """The name of the library."""
        if self.height is None:
            return "tensor"
        if self.width is None:
            return "channel"
        return "group" if self.height == 1 else "block"

    def check(self, shape: tuple[int, int]) -> None:
        """Raise CheckpointError unless a weight [out, in] can be grouped."""
        if self.strategy == "group" and self.width is not None:
            check_groups(shape, self.width)

    def columns(self, shape: tuple[int, int]) -> int:
        """Return how many scales a row of the weight has."""
        return 1 if self.width is None else -(-shape[1] // self.width)

    def scale_shape(self, shape: tuple[int, int]) -> tuple[int, ...]:
        """Return the shape of the stored scales: (1,) for a tensor."""
        if self.height is None:
            return (1,)
        return (-(-shape[0] // self.height), self.columns(shape))

    def scale_rows(self, row_begin: int, row_end: int) -> tuple[int, int]:
        """Return the rows [begin, end) of scales that rows of the weight have."""
        if self.height is None:
            return 0, 1
        return row_begin // self.height, -(-row_end // self.height)


TENSOR = Grouping(None, None)
CHANNEL = Grouping(1, None)


def groups_of(size: int) -> Grouping:
    """Return groups of `size` columns."""
    return Grouping(1, size)


class Int8ZeroPoints:
    """Zero points stored as I8, one for each scale."""

    def tensor(self, grouping: Grouping, shape: tuple[int, int]) -> StoredTensor:
        """Return the tensor that holds those of a weight of `shape`."""
        return StoredTensor("weight_zero_point", "I8", grouping.scale_shape(shape))

    def stored_rows(self, grouping: Grouping, row_begin: int, row_end: int) -> tuple[int, int]:
        """Return which of its rows belong to rows of the weight."""
        return grouping.scale_rows(row_begin, row_end)

    def pack(self, zero_points: Array) -> Array:
        """Return zero points, f32 [rows of scales, k], as they are stored."""
        return zero_points.astype(np.int8)

    def unpack(self, stored: Array, rows: int) -> Array:
        """Return as f32 the zero points of `rows` rows of scales."""
        return stored.astype(np.float32)


@dataclass(frozen=True, slots=True)
class PackedZeroPoints:
    """Zero points stored as I32: z + 2^(b-1), packed like codes, but along the axis of the rows."""

    bits: int
    loose: bool = False

    def _words(self, count: int) -> int:
        return loose_words(count, self.bits) if self.loose else words(count, self.bits)

    def tensor(self, grouping: Grouping, shape: tuple[int, int]) -> StoredTensor:
        return StoredTensor("weight_zero_point", "I32", (self._words(shape[0]), grouping.columns(shape)))

    def stored_rows(self, grouping: Grouping, row_begin: int, row_end: int) -> tuple[int, int]:
        return self._words(row_begin), self._words(row_end)

    def pack(self, zero_points: Array) -> Array:
        count, columns = zero_points.shape
        unsigned = np.zeros((columns, padded(count, self.bits)), np.uint8)
        unsigned[:, :count] = zero_points.T + np.float32(1 << (self.bits - 1))
        return np.ascontiguousarray(packed(unsigned, self.bits, count).T)

    def unpack(self, stored: Array, rows: int) -> Array:
        by_row = np.ascontiguousarray(stored.T)
        unsigned = (loosely_unpacked(by_row, self.bits) if self.loose else unpacked(by_row, self.bits, rows))[:, :rows]
        return np.ascontiguousarray(unsigned.T.astype(np.float32) - np.float32(1 << (self.bits - 1)))


ZeroPoints = Int8ZeroPoints | PackedZeroPoints


@dataclass(frozen=True)
class ScaledWeight(WeightFormat):
    """Codes with scales. `rounds`: whether each step is rounded to the weight's dtype, as in the profile of the CPU."""

    grouping: Grouping
    rounds: bool

    of_integers: ClassVar[bool]
    """Whether the codes are integers."""

    @property
    def zero_points(self) -> ZeroPoints | None:
        """How zero points are stored, None if there are none."""
        return None

    @property
    def rows_together(self) -> int:
        """The rows of a block."""
        return self.grouping.height or 1

    @property
    def needs_extremes(self) -> bool:
        """Whether all of the weight shares one scale."""
        return self.grouping.height is None

    @property
    def scales_show_not_finite(self) -> bool:
        """A scale is the largest magnitude, or the distance of the extremes, divided."""
        return True

    @abstractmethod
    def half_range(self) -> float:
        """Return (hi - lo) / 2 of the codes."""

    @abstractmethod
    def table(self) -> Array:
        """Return the values of the 256 bytes that `unpacked_codes` may hold, as f32."""

    @abstractmethod
    def places(self) -> tuple[Array, int, int]:
        """Return the places, as `Codes` counts them, of the 256 bytes that `unpacked_codes` may hold, as i16, and the
        lowest and the highest that is written."""

    @abstractmethod
    def coded(self, rows: Array, dtype: str, block: Block, scales: Array, zero_points: Array | None) -> Array:
        """Return the stored codes."""

    @abstractmethod
    def unpacked_codes(self, stored: StoredRows) -> Array:
        """Return codes, one in a byte, of rows of at least as many columns as the weight has."""

    @abstractmethod
    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        """Return the tensor that holds the codes, with the shape of a matrix."""

    def once(self, shape: tuple[int, int]) -> dict[str, tuple[StoredTensor, Array]]:
        """Return the tensors that are stored once, by suffix."""
        return {}

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        self.grouping.check(shape)
        scales = StoredTensor("weight_scale", dtype, self.grouping.scale_shape(shape))
        zero_points = [self.zero_points.tensor(self.grouping, shape)] if self.zero_points else []
        return (self.code_tensor(shape), scales, *zero_points, *(each for each, _ in self.once(shape).values()))

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        code_tensor = self.code_tensor(shape)
        regions = [Region(code_tensor.suffix, row_begin, row_end, 0, code_tensor.shape[1])]
        columns = self.grouping.columns(shape)
        if not self.needs_extremes or row_begin == 0:
            regions.append(Region("weight_scale", *self.grouping.scale_rows(row_begin, row_end), 0, columns))
        if self.zero_points:
            place = self.zero_points.stored_rows(self.grouping, row_begin, row_end)
            regions.append(Region("weight_zero_point", *place, 0, columns))
        if row_begin == 0:
            regions += [Region(suffix, 0, 1, 0, each.shape[0]) for suffix, (each, _) in self.once(shape).items()]
        return tuple(regions)

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        block = self._block(rows.shape)
        scales, zero_points = self.parameters(rows.bits, rows.dtype, block, extremes)
        coded = self.coded(rows.bits, rows.dtype, block, scales, zero_points)
        return self._parts(rows.shape, coded, bits_of(scales, rows.dtype), zero_points)

    def _parts(
        self, shape: tuple[int, int], coded: Array, scales: Array, zero_points: Array | None
    ) -> Mapping[str, Array]:
        parts = {
            self.code_tensor(shape).suffix: coded,
            "weight_scale": scales,
            **{suffix: array for suffix, (_, array) in self.once(shape).items()},
        }
        if self.zero_points and zero_points is not None:
            parts["weight_zero_point"] = self.zero_points.pack(zero_points)
        return parts

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        if self.grouping.height is None:
            raise CheckpointError(
                "codes of scales of their own are not moved to one scale for the whole weight: choose a scheme with "
                "scales for channels, groups or blocks"
            )
        block = self._block(shape)
        ideal, zero_points = self.scales_that_hold(source, block)
        scales = rounded(ideal.astype(np.float32), scale_dtype)
        ones = np.ones(scales.shape, np.float32)
        coded = self.coded(source.in_units(scales, block), "F32", block, ones, zero_points)
        return self._parts(shape, coded, bits_of(scales, scale_dtype), zero_points)

    @abstractmethod
    def scales_that_hold(self, source: SourceNumbers, block: Block) -> tuple[Array, Array | None]:
        """Return the scales with which codes hold the numbers of blocks, if any do, and the zero points."""

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        block, scales, zero_points = self.stored_parameters(stored)
        return ScaledCodes(
            self.unpacked_codes(stored),
            self.table(),
            stored.shape[1],
            block,
            scales,
            zero_points,
            stored.dtypes["weight_scale"],
        )

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        of_scales = () if self.needs_extremes else (magnitude_kernel(dtype),)
        return (*of_scales, *self.coding_kernels(), *float_kernels((dtype,)))

    @abstractmethod
    def coding_kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels that `coded` calls."""

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        places, lowest, highest = self.places()
        stored_codes = self.unpacked_codes(stored)[:, : stored.shape[1]].view(np.uint8)
        block, scales, _ = self.stored_parameters(stored)
        scales = scales_by_row(scales, block, stored.count, stored.shape[1])
        return Codes(places[stored_codes], lowest, highest, scales, uniform=self.of_integers)

    def stored_parameters(self, stored: StoredRows) -> tuple[Block, Array, Array | None]:
        """Return the blocks of rows, and of each the scale and the zero point, None without, as f32."""
        scales = stored.floats("weight_scale").reshape(-1, self.grouping.columns(stored.shape))
        zero_points = None
        if self.zero_points:
            zero_points = self.zero_points.unpack(stored.parts["weight_zero_point"], scales.shape[0])
        return self._block(stored.shape), scales, zero_points

    def _block(self, shape: tuple[int, int]) -> Block:
        # A block that the edge of the weight cuts off may be of any width.
        return Block(self.grouping.height or shape[0], min(self.grouping.width or shape[1], shape[1]))

    def parameters(self, rows: Array, dtype: str, block: Block, of_all: Extremes | None) -> tuple[Array, Array | None]:
        """Return the scales, rounded to `dtype`, and the zero points, None without, as f32."""
        if not self.needs_extremes:
            largest = largest_magnitudes(rows, dtype, block)
        elif of_all is None:
            raise ValueError("one scale for the whole weight needs its extremes")
        else:
            largest = np.array([[of_all.magnitude]], np.float32)
        return _not_zero(rounded(largest / np.float32(self.half_range()), dtype), dtype), None


def _asymmetric_scales(lows: Array, highs: Array, bits: int, dtype: str) -> tuple[Array, Array]:
    zero, lowest, highest = np.float32(0), np.float32(-(2.0 ** (bits - 1))), np.float32(2.0 ** (bits - 1) - 1)
    smallest, largest = np.minimum(lows, zero), np.maximum(highs, zero)
    with np.errstate(all="ignore"):
        scales = rounded(rounded(largest - smallest, dtype) / (highest - lowest), dtype)
        ideal = rounded(lowest - rounded(smallest / scales, dtype), dtype)
    points = np.rint(np.clip(ideal, lowest, highest))
    return _not_zero(scales, dtype), np.where(np.isnan(points), zero, points)


def _not_zero(scales: Array, dtype: str) -> Array:
    return np.where(scales == 0, EPSILON[dtype], scales)


@dataclass(frozen=True)
class IntegerWeight(ScaledWeight):
    """Integers of `bits` bits, with zero points unless they are symmetric.

    `ordered`: whether groups are ordered by activations, and `weight_g_idx` is stored.
    """

    symmetric: bool = True
    bits: int = 8
    ordered: bool = False
    of_integers = True

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the stored tensors."""
        g_idx = (StoredTensor(G_IDX, "I32", (shape[1],)),) if self.ordered else ()
        return (*super().stored(dtype, shape), *g_idx)

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        if self.ordered:
            raise CheckpointError("groups in the order of activations are only read; choose a scheme to quantize to")
        return super().quantized(rows, extremes)

    def stored_parameters(self, stored: StoredRows) -> tuple[Block, Array, Array | None]:
        """Raises CheckpointError for a `weight_g_idx` that does not have each group as often as it is wide."""
        block, scales, zero_points = super().stored_parameters(stored)
        if not self.ordered or (groups := self._groups_of_columns(stored)) is None:
            return block, scales, zero_points
        of_columns = None if zero_points is None else np.ascontiguousarray(zero_points[:, groups])
        return Block(1, 1), np.ascontiguousarray(scales[:, groups]), of_columns

    def _groups_of_columns(self, stored: StoredRows) -> Array | None:
        """Return the group of each column, None where they are those of neighbours."""
        groups, width = stored.parts[G_IDX].reshape(-1), self.grouping.width
        assert width is not None
        count = stored.shape[1] // width
        if (groups == -1).all():
            return None
        if int(groups.min()) < 0 or int(groups.max()) >= count:
            raise CheckpointError(
                f"weight_g_idx has groups {groups.min()} to {groups.max()}, and the weight has {count} groups of scales"
            )
        uneven = np.flatnonzero(np.bincount(groups, minlength=count) != width)
        if uneven.size:
            raise CheckpointError(
                f"weight_g_idx has group {uneven[0]} {int((groups == uneven[0]).sum())} times; expected each "
                f"{width} times, as often as a group has columns"
            )
        return None if np.array_equal(groups, np.arange(groups.size) // width) else groups

    def half_range(self) -> float:
        return (2.0**self.bits - 1) / 2

    def places(self) -> tuple[Array, int, int]:
        highest = (1 << (self.bits - 1)) - 1
        return self.table().astype(np.int16), -highest - 1, highest

    def scales_that_hold(self, source: SourceNumbers, block: Block) -> tuple[Array, Array | None]:
        highest = 2.0 ** (self.bits - 1) - 1
        return source.scales_of_integers(block, -highest - 1, highest, zero_points=not self.symmetric)

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        if self.symmetric:
            return super().quantizing_kernels(dtype)
        return (extremes_kernel(dtype), *self.coding_kernels(), *float_kernels((dtype,)))

    def parameters(self, rows: Array, dtype: str, block: Block, of_all: Extremes | None) -> tuple[Array, Array | None]:
        if self.symmetric:
            return super().parameters(rows, dtype, block, of_all)
        lows, highs = extremes_of_groups(rows, dtype, block.width)
        return _asymmetric_scales(lows, highs, self.bits, dtype)


@dataclass(frozen=True)
class IntQuantized(IntegerWeight):
    """int-quantized: `weight` I8 [out, in], `weight_scale`, and asymmetric `weight_zero_point` I8."""

    @property
    def zero_points(self) -> ZeroPoints | None:
        return None if self.symmetric else Int8ZeroPoints()

    def table(self) -> Array:
        return SIGNED

    def coded(self, rows: Array, dtype: str, block: Block, scales: Array, zero_points: Array | None) -> Array:
        return codes(
            INTEGER_CODES,
            rows,
            dtype,
            block,
            scales,
            zero_points,
            rounds=self.rounds,
            lowest=-(2.0 ** (self.bits - 1)),
            highest=2.0 ** (self.bits - 1) - 1,
            stride=rows.shape[1],
        ).view(np.int8)

    def coding_kernels(self) -> tuple[Kernel, ...]:
        return (INTEGER_CODES,)

    def unpacked_codes(self, stored: StoredRows) -> Array:
        return np.ascontiguousarray(stored.parts["weight"])

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        return StoredTensor("weight", "I8", shape)


@dataclass(frozen=True)
class PackQuantized(IntegerWeight):
    """pack-quantized: `weight_packed` I32, `weight_scale`, `weight_shape`, and asymmetric `weight_zero_point` I32.

    Packed is code + 2^(b-1), by `requant.checkpoint.weights.packing`. `loose`: whether no code lies across two words,
    as 0.17 and before packed 3, 5, 6 and 7 bits, which is read only.
    """

    loose: bool = False

    @property
    def zero_points(self) -> ZeroPoints | None:
        return None if self.symmetric else PackedZeroPoints(self.bits, self.loose)

    @property
    def rows_together(self) -> int:
        """As many rows as have zero points in whole words."""
        if self.symmetric:
            return 1
        return loose_codes(self.bits) if self.loose else whole(self.bits)

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """How codes are packed is seen from the number of words; of rows below 200 columns both may take as many."""
        resolved, shape = super().resolve_from_stored(tensors, stated)
        found = tensors[CODES].shape if CODES in tensors else ()
        loose = len(found) == 2 and words(shape[1], self.bits) != found[1] == loose_words(shape[1], self.bits)
        return (replace(self, loose=True) if loose else resolved), shape

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        if self.loose:
            raise CheckpointError("codes with gaps between words are only read; choose a scheme to quantize to")
        return super().quantized(rows, extremes)

    @property
    def _offset(self) -> int:
        return 1 << (self.bits - 1)

    def table(self) -> Array:
        return UNSIGNED - np.float32(self._offset)

    def coded(self, rows: Array, dtype: str, block: Block, scales: Array, zero_points: Array | None) -> Array:
        # The kernel packs pairs, so a block must not end within one.
        in_pairs = self.bits == 4 and (block.width % 2 == 0 or block.width == rows.shape[1])
        coded = codes(
            PACKED_INTEGER_CODES if in_pairs else INTEGER_CODES,
            rows,
            dtype,
            block,
            scales,
            zero_points,
            rounds=self.rounds,
            lowest=-float(self._offset),
            highest=float(self._offset - 1),
            offset=self._offset,
            stride=padded(rows.shape[1], self.bits),
            per_byte=2 if in_pairs else 1,
        )
        return coded.view("<i4") if in_pairs else packed(coded, self.bits, rows.shape[1])

    def coding_kernels(self) -> tuple[Kernel, ...]:
        of_zero_points = () if self.symmetric else packing_kernels(self.bits)
        if self.bits == 4 and (self.grouping.width is None or self.grouping.width % 2 == 0):
            return (PACKED_INTEGER_CODES, *of_zero_points)
        return (INTEGER_CODES, *packing_kernels(self.bits))

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        of_codes = () if self.loose else unpacking_kernels(self.bits)
        return (*super().dequantizing_kernels(dtypes), *of_codes)

    def unpacked_codes(self, stored: StoredRows) -> Array:
        if self.loose:
            return loosely_unpacked(stored.parts[CODES], self.bits)
        return unpacked(stored.parts[CODES], self.bits, stored.shape[1])

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        count = loose_words(shape[1], self.bits) if self.loose else words(shape[1], self.bits)
        return StoredTensor(CODES, "I32", (shape[0], count))

    def once(self, shape: tuple[int, int]) -> dict[str, tuple[StoredTensor, Array]]:
        return {"weight_shape": (StoredTensor("weight_shape", "I64", (2,)), np.array([shape], "<i8"))}


@dataclass(frozen=True)
class FloatQuantized(ScaledWeight):
    """float-quantized: `weight` F8_E4M3 [out, in] and `weight_scale`; naive-quantized is the same."""

    of_integers = False

    def half_range(self) -> float:
        return E4M3.largest

    def scales_that_hold(self, source: SourceNumbers, block: Block) -> tuple[Array, Array | None]:
        return source.scales_of_floats(block, E4M3.largest), None

    def table(self) -> Array:
        return E4M3.values

    def places(self) -> tuple[Array, int, int]:
        return E4M3.places, -E4M3.highest, E4M3.highest

    def coded(self, rows: Array, dtype: str, block: Block, scales: Array, zero_points: Array | None) -> Array:
        return e4m3_codes(rows, dtype, block, scales, rounds=self.rounds)

    def coding_kernels(self) -> tuple[Kernel, ...]:
        return (E4M3_CODES,)

    def unpacked_codes(self, stored: StoredRows) -> Array:
        return np.ascontiguousarray(stored.parts["weight"])

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        return StoredTensor("weight", "F8_E4M3", shape)
