"""Weights as integers: int-quantized, one byte for each, and pack-quantized, packed into words of 32 bits.

Source: compressed-tensors 0.20.0, `compressors/naive_quantized` and `compressors/pack_quantized`.

Packed is code + 2^(b-1), by `requant.checkpoint.weights.packing`. Zero points are packed likewise, but along the axis
of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.checkpoint.weights.blocks import Block, codes
from requant.checkpoint.weights.compressed_tensors.scaled_weight import ScaledWeight
from requant.checkpoint.weights.packing import packed, padded, unpacked, whole, words
from requant.checkpoint.weights.weight_format import Array, StoredTensor
from requant.kernels.checkpoint.codes import INTEGER_CODES, PACKED_INTEGER_CODES

_SIGNED = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)


@dataclass(frozen=True)
class IntegerWeight(ScaledWeight):
    """Integers of `bits` bits."""

    of_integers = True

    def half_range(self) -> float:
        """As `ScaledWeight.half_range`."""
        return (2.0**self.bits - 1) / 2

    def places(self) -> tuple[Array, int, int]:
        """As `ScaledWeight.places`."""
        highest = (1 << (self.bits - 1)) - 1
        return self.table().astype(np.int16), -highest - 1, highest


@dataclass(frozen=True)
class IntQuantized(IntegerWeight):
    """int-quantized: `weight` I8 [out, in], `weight_scale`, and asymmetric `weight_zero_point` I8."""

    def table(self) -> Array:
        """As `ScaledWeight.table`."""
        return _SIGNED

    def coded(self, rows: Array, dtype: str, block: Block, scales: Array, zero_points: Array | None) -> Array:
        """As `ScaledWeight.coded`."""
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

    def unpacked_codes(self, stored: Mapping[str, Array], columns: int) -> Array:
        """As `ScaledWeight.unpacked_codes`."""
        return np.ascontiguousarray(stored["weight"])

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        """As `ScaledWeight.code_tensor`."""
        return StoredTensor("weight", "I8", shape)

    def zero_point_tensor(self, shape: tuple[int, int]) -> StoredTensor | None:
        """As `ScaledWeight.zero_point_tensor`."""
        return None if self.symmetric else StoredTensor("weight_zero_point", "I8", self.grouping.scale_shape(shape))

    def stored_zero_points(self, zero_points: Array) -> Array:
        """As `ScaledWeight.stored_zero_points`."""
        return zero_points.astype(np.int8)

    def unpacked_zero_points(self, stored: Array, rows: int) -> Array:
        """As `ScaledWeight.unpacked_zero_points`."""
        return stored.astype(np.float32)


@dataclass(frozen=True)
class PackQuantized(IntegerWeight):
    """pack-quantized: `weight_packed` I32, `weight_scale`, `weight_shape`, and asymmetric `weight_zero_point` I32."""

    @property
    def rows_together(self) -> int:  # type: ignore[override]
        """As many rows as have zero points in whole words."""
        return 1 if self.symmetric else whole(self.bits)

    @property
    def _offset(self) -> int:
        return 1 << (self.bits - 1)

    def table(self) -> Array:
        """As `ScaledWeight.table`."""
        return np.arange(256, dtype=np.float32) - np.float32(self._offset)

    def coded(self, rows: Array, dtype: str, block: Block, scales: Array, zero_points: Array | None) -> Array:
        """As `ScaledWeight.coded`."""
        # The kernel packs pairs, so a block must not end within one.
        in_pairs = self.bits == 4 and (block.width % 2 == 0 or block.width == rows.shape[1])
        found = codes(
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
        return found.view("<i4") if in_pairs else packed(found, self.bits, rows.shape[1])

    def unpacked_codes(self, stored: Mapping[str, Array], columns: int) -> Array:
        """As `ScaledWeight.unpacked_codes`."""
        return unpacked(stored["weight_packed"], self.bits, columns)

    def code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        """As `ScaledWeight.code_tensor`."""
        return StoredTensor("weight_packed", "I32", (shape[0], words(shape[1], self.bits)))

    def zero_point_tensor(self, shape: tuple[int, int]) -> StoredTensor | None:
        """As `ScaledWeight.zero_point_tensor`."""
        if self.symmetric:
            return None
        return StoredTensor("weight_zero_point", "I32", (words(shape[0], self.bits), self.grouping.columns(shape)))

    def zero_point_rows(self, row_begin: int, row_end: int) -> tuple[int, int]:
        """As `ScaledWeight.zero_point_rows`."""
        return words(row_begin, self.bits), words(row_end, self.bits)

    def stored_zero_points(self, zero_points: Array) -> Array:
        """As `ScaledWeight.stored_zero_points`."""
        count, columns = zero_points.shape
        unsigned = np.zeros((columns, padded(count, self.bits)), np.uint8)
        unsigned[:, :count] = zero_points.T + np.float32(self._offset)
        return np.ascontiguousarray(packed(unsigned, self.bits, count).T)

    def unpacked_zero_points(self, stored: Array, rows: int) -> Array:
        """As `ScaledWeight.unpacked_zero_points`."""
        unsigned = unpacked(np.ascontiguousarray(stored.T), self.bits, rows)[:, :rows]
        return np.ascontiguousarray(unsigned.T.astype(np.float32) - np.float32(self._offset))

    def once(self, shape: tuple[int, int]) -> dict[str, tuple[StoredTensor, Array]]:
        """As `ScaledWeight.once`."""
        return {"weight_shape": (StoredTensor("weight_shape", "I64", (2,)), np.array([shape], "<i8"))}
