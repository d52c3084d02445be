"""MXFP4, MXFP6, MXFP8 and NVFP4 as compressed-tensors stores them: small floats, and one for a scale of each group.

Source: compressed-tensors 0.20.0. a is the largest magnitude of a group, R rounds to the weight's dtype W. E2M1 codes
lie two to a byte, E2M3 codes four to three bytes, the first in the lowest bits.

MX (`quantization/utils/mxfp_utils.py`, `compressors/{mxfp4,mxfp6,mxfp8}`), groups of 32 with a power of two, stored as
its exponent (E8M0); m is the mantissa bits of W (7, 10, 23), and k is 2, for MXFP6 4:

    p = a with 1 << (m - k) added to its bits and then the mantissa cleared: from 2 - 2^-k on, the next power of two
    E = clamp(127 + log2(p) - (2 for MXFP4 and MXFP6, 8 for MXFP8), 0, 255), 0 where a is NaN
    s = R(2^(E - 127)), 1 where that is 0
    byte = 127 + log2(s), which the library's conversion makes 127 where s is infinite
    code = E2M1(clamp(R(w / s), -6, 6)), E2M3(clamp(R(w / s), -7.5, 7.5)) or f8E4M3FN(clamp(R(w / s), -448, 448));
           the CUDA profile has no R in the first two
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

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights.blocks import (
    Block,
    Extremes,
    ScaledCodes,
    e2m3_codes,
    e4m3_codes,
    e4m3_scales,
    largest_magnitudes,
    largest_patterns,
    magnitude_kernel,
    packed_e2m1_codes,
)
from requant.checkpoint.weights.floats import (
    E2M1,
    E2M3,
    E4M3,
    E8M0_VALUES,
    EPSILON,
    Array,
    CodeTable,
    bits_of,
    check_weight,
    float_kernels,
    rounded,
    values,
)
from requant.checkpoint.weights.packing import packed_bytes, packing_kernels, unpacked_bytes, unpacking_kernels
from requant.checkpoint.weights.repack import SourceNumbers, powers_of_two
from requant.checkpoint.weights.search import ELEMENT_E2M1, ELEMENT_E2M3, ELEMENT_E4M3, Element, Search
from requant.checkpoint.weights.weight_format import (
    Codes,
    PlainRows,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    check_groups,
    matrix_shape,
)
from requant.kernels.checkpoint.codes import E2M3_CODES, E4M3_CODES, PACKED_E2M1_CODES
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel

_MX, _NVFP4 = Block(1, 32), Block(1, 16)
_BIAS = 127
_MANTISSA_BITS = {"BF16": 7, "F16": 10, "F32": 23}
_LARGEST_FIELD = {"BF16": 255, "F16": 31, "F32": 255}
_NAN = 256
POWERS: Array = np.append(E8M0_VALUES[:-1], np.float32(np.inf))
"""2^(byte - 127). The library takes 255 for 2^128."""
_SMALLEST_NORMAL = {"BF16": np.float32(2.0**-126), "F16": np.float32(2.0**-14), "F32": np.float32(2.0**-126)}
# 0.125 in the place of 0.
_SMALLEST_SCALE = 0x20
_ROUNDED = 2.0**-22
_SMALLEST_NORMAL_SCALE = 2.0**-6
# From the least scale for a code of 0.5, which is an eighth of its own, to that.
_DOUBLINGS = 3


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of MX: its codes, the exponent of its largest, and the k of the module's formula."""

    table: CodeTable
    searched: Element
    exponent: int
    rounds_up: int = 2


_ELEMENTS = {
    4: _Element(E2M1, ELEMENT_E2M1, 2),
    6: _Element(E2M3, ELEMENT_E2M3, 2, 4),
    8: _Element(E4M3, ELEMENT_E4M3, 8),
}
"""By their bits."""


@dataclass(frozen=True)
class MxWeight(WeightFormat):
    """mxfp4-pack-quantized and mxfp6-pack-quantized: `weight_packed` U8, mxfp8-quantized: `weight` F8_E4M3;
    `weight_scale` U8 [out, in / 32]."""

    bits: int
    rounds: bool
    search: Search | None = field(default=None, kw_only=True)

    @property
    def _element(self) -> CodeTable:
        return _ELEMENTS[self.bits].table

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        check_groups(shape, _MX.width)
        return self._code_tensor(shape), StoredTensor("weight_scale", "U8", (shape[0], shape[1] // _MX.width))

    def _code_tensor(self, shape: tuple[int, int]) -> StoredTensor:
        if self.bits < 8:
            return StoredTensor("weight_packed", "U8", (shape[0], shape[1] * self.bits // 8))
        return StoredTensor("weight", "F8_E4M3", shape)

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        packed = tensors.get("weight_packed")
        if stated is not None or packed is None or len(packed.shape) != 2:
            return super().resolve_from_stored(tensors, stated)
        return self, matrix_shape((packed.shape[0], packed.shape[1] * 8 // self.bits))

    def magnitude_limit(self, dtype: str) -> float:
        """Return 2 - 2^-k times the largest power of two of `dtype`: from there on, s is infinite, all codes are 0."""
        mantissa = _MANTISSA_BITS[dtype]
        pattern = (_LARGEST_FIELD[dtype] << mantissa) - _added(dtype, self.bits)
        bits = np.array([pattern], np.uint32 if dtype == "F32" else np.uint16)
        return float(values(bits.view(DTYPES[dtype].array), dtype)[0])

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        codes = self._code_tensor(shape)
        return (
            Region(codes.suffix, row_begin, row_end, 0, codes.shape[1]),
            Region("weight_scale", row_begin, row_end, 0, shape[1] // _MX.width),
        )

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        scales, stored_scales = _mx_scales(self._ranges(rows), rows.dtype, self.bits)
        make = {4: packed_e2m1_codes, 6: e2m3_codes, 8: e4m3_codes}[self.bits]
        codes = make(rows.bits, rows.dtype, _MX, scales, rounds=self.rounds)
        if self.bits == 6:
            codes = packed_bytes(codes, self.bits)
        return {self._code_tensor(rows.shape).suffix: codes, "weight_scale": stored_scales}

    def _ranges(self, rows: PlainRows) -> Array:
        """Return the bits of a for each group, or of what the search finds in its place."""
        largest = largest_patterns(rows.bits, rows.dtype, _MX)
        if self.search is None:
            return largest

        def scales(ranges: tuple[Array, ...]) -> tuple[Array, None]:
            return _mx_scales(bits_of(ranges[0], rows.dtype), rows.dtype, self.bits)[0], None

        extremes = (values(largest, rows.dtype),)
        element = _ELEMENTS[self.bits].searched
        return bits_of(self.search.best(rows.bits, rows.dtype, _MX, element, extremes, scales)[0], rows.dtype)

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        powers = powers_of_two(source.scales_of_floats(_MX, self._element.largest))
        return {
            self._code_tensor(shape).suffix: codes_in_units(source, E8M0_VALUES[powers], _MX, self.bits),
            "weight_scale": powers,
        }

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        codes, scales = self._unpacked(stored), POWERS[stored.parts["weight_scale"]]
        return ScaledCodes(codes, self._element.values, stored.shape[1], _MX, scales, None, "BF16")

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        coding = {4: (PACKED_E2M1_CODES,), 6: (E2M3_CODES, *packing_kernels(6)), 8: (E4M3_CODES,)}
        searching = () if self.search is None else (_ELEMENTS[self.bits].searched.kernel,)
        return (magnitude_kernel(dtype), *searching, *coding[self.bits], *float_kernels((dtype,)))

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *unpacking_kernels(self.bits), *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        places, highest = self._element.places[self._unpacked(stored)], self._element.highest
        return Codes(places, -highest, highest, POWERS[stored.parts["weight_scale"]], uniform=False)

    def _unpacked(self, stored: StoredRows) -> Array:
        if self.bits < 8:
            return unpacked_bytes(stored.parts["weight_packed"], self.bits)
        return np.ascontiguousarray(stored.parts["weight"])


def _added(dtype: str, bits: int) -> int:
    """Return 1 << (m - k)."""
    return 1 << (_MANTISSA_BITS[dtype] - _ELEMENTS[bits].rounds_up)


class _Scales(NamedTuple):
    """By the exponent field of p, and for a NaN by _NAN: the scale as f32, and the byte that is stored for it."""

    scales: Array
    stored: Array


@cache
def _scales_by_field(dtype: str, bits: int) -> _Scales:
    fields, infinite = np.arange(_NAN + 1), _LARGEST_FIELD[dtype]
    exponents = fields - infinite // 2 + _BIAS - _ELEMENTS[bits].exponent
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
    fields = np.where(patterns > infinity, _NAN, (patterns.astype(np.int64) + _added(dtype, bits)) >> mantissa)
    by_field = _scales_by_field(dtype, bits)
    return by_field.scales[fields], by_field.stored[fields]


@dataclass(frozen=True)
class Nvfp4Weight(WeightFormat):
    """nvfp4-pack-quantized: `weight_packed` U8, `weight_scale` F8_E4M3, `weight_global_scale` F32 [1]."""

    search: Search | None = None
    needs_extremes = True

    def extremes(self, rows: Array, dtype: str) -> Extremes:
        """Return those of the searched ranges, of which G is made."""
        if self.search is None:
            return super().extremes(rows, dtype)
        highest = float(self._largest(rows, dtype).max())
        return Extremes(-highest, highest)

    def _largest(self, rows: Array, dtype: str) -> Array:
        """Return a for each group, or what the search finds in its place."""
        largest = largest_magnitudes(rows, dtype, _NVFP4)
        if self.search is None:
            return largest

        def scales(ranges: tuple[Array, ...]) -> tuple[Array, None]:
            of_ranges = rounded(ranges[0] / np.float32(E2M1.largest), dtype)
            return np.where(of_ranges == 0, EPSILON[dtype], of_ranges), None

        return self.search.best(rows, dtype, _NVFP4, ELEMENT_E2M1, (largest,), scales)[0]

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
        whole = _global_scale(shared(extremes), rows.dtype)
        with np.errstate(all="ignore"):
            ratios = rounded(self._largest(rows.bits, rows.dtype) / np.float32(E2M1.largest), rows.dtype)
            ideal = whole * ratios
            scales = e4m3_scales(ideal)
            scales[scales == 0] = _SMALLEST_SCALE
            codes = packed_e2m1_codes(rows.bits, rows.dtype, _NVFP4, E4M3.values[scales] / whole, rounds=False)
        return {
            "weight_packed": codes,
            "weight_scale": scales,
            "weight_global_scale": np.array([[whole]], "<f4"),
        }

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        """The global scale stays what it is, or becomes the power of two that makes the largest scale 256, if there is
        such in f32, else 2^127.
        """
        with np.errstate(all="ignore"):
            whole = np.float32(1 / outer_scale(source, extremes))
            scales = nvfp4_scales_that_hold(source, _NVFP4, 1 / np.float64(whole))
            scales[scales == 0] = _SMALLEST_SCALE
            codes = codes_in_units(source, E4M3.values[scales] / whole, _NVFP4, 4)
        return {
            "weight_packed": codes,
            "weight_scale": scales,
            "weight_global_scale": np.array([[whole]], "<f4"),
        }

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        codes, scales = unpacked_bytes(stored.parts["weight_packed"], 4), _nvfp4_scales(stored)
        with np.errstate(all="ignore"):
            outer = float(1 / np.float64(stored.parts["weight_global_scale"].reshape(-1)[0]))
        return ScaledCodes(codes, E2M1.values, stored.shape[1], _NVFP4, scales, None, "BF16", outer)

    def extremes_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        if self.search is None:
            return super().extremes_kernels(dtype)
        return (magnitude_kernel(dtype), ELEMENT_E2M1.kernel)

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        searching = () if self.search is None else (ELEMENT_E2M1.kernel,)
        return (magnitude_kernel(dtype), *searching, E4M3_CODES, PACKED_E2M1_CODES, *float_kernels((dtype,)))

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *unpacking_kernels(4), *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        places = E2M1.places[unpacked_bytes(stored.parts["weight_packed"], 4)]
        return Codes(places, -E2M1.highest, E2M1.highest, _nvfp4_scales(stored), uniform=False)


def shared(extremes: Extremes | None) -> Extremes:
    """Return the extremes of the weights that share a scale of the whole weight. Raises ValueError for none."""
    if extremes is None:
        raise ValueError("NVFP4 needs the extremes of the weights that share a global scale")
    return extremes


def outer_scale(source: SourceNumbers, extremes: Extremes | None) -> np.float64:
    """Return the scale of a whole weight, of which those of its groups are multiples in E4M3: the one that it has, or
    the power of two that makes the largest of them 256, at least 2^-127.

    Raises ValueError if it has none, and there are no extremes of the weights that share one.
    """
    if source.outer is not None:
        return np.float64(source.outer)
    peak = np.array([max(shared(extremes).magnitude / E2M1.largest, 2.0**-126)])
    return np.float64(2.0 ** max(int(powers_of_two(peak)[0]) - _BIAS - 8, -127))


def nvfp4_scales_that_hold(source: SourceNumbers, block: Block, outer: np.float64) -> Array:
    """Return the scales of groups, E4M3 bytes, with which codes of E2M1 hold numbers, if any do. NaN for infinite ones.

    The least scale may lie between two subnormal ones, and a multiple of it not.
    """
    ideal = source.scales_of_floats(block, E2M1.largest) / outer
    for _ in range(_DOUBLINGS):
        steps = ideal / E4M3.values[1]
        between = (ideal < _SMALLEST_NORMAL_SCALE) & (np.abs(steps - np.rint(steps)) > _ROUNDED * steps)
        ideal = np.where(between, 2 * ideal, ideal)
    # Scales that are the products or quotients of two floats were rounded.
    scales = np.searchsorted(E4M3.values[: E4M3.highest + 1], ideal * (1 - _ROUNDED)).clip(0, E4M3.highest)
    scales[~np.isfinite(ideal)] = E4M3.highest + 1
    return scales.astype(np.uint8)


def codes_in_units(source: SourceNumbers, scales: Array, block: Block, bits: int) -> Array:
    """Return the nearest codes of numbers at scales, as they are stored. -0 stays -0."""
    units, ones = source.in_units(scales, block), np.ones(scales.shape, np.float32)
    if bits == 8:
        return e4m3_codes(units, "F32", block, ones, rounds=False)
    minus = (units == 0) & np.signbit(units)
    if bits == 6:
        return packed_bytes(e2m3_codes(units, "F32", block, ones, rounds=False) | minus * np.uint8(0x20), bits)
    codes = packed_e2m1_codes(units, "F32", block, ones, rounds=False)
    return codes | (minus[:, ::2] << 3 | minus[:, 1::2] << 7).astype(np.uint8) if minus.any() else codes


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
