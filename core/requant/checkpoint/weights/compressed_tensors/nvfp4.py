"""NVFP4: groups of 16 with an f8E4M3FN scale, which one f32 for the whole weight scales to the range of that.

Source: compressed-tensors 0.20.0, `generate_gparam` and `calculate_qparams` (`quantization/utils/helpers.py`),
`compressors/nvfp4`. A is the largest magnitude of the fused set, a that of a group, R rounds to the weight's dtype W:

    G = f32(R(R(1 / max(A, smallest normal of W)) * 2688)), 1 where that is not finite
    s = f8E4M3FN(clamp(f32(G * R(a / 6)), -448, 448)), 0.125 where that is 0
    code = E2M1(clamp(f32(w / f32(s / G)), -6, 6))
    value = BF16(f32(code * f32(s / G)))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.checkpoint.weights.blocks import Block, largest_magnitudes, scaled, whole_extremes
from requant.checkpoint.weights.compressed_tensors.float4 import (
    E2M1_HIGHEST,
    E2M1_LARGEST,
    E2M1_PLACES,
    E2M1_VALUES,
    packed_e2m1_codes,
)
from requant.checkpoint.weights.compressed_tensors.float8 import E4M3_LARGEST, E4M3_VALUES, e4m3_codes
from requant.checkpoint.weights.compressed_tensors.grouping import groups_of
from requant.checkpoint.weights.floats import check_weight, rounded
from requant.checkpoint.weights.packing import unpacked_half_bytes
from requant.checkpoint.weights.weight_format import (
    Array,
    Codes,
    Extremes,
    Region,
    StoredTensor,
    WeightFormat,
    with_regions,
)

_GROUP = 16
_SMALLEST_NORMAL = {"BF16": np.float32(2.0**-126), "F16": np.float32(2.0**-14), "F32": np.float32(2.0**-126)}
# 0.125 in the place of 0.
_SMALLEST_SCALE = 0x20


@dataclass(frozen=True)
class Nvfp4Weight(WeightFormat):
    """nvfp4-pack-quantized: `weight_packed` U8, `weight_scale` F8_E4M3, `weight_global_scale` F32 [1]."""

    needs_extremes = True

    def measure(self, rows: Array, dtype: str) -> Extremes:
        """As `WeightFormat.measure`."""
        return whole_extremes(rows, dtype)

    def overflows(self, extremes: Extremes, dtype: str) -> bool:
        """As `WeightFormat.overflows`. In F16, G overflows for A below 0.041; without it most groups become zeros."""
        largest = _largest(extremes)
        return bool(0 < largest < np.inf and not np.isfinite(_ideal_global_scale(largest, dtype)))

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """As `WeightFormat.stored`."""
        check_weight(dtype, shape)
        groups_of(_GROUP).check(shape)
        return (
            StoredTensor("weight_packed", "U8", (shape[0], shape[1] // 2)),
            StoredTensor("weight_scale", "F8_E4M3", (shape[0], shape[1] // _GROUP)),
            StoredTensor("weight_global_scale", "F32", (1,)),
        )

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """As `WeightFormat.regions`."""
        found = (
            Region("weight_packed", row_begin, row_end, 0, shape[1] // 2),
            Region("weight_scale", row_begin, row_end, 0, shape[1] // _GROUP),
        )
        return found if row_begin > 0 else (*found, Region("weight_global_scale", 0, 1, 0, 1))

    def quantize(
        self, rows: Array, dtype: str, shape: tuple[int, int], row_begin: int, extremes: Extremes | None = None
    ) -> list[tuple[Region, Array]]:
        """As `WeightFormat.quantize`."""
        if extremes is None:
            raise ValueError("NVFP4 needs the extremes of the weights that share a global scale")
        block = Block(1, _GROUP)
        whole = global_scale(extremes, dtype)
        with np.errstate(all="ignore"):
            ideal = whole * rounded(largest_magnitudes(rows, dtype, block) / np.float32(E2M1_LARGEST), dtype)
            stored = e4m3_codes(ideal, "F32", Block(*ideal.shape), np.ones(1, np.float32), rounds=False)
            stored[stored == 0] = _SMALLEST_SCALE
            codes = packed_e2m1_codes(rows, dtype, block, E4M3_VALUES[stored] / whole, rounds=False)
        parts = {
            "weight_packed": codes,
            "weight_scale": stored,
            "weight_global_scale": np.array([[whole]], "<f4"),
        }
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
        codes, scales = unpacked_half_bytes(stored["weight_packed"]), _stored_scales(stored)
        return scaled(codes, E2M1_VALUES, shape[1], Block(1, _GROUP), scales, None, precision="BF16", dtype=dtype)

    def codes(
        self,
        stored: Mapping[str, Array],
        dtypes: Mapping[str, str],
        shape: tuple[int, int],
        row_begin: int,
        row_end: int,
    ) -> Codes:
        """As `WeightFormat.codes`."""
        places = E2M1_PLACES[unpacked_half_bytes(stored["weight_packed"])]
        return Codes(places, -E2M1_HIGHEST, E2M1_HIGHEST, _stored_scales(stored), uniform=False)


def _stored_scales(stored: Mapping[str, Array]) -> Array:
    with np.errstate(all="ignore"):
        scales: Array = E4M3_VALUES[stored["weight_scale"]] / stored["weight_global_scale"].reshape(-1)[0]
    return scales


def global_scale(extremes: Extremes, dtype: str) -> np.float32:
    """Return G."""
    found = _ideal_global_scale(_largest(extremes), dtype)
    return found if np.isfinite(found) else np.float32(1)


def _ideal_global_scale(largest: np.float32, dtype: str) -> np.float32:
    with np.errstate(all="ignore"):
        at_least = np.maximum(largest, _SMALLEST_NORMAL[dtype])
        reciprocal = rounded(np.array([np.float32(1) / at_least], np.float32), dtype)
        return np.float32(rounded(reciprocal * np.float32(E4M3_LARGEST * E2M1_LARGEST), dtype)[0])


def _largest(extremes: Extremes) -> np.float32:
    return np.float32(max(abs(extremes.minimum), abs(extremes.maximum)))
