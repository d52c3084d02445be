"""MXFP4, MXFP8 and NVFP4 as compressed-tensors stores them: small floats, and a small float for a scale of each group.

Source: compressed-tensors 0.20.0. a is the largest magnitude of a group, R rounds to the weight's dtype W. E2M1 codes
lie two to a byte, the first in the lower half.

MX (`quantization/utils/mxfp_utils.py`, `compressors/{mxfp4,mxfp8}`), groups of 32 with a power of two, stored as its
exponent (E8M0); m is the mantissa bits of W (7, 10, 23):

    p = a with 1 << (m - 2) added to its bits and then the mantissa cleared: from 1.75 on, the next power of two
    E = clamp(127 + log2(p) - (2 for MXFP4, 8 for MXFP8), 0, 255), 0 where a is NaN
    s = R(2^(E - 127)), 1 where that is 0
    byte = 127 + log2(s), which the library's conversion makes 127 where s is infinite
    code = E2M1(clamp(R(w / s), -6, 6)) or f8E4M3FN(clamp(R(w / s), -448, 448)); the CUDA profile of E2M1 has no R
    value = BF16(code * 2^(byte - 127))

NVFP4 (`generate_gparam` and `calculate_qparams` of `quantization/utils/helpers.py`, `compressors/nvfp4`), groups of 16
with an f8E4M3FN scale, which one f32 for the whole weight scales to the range of that; A is the largest magnitude of
the fused set:

    G = f32(R(R(1 / max(A, smallest normal of W)) * 2688)), 1 where that is not finite
    s = f8E4M3FN(clamp(f32(G * R(a / 6)), -448, 448)), 0.125 where that is 0
    code = E2M1(clamp(f32(w / f32(s / G)), -6, 6))
    value = BF16(f32(code * f32(s / G)))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights.blocks import (
    Block,
    e4m3_codes,
    largest_magnitudes,
    largest_patterns,
    packed_e2m1_codes,
    scaled,
)
from requant.checkpoint.weights.floats import E2M1, E4M3, E8M0_VALUES, CodeTable, check_weight, rounded, values
from requant.checkpoint.weights.packing import unpacked_half_bytes
from requant.checkpoint.weights.weight_format import (
    Array,
    Codes,
    Extremes,
    PlainRows,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    check_groups,
)
from requant.convert.blocks import mx, nvfp4

_MX, _NVFP4 = Block(1, mx.BLOCK), Block(1, nvfp4.BLOCK)
_BIAS = 127
_MANTISSA_BITS = {"BF16": 7, "F16": 10, "F32": 23}
_LARGEST_FIELD = {"BF16": 255, "F16": 31, "F32": 255}
_NAN = 256
POWERS: Array = np.append(E8M0_VALUES[:-1], np.float32(np.inf))
"""2^(byte - 127). The library takes 255 for 2^128."""
_SMALLEST_NORMAL = {"BF16": np.float32(2.0**-126), "F16": np.float32(2.0**-14), "F32": np.float32(2.0**-126)}
# 0.125 in the place of 0.
_SMALLEST_SCALE = 0x20


@dataclass(frozen=True)
class MxWeight(WeightFormat):
    """mxfp4-pack-quantized: `weight_packed` U8, mxfp8-quantized: `weight` F8_E4M3; `weight_scale` U8 [out, in / 32]."""

    bits: int
    rounds: bool

    @property
    def _element(self) -> CodeTable:
        return E2M1 if self.bits == 4 else E4M3

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        check_groups(shape, _MX.width)
        return self._code_tensor(shape), StoredTensor("weight_scale", "U8", (shape[0], shape[1] // _MX.width))

    def _code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        if self.bits == 4:
            return StoredTensor("weight_packed", "U8", (shape[0], shape[1] // 2))
        return StoredTensor("weight", "F8_E4M3", shape)

    def magnitude_limit(self, dtype: str) -> float:
        """Return 1.75 times the largest power of two of `dtype`: from there on, s is infinite and all codes are 0."""
        mantissa = _MANTISSA_BITS[dtype]
        pattern = (_LARGEST_FIELD[dtype] << mantissa) - (1 << (mantissa - 2))
        bits = np.array([pattern], np.uint32 if dtype == "F32" else np.uint16)
        return float(values(bits.view(DTYPES[dtype].array), dtype)[0])

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        codes = self._code_tensor(shape)
        return (
            Region(codes.suffix, row_begin, row_end, 0, codes.shape[1]),
            Region("weight_scale", row_begin, row_end, 0, shape[1] // _MX.width),
        )

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        scales, stored_scales = _mx_scales(largest_patterns(rows.bits, rows.dtype, _MX), rows.dtype, self.bits)
        make = packed_e2m1_codes if self.bits == 4 else e4m3_codes
        codes = make(rows.bits, rows.dtype, _MX, scales, rounds=self.rounds)
        return {self._code_tensor(rows.shape).suffix: codes, "weight_scale": stored_scales}

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        codes, scales = self._unpacked(stored), POWERS[stored.parts["weight_scale"]]
        return scaled(codes, self._element.values, stored.shape[1], _MX, scales, None, precision="BF16", dtype=dtype)

    def codes(self, stored: StoredRows) -> Codes:
        places, highest = self._element.places[self._unpacked(stored)], self._element.highest
        return Codes(places, -highest, highest, POWERS[stored.parts["weight_scale"]], uniform=False)

    def _unpacked(self, stored: StoredRows) -> Array:
        if self.bits == 4:
            return unpacked_half_bytes(stored.parts["weight_packed"])
        return np.ascontiguousarray(stored.parts["weight"])


class _Scales(NamedTuple):
    """By the exponent field of p, and for a NaN by _NAN: the scale as f32, and the byte that is stored for it."""

    scales: Array
    stored: Array


@cache
def _scales_by_field(dtype: str, bits: int) -> _Scales:
    fields, infinite = np.arange(_NAN + 1), _LARGEST_FIELD[dtype]
    exponents = fields - infinite // 2 + _BIAS - (2 if bits == 4 else 8)
    exponents = np.where(fields == 0, 0, np.where(fields >= infinite, 255, np.clip(exponents, 0, 255)))
    exponents[_NAN] = 0
    scales = rounded(POWERS[exponents], dtype)
    lost = (scales == 0) | np.isinf(scales)
    return _Scales(np.where(scales == 0, np.float32(1), scales), np.where(lost, _BIAS, exponents).astype(np.uint8))


def _mx_scales(largest: Array, dtype: str, bits: int) -> tuple[Array, Array]:
    """Return the scales as f32, and the bytes that are stored for them. `largest`: the bits of a."""
    mantissa = _MANTISSA_BITS[dtype]
    patterns: Array = largest.view(np.uint32 if dtype == "F32" else np.uint16)
    infinity = _LARGEST_FIELD[dtype] << mantissa
    fields = np.where(patterns > infinity, _NAN, (patterns.astype(np.int64) + (1 << (mantissa - 2))) >> mantissa)
    by_field = _scales_by_field(dtype, bits)
    return by_field.scales[fields], by_field.stored[fields]


@dataclass(frozen=True)
class Nvfp4Weight(WeightFormat):
    """nvfp4-pack-quantized: `weight_packed` U8, `weight_scale` F8_E4M3, `weight_global_scale` F32 [1]."""

    needs_extremes = True

    def overflows(self, extremes: Extremes, dtype: str) -> bool:
        """Return whether G overflows: in F16 for A below 0.041. Without it most groups become zeros."""
        largest = np.float32(extremes.magnitude)
        return bool(0 < largest < np.inf and not np.isfinite(_ideal_global_scale(largest, dtype)))

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        check_groups(shape, _NVFP4.width)
        return (
            StoredTensor("weight_packed", "U8", (shape[0], shape[1] // 2)),
            StoredTensor("weight_scale", "F8_E4M3", (shape[0], shape[1] // _NVFP4.width)),
            StoredTensor("weight_global_scale", "F32", (1,)),
        )

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        regions = (
            Region("weight_packed", row_begin, row_end, 0, shape[1] // 2),
            Region("weight_scale", row_begin, row_end, 0, shape[1] // _NVFP4.width),
        )
        return regions if row_begin > 0 else (*regions, Region("weight_global_scale", 0, 1, 0, 1))

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        if extremes is None:
            raise ValueError("NVFP4 needs the extremes of the weights that share a global scale")
        whole = _global_scale(extremes, rows.dtype)
        with np.errstate(all="ignore"):
            ratios = rounded(largest_magnitudes(rows.bits, rows.dtype, _NVFP4) / np.float32(E2M1.largest), rows.dtype)
            ideal = whole * ratios
            scales = e4m3_codes(ideal, "F32", Block(*ideal.shape), np.ones(1, np.float32), rounds=False)
            scales[scales == 0] = _SMALLEST_SCALE
            codes = packed_e2m1_codes(rows.bits, rows.dtype, _NVFP4, E4M3.values[scales] / whole, rounds=False)
        return {
            "weight_packed": codes,
            "weight_scale": scales,
            "weight_global_scale": np.array([[whole]], "<f4"),
        }

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        codes, scales = unpacked_half_bytes(stored.parts["weight_packed"]), _nvfp4_scales(stored)
        return scaled(codes, E2M1.values, stored.shape[1], _NVFP4, scales, None, precision="BF16", dtype=dtype)

    def codes(self, stored: StoredRows) -> Codes:
        places = E2M1.places[unpacked_half_bytes(stored.parts["weight_packed"])]
        return Codes(places, -E2M1.highest, E2M1.highest, _nvfp4_scales(stored), uniform=False)


def _nvfp4_scales(stored: StoredRows) -> Array:
    """Return f32(s / G)."""
    with np.errstate(all="ignore"):
        scales: Array = E4M3.values[stored.parts["weight_scale"]] / stored.parts["weight_global_scale"].reshape(-1)[0]
    return scales


def _global_scale(extremes: Extremes, dtype: str) -> np.float32:
    """Return G."""
    ideal = _ideal_global_scale(np.float32(extremes.magnitude), dtype)
    return ideal if np.isfinite(ideal) else np.float32(1)


def _ideal_global_scale(largest: np.float32, dtype: str) -> np.float32:
    with np.errstate(all="ignore"):
        at_least = np.maximum(largest, _SMALLEST_NORMAL[dtype])
        reciprocal = rounded(np.array([np.float32(1) / at_least], np.float32), dtype)
        return np.float32(rounded(reciprocal * np.float32(E4M3.largest * E2M1.largest), dtype)[0])
