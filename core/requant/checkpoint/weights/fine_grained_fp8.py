"""Fine-grained fp8, as DeepSeek and transformers store it: f8E4M3FN, and a scale for each block of 128 by 128.

    s     = f32(f32(1 / amax) * 448), 1 where amax is 0             amax of the block
    code  = e4m3(clamp(f32(w * s), -448, 448))                      RNE
    inv   = f32(1 / s)
    value = f32(code * inv), then rounded (RNE) to the dtype

With UE8M0 scales inv = 2^ceil(f32(log2(f32(1 / s)))) and s = 1 / inv. The logarithm is the nearest f32, as torch's is:
just above a power of two it is that power, and the block's largest magnitude saturates. NaN gives the code 0x7F.
Of a block whose amax is not 0 and below 448 / 2^128 (1.3e-36), s is infinite, unless it is UE8M0: inv is 0, zeros
become NaN and all else saturates.

Source: transformers 5.23.0, `integrations/finegrained_fp8.py`, `Fp8Quantize._quantize_one` and
`Fp8Dequantize._dequantize_one`; the latter is what a CPU loads. Its FP8Linear has a scale for each block that begins,
and so have vLLM's (`Fp8LinearMethod`) and the checkpoints of DeepSeek-V3; Fp8Quantize leaves a weight as it is whose
rows or columns are not a multiple of the block.

DeepSeek-V4 names the inverse scales `scale`, and stores the experts as MXFP4 where config.json says so
(`expert_dtype`): their `weight` is I8. UE8M0 scales in U8 have no NaN: 255 is infinite there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from requant.checkpoint.weights.blocks import Block, Extremes, ScaledCodes, e4m3_codes, scales_by_row
from requant.checkpoint.weights.floats import E4M3, E8M0_VALUES, Array, check_weight, float_kernels
from requant.checkpoint.weights.mxfp4 import DEEPSEEK, Mxfp4
from requant.checkpoint.weights.repack import SourceNumbers, powers_of_two
from requant.checkpoint.weights.weight_format import (
    Codes,
    PlainRows,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    matrix_shape,
)
from requant.errors import CheckpointError
from requant.kernels.checkpoint import fine_grained_fp8 as kernels
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel
from requant.kernels.simd.widen import FloatKind

WEIGHT, SCALE = "weight", "weight_scale_inv"
SHORT_SCALE = "scale"
"""The name that DeepSeek-V4 has for `SCALE`."""
# Of a scale: F32, F8_E8M0, or U8 with the bits of an E8M0.
_SCALES = ("F32", "F8_E8M0", "U8")
_EXPONENT_BIAS = 127
_VALUES_OF_U8: Array = np.append(E8M0_VALUES[:-1], np.float32(np.inf))


def _reach(exponent: int) -> int:
    """Return the last k with f32(log2(2^exponent * (1 + k / 2^23))) = exponent: half a step of the f32 above it."""
    if exponent == 0:
        return 0
    distance = abs(exponent)
    step = distance.bit_length() - 1
    # Towards zero the steps below a power of two are half as long.
    if exponent < 0 and distance == 1 << step:
        step -= 1
    return math.floor(math.log(2) * 2.0 ** (step - 1))


_REACH = np.array([_reach(biased - _EXPONENT_BIAS) for biased in range(256)], np.int32)


@dataclass(frozen=True, slots=True)
class FineGrainedFp8(WeightFormat):
    """`weight` F8_E4M3 [out, in], `weight_scale_inv` F32 or F8_E8M0 [ceil(out / height), ceil(in / width)].

    `ragged`: whether a weight is stored so whose rows or columns are not a multiple of the block. Otherwise `stored`
    leaves it as it is. `scale`: the name of the scales. `with_fp4`: whether weights of dtype I8 are MXFP4.
    """

    scale_dtype: str = "F32"
    height: int = 128
    width: int = 128
    ragged: bool = False
    scale: str = SCALE
    with_fp4: bool = False

    def __post_init__(self) -> None:
        if self.scale_dtype not in _SCALES:
            raise CheckpointError(
                f"a scale of fine-grained fp8 cannot be of dtype {self.scale_dtype}; expected one of {list(_SCALES)}"
            )

    @property
    def marks(self) -> tuple[frozenset[str], ...]:
        """`scale` is the name of much else."""
        return (frozenset({WEIGHT, SHORT_SCALE}),)

    @property
    def rows_together(self) -> int:
        """Whole blocks."""
        return self.height

    def _grid(self, shape: tuple[int, int]) -> tuple[int, int]:
        return -(-shape[0] // self.height), -(-shape[1] // self.width)

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the codes and the inverse scales; nothing where a block would be cut off, unless `ragged`."""
        check_weight(dtype, shape)
        if not self.ragged and (shape[0] % self.height or shape[1] % self.width):
            return ()
        return StoredTensor(WEIGHT, "F8_E4M3", shape), StoredTensor(self.scale, self.scale_dtype, self._grid(shape))

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """Scales are of the dtype that they have, whatever config.json says."""
        if SCALE in tensors and SHORT_SCALE in tensors:
            raise CheckpointError(f"has both {SCALE} and {SHORT_SCALE}; expected one of them")
        name = SHORT_SCALE if SHORT_SCALE in tensors else SCALE
        weight = tensors.get(WEIGHT)
        if weight is not None and weight.dtype == "I8":
            if not self.with_fp4:
                raise CheckpointError(
                    'weight is I8, but config.json does not say "expert_dtype": "fp4" with this quant_method: only '
                    "then are its bytes two E2M1 codes each"
                )
            return Mxfp4(DEEPSEEK._replace(scales=name), "F8_E8M0").resolve_from_stored(tensors, stated)
        shape = matrix_shape(() if weight is None else weight.shape)
        dtype = tensors[name].dtype if name in tensors else self.scale_dtype
        return replace(self, scale_dtype=dtype, scale=name, with_fp4=False), shape

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """Return the rows of codes and the rows of blocks."""
        return (
            Region(WEIGHT, row_begin, row_end, 0, shape[1]),
            Region(self.scale, row_begin // self.height, -(-row_end // self.height), 0, self._grid(shape)[1]),
        )

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        count, columns = rows.bits.shape
        inverses = np.empty((-(-count // self.height), self._grid(rows.shape)[1]), np.float32)
        codes = np.empty((count, columns), np.uint8)
        powers = self.scale_dtype != "F32"
        kernels.quantize(
            rows.kernel_bytes, FloatKind[rows.dtype], codes.reshape(-1), inverses.reshape(-1),
            count, columns, self.height, self.width, powers, _REACH,
        )  # fmt: skip
        if powers:
            return {WEIGHT: codes, self.scale: (inverses.view(np.uint32) >> np.uint32(23)).astype(np.uint8)}
        return {WEIGHT: codes, self.scale: inverses}

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        block = self._block(shape)
        scales = source.scales_of_floats(block, E4M3.largest)
        stored: Array = scales.astype(np.float32)
        if self.scale_dtype != "F32":
            stored = powers_of_two(scales)
            scales = E8M0_VALUES[stored]
        units = source.in_units(scales, block)
        codes = e4m3_codes(units, "F32", block, np.ones(scales.shape, np.float32), rounds=False)
        return {WEIGHT: codes, self.scale: stored}

    def overflowed_scales(self, suffix: str, scales: Array) -> Array:
        """The inverse of a scale that overflows is 0."""
        overflowed: Array = WeightFormat.overflowed_scales(self, suffix, scales) | (scales == 0)
        return overflowed

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        codes = np.ascontiguousarray(stored.parts[WEIGHT])
        block, scales = self._block(stored.shape), self._scales(stored)
        return ScaledCodes(codes, E4M3.values, stored.shape[1], block, scales, None, "F32")

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        return (kernels.quantize,)

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (scaled_values, *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        scales = scales_by_row(self._scales(stored), self._block(stored.shape), stored.count, stored.shape[1])
        return Codes(E4M3.places[stored.parts[WEIGHT]], -E4M3.highest, E4M3.highest, scales, uniform=False)

    def _block(self, shape: tuple[int, int]) -> Block:
        return Block(self.height, min(self.width, shape[1]))

    def _scales(self, stored: StoredRows) -> Array:
        if stored.dtypes[self.scale] == "F32":
            return stored.floats(self.scale)
        table = _VALUES_OF_U8 if stored.dtypes[self.scale] == "U8" else E8M0_VALUES
        scales: Array = table[stored.parts[self.scale]]
        return scales
