"""MXFP4 and MXFP8: groups of 32 with a power of two for a scale, stored as its exponent (E8M0).

Source: compressed-tensors 0.20.0, `quantization/utils/mxfp_utils.py`, `compressors/{mxfp4,mxfp8}`. a is the largest
magnitude of a group, m the mantissa bits of the weight's dtype W (7, 10, 23), R rounds to W:

    p = a with 1 << (m - 2) added to its bits and then the mantissa cleared: from 1.75 on, the next power of two
    E = clamp(127 + log2(p) - (2 for MXFP4, 8 for MXFP8), 0, 255), 0 where a is NaN
    s = R(2^(E - 127)), 1 where that is 0
    byte = 127 + log2(s), which the library's conversion makes 127 where s is infinite
    code = E2M1(clamp(R(w / s), -6, 6)) or f8E4M3FN(clamp(R(w / s), -448, 448)); the CUDA profile of E2M1 has no R
    value = BF16(code * 2^(byte - 127))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights.blocks import Block, largest_patterns, scaled
from requant.checkpoint.weights.compressed_tensors.float4 import (
    E2M1_HIGHEST,
    E2M1_PLACES,
    E2M1_VALUES,
    packed_e2m1_codes,
)
from requant.checkpoint.weights.compressed_tensors.float8 import E4M3_HIGHEST, E4M3_PLACES, E4M3_VALUES, e4m3_codes
from requant.checkpoint.weights.compressed_tensors.grouping import groups_of
from requant.checkpoint.weights.floats import check_weight, rounded, values
from requant.checkpoint.weights.packing import unpacked_half_bytes
from requant.checkpoint.weights.weight_format import Array, Codes, Extremes, Region, StoredTensor, WeightFormat

_GROUP = 32
_BIAS = 127
_MANTISSA_BITS = {"BF16": 7, "F16": 10, "F32": 23}
_LARGEST_FIELD = {"BF16": 255, "F16": 31, "F32": 255}
_NAN = 256


@dataclass(frozen=True)
class MxWeight(WeightFormat):
    """mxfp4-pack-quantized: `weight_packed` U8, mxfp8-quantized: `weight` F8_E4M3; `weight_scale` U8 [out, in / 32]."""

    bits: int
    rounds: bool

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """As `WeightFormat.stored`."""
        check_weight(dtype, shape)
        groups_of(_GROUP).check(shape)
        return self._codes(shape), StoredTensor("weight_scale", "U8", (shape[0], shape[1] // _GROUP))

    def magnitude_limit(self, dtype: str) -> float:
        """Return 1.75 times the largest power of two of `dtype`: from there on, s is infinite and all codes are 0."""
        mantissa = _MANTISSA_BITS[dtype]
        pattern = (_LARGEST_FIELD[dtype] << mantissa) - (1 << (mantissa - 2))
        bits = np.array([pattern], np.uint32 if dtype == "F32" else np.uint16)
        return float(values(bits.view(DTYPES[dtype].array), dtype)[0])

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """As `WeightFormat.regions`."""
        codes = self._codes(shape)
        return (
            Region(codes.suffix, row_begin, row_end, 0, codes.shape[1]),
            Region("weight_scale", row_begin, row_end, 0, shape[1] // _GROUP),
        )

    def quantize(
        self, rows: Array, dtype: str, shape: tuple[int, int], row_begin: int, extremes: Extremes | None = None
    ) -> list[tuple[Region, Array]]:
        """As `WeightFormat.quantize`."""
        block = Block(1, _GROUP)
        scales, stored = _scales(largest_patterns(rows, dtype, block), dtype, self.bits)
        make = packed_e2m1_codes if self.bits == 4 else e4m3_codes
        codes = make(rows, dtype, block, scales, rounds=self.rounds)
        found = self.regions(dtype, shape, row_begin, row_begin + rows.shape[0])
        return list(zip(found, (codes, stored), strict=True))

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
        table = E2M1_VALUES if self.bits == 4 else E4M3_VALUES
        codes, scales = self._unpacked(stored), _stored_scales(stored)
        return scaled(codes, table, shape[1], Block(1, _GROUP), scales, None, precision="BF16", dtype=dtype)

    def codes(
        self,
        stored: Mapping[str, Array],
        dtypes: Mapping[str, str],
        shape: tuple[int, int],
        row_begin: int,
        row_end: int,
    ) -> Codes:
        """As `WeightFormat.codes`."""
        places, highest = (E2M1_PLACES, E2M1_HIGHEST) if self.bits == 4 else (E4M3_PLACES, E4M3_HIGHEST)
        return Codes(places[self._unpacked(stored)], -highest, highest, _stored_scales(stored), uniform=False)

    def _unpacked(self, stored: Mapping[str, Array]) -> Array:
        if self.bits == 4:
            return unpacked_half_bytes(stored["weight_packed"])
        return np.ascontiguousarray(stored["weight"])

    def _codes(self, shape: tuple[int, int]) -> StoredTensor:
        if self.bits == 4:
            return StoredTensor("weight_packed", "U8", (shape[0], shape[1] // 2))
        return StoredTensor("weight", "F8_E4M3", shape)


def _stored_scales(stored: Mapping[str, Array]) -> Array:
    exponents = np.ascontiguousarray(stored["weight_scale"]).astype(np.int32) - _BIAS
    with np.errstate(over="ignore"):
        return np.ldexp(np.float32(1), exponents)


class _Table(NamedTuple):
    """By the exponent field of p, and for a NaN by _NAN: the scale as f32, and the byte that is stored for it."""

    scales: Array
    stored: Array


@cache
def _table(dtype: str, bits: int) -> _Table:
    fields, infinite = np.arange(_NAN + 1), _LARGEST_FIELD[dtype]
    exponents = fields - infinite // 2 + _BIAS - (2 if bits == 4 else 8)
    exponents = np.where(fields == 0, 0, np.where(fields >= infinite, 255, np.clip(exponents, 0, 255)))
    exponents[_NAN] = 0
    with np.errstate(over="ignore"):
        scales = rounded(np.ldexp(np.float32(1), (exponents - _BIAS).astype(np.int32)), dtype)
    lost = (scales == 0) | np.isinf(scales)
    return _Table(np.where(scales == 0, np.float32(1), scales), np.where(lost, _BIAS, exponents).astype(np.uint8))


def _scales(largest: Array, dtype: str, bits: int) -> tuple[Array, Array]:
    """Return the scales as f32, and the bytes that are stored for them. `largest`: the bits of a."""
    mantissa = _MANTISSA_BITS[dtype]
    patterns: Array = largest.view(np.uint32 if dtype == "F32" else np.uint16)
    infinity = _LARGEST_FIELD[dtype] << mantissa
    fields = np.where(patterns > infinity, _NAN, (patterns.astype(np.int64) + (1 << (mantissa - 2))) >> mantissa)
    table = _table(dtype, bits)
    return table.scales[fields], table.stored[fields]
