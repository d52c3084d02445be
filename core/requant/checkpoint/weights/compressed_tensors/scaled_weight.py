"""The common part of integers and FP8: a scale of the weight's dtype for a tensor, channel, group or block.

Source: compressed-tensors 0.20.0, `quantization/lifecycle/forward_helpers.py`. R rounds to the weight's dtype W, the
CUDA profile has no R in the codes, and rint is RNE.

    integers:  code = rint(clamp(R(R(w / s) + z), -2^(b-1), 2^(b-1) - 1)), 0 where that is NaN
               value = R(R(code - z) * s)
    FP8:       code = f8E4M3FN(clamp(R(w / s), -448, 448)), RNE
               value = R(code * s)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

import numpy as np

from requant.checkpoint.weights.blocks import Block, extremes_of_groups, largest_magnitudes, scaled, whole_extremes
from requant.checkpoint.weights.compressed_tensors.grouping import Grouping
from requant.checkpoint.weights.compressed_tensors.scales import asymmetric_scales, symmetric_scales
from requant.checkpoint.weights.floats import bits_of, check_weight, values
from requant.checkpoint.weights.weight_format import (
    Array,
    Codes,
    Extremes,
    Region,
    StoredTensor,
    WeightFormat,
    with_regions,
)


@dataclass(frozen=True)
class ScaledWeight(WeightFormat):
    """Codes with scales. `rounds`: whether each step is rounded to the weight's dtype, as in the profile of the CPU."""

    grouping: Grouping
    rounds: bool

    of_integers: ClassVar[bool]
    """Whether the codes are integers."""

    symmetric: bool = True
    bits: int = 8

    uniform: ClassVar[bool] = True
    """Whether codes are integers."""

    @property
    def rows_together(self) -> int:  # type: ignore[override]
        """The rows of a block."""
        return self.grouping.height or 1

    @property
    def needs_extremes(self) -> bool:  # type: ignore[override]
        """Whether all of the weight shares one scale."""
        return self.grouping.height is None

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
    def unpacked_codes(self, stored: Mapping[str, Array], columns: int) -> Array:
        """Return codes, one in a byte, of rows of `columns`."""

    @abstractmethod
    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        """Return the tensor that holds the codes, with the shape of a matrix."""

    def zero_point_tensor(self, shape: tuple[int, int]) -> StoredTensor | None:
        """Return the tensor that holds zero points, None if there are none."""
        return None

    def zero_point_rows(self, row_begin: int, row_end: int) -> tuple[int, int]:
        """Return which of its rows belong to rows of the weight."""
        return self.grouping.scale_rows(row_begin, row_end)

    def stored_zero_points(self, zero_points: Array) -> Array:
        """Return zero points as they are stored."""
        raise NotImplementedError

    def unpacked_zero_points(self, stored: Array, rows: int) -> Array:
        """Return as f32 the zero points of `rows` rows of scales."""
        raise NotImplementedError

    def once(self, shape: tuple[int, int]) -> dict[str, tuple[StoredTensor, Array]]:
        """Return the tensors that are stored once, by suffix."""
        return {}

    def measure(self, rows: Array, dtype: str) -> Extremes:
        """As `WeightFormat.measure`."""
        return whole_extremes(rows, dtype)

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """As `WeightFormat.stored`."""
        check_weight(dtype, shape)
        self.grouping.check(shape)
        scales = StoredTensor("weight_scale", dtype, self.grouping.scale_shape(shape))
        zero_points = self.zero_point_tensor(shape)
        beside = [each for each, _ in self.once(shape).values()]
        return (self.code_tensor(shape), scales, *([zero_points] if zero_points else []), *beside)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """As `WeightFormat.regions`."""
        codes = self.code_tensor(shape)
        found = [Region(codes.suffix, row_begin, row_end, 0, codes.shape[1])]
        columns = self.grouping.columns(shape)
        if not self.needs_extremes or row_begin == 0:
            found.append(Region("weight_scale", *self.grouping.scale_rows(row_begin, row_end), 0, columns))
        if zero_points := self.zero_point_tensor(shape):
            found.append(Region(zero_points.suffix, *self.zero_point_rows(row_begin, row_end), 0, columns))
        if row_begin == 0:
            found += [Region(suffix, 0, 1, 0, each.shape[0]) for suffix, (each, _) in self.once(shape).items()]
        return tuple(found)

    def quantize(
        self, rows: Array, dtype: str, shape: tuple[int, int], row_begin: int, extremes: Extremes | None = None
    ) -> list[tuple[Region, Array]]:
        """As `WeightFormat.quantize`."""
        block = self._block(shape)
        scales, zero_points = self._scales(rows, dtype, block, extremes)
        parts = {
            self.code_tensor(shape).suffix: self.coded(rows, dtype, block, scales, zero_points),
            "weight_scale": bits_of(scales, dtype),
            **{suffix: array for suffix, (_, array) in self.once(shape).items()},
        }
        if zero_points is not None:
            parts["weight_zero_point"] = self.stored_zero_points(zero_points)
        return with_regions(parts, self.regions(dtype, shape, row_begin, row_begin + rows.shape[0]))

    def dequantize(
        self,
        stored: Mapping[str, Array],
        dtypes: Mapping[str, str],
        dtype: str,
        shape: tuple[int, int],
        row_begin: int,
        row_end: int,
    ) -> Array:
        """As `WeightFormat.dequantize`."""
        scales = self._stored_scales(stored, dtypes, shape)
        zero_points = None
        if not self.symmetric:
            zero_points = self.unpacked_zero_points(stored["weight_zero_point"], scales.shape[0])
        codes = self.unpacked_codes(stored, shape[1])
        return scaled(
            codes,
            self.table(),
            shape[1],
            self._block(shape),
            scales,
            zero_points,
            precision=dtypes["weight_scale"],
            dtype=dtype,
        )

    def codes(
        self,
        stored: Mapping[str, Array],
        dtypes: Mapping[str, str],
        shape: tuple[int, int],
        row_begin: int,
        row_end: int,
    ) -> Codes:
        """As `WeightFormat.codes`."""
        places, lowest, highest = self.places()
        codes = self.unpacked_codes(stored, shape[1])[:, : shape[1]].view(np.uint8)
        block, scales = self._block(shape), self._stored_scales(stored, dtypes, shape)
        scales = np.repeat(scales, min(block.height, row_end - row_begin), axis=0)[: row_end - row_begin]
        # Where the edge of the weight cuts blocks off, they are not of equal widths.
        width = gcd(block.width, shape[1])
        scales = np.repeat(scales, block.width // width, axis=1)[:, : shape[1] // width]
        return Codes(places[codes], lowest, highest, scales, uniform=self.of_integers)

    def _stored_scales(self, stored: Mapping[str, Array], dtypes: Mapping[str, str], shape: tuple[int, int]) -> Array:
        scales = values(np.ascontiguousarray(stored["weight_scale"]), dtypes["weight_scale"])
        return scales.reshape(-1, self.grouping.columns(shape))

    def _block(self, shape: tuple[int, int]) -> Block:
        # A block that the edge of the weight cuts off may be of any width.
        return Block(self.grouping.height or shape[0], min(self.grouping.width or shape[1], shape[1]))

    def _scales(self, rows: Array, dtype: str, block: Block, whole: Extremes | None) -> tuple[Array, Array | None]:
        if not self.symmetric:
            lows, highs = extremes_of_groups(rows, dtype, block.width)
            return asymmetric_scales(lows, highs, self.bits, dtype)
        if not self.needs_extremes:
            largest = largest_magnitudes(rows, dtype, block)
        elif whole is None:
            raise ValueError("one scale for the whole weight needs its extremes")
        else:
            largest = np.array([[max(abs(whole.minimum), abs(whole.maximum))]], np.float32)
        return symmetric_scales(largest, self.half_range(), dtype), None
