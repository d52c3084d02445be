"""The layout of GPTQ, with codes rounded to nearest: words of 32 bits along the rows, and an f16 scale for each group.

    mn = min(0, smallest), mx = max(0, largest) of a group; s = f16(...), all else in f32
    symmetric:   s = -max(-mn, mx) / 2^(b-1), + where mx < -mn; |s| >= f16(1e-5)
                 code = clamp(rint(w / s), -2^(b-1), 2^(b-1) - 1) + 2^(b-1), z = 2^(b-1)
    asymmetric:  s = (mx - mn) / (2^b - 1), at least f16(1e-5); z = min(rint(-mn / s), 2^b - 1)
                 code = clamp(rint(w / s) + z, 0, 2^b - 1)
    value        = R(R(code - z) * s), then rounded (RNE) to the dtype      R rounds to the dtype of the scales

The words of a column of `qweight` have the codes of one row of the weight, the first in the lowest bits, and those of a
row of `qzeros` the zero points of successive rows; three words have 32 of 3 bits, of which two lie across words.
Version 1 stores z - 1, modulo 2^b, to which loaders add 1 again.

Source: auto-round 0.15.1, `quantize_weight_rtn` (`utils/missing_tensors.py`), `quant_tensor_rtn_sym` and
`quant_tensor_asym` (`data_type/int.py`); value: `auto_round_extension/torch/qlinear_torch_zp.py`, whose results on a
CPU these are, and qlinear_cuda of AutoGPTQ, which takes z + 1 modulo 2^b, as GPTQModel 7 does for 3 bits
(`_correct_gptq_v1_qzeros`, `utils/model_dequant.py`). Where a z is 0, auto-round's -1 borrows from
the zero points beside it, whose rows its loaders then read wrongly; here it does not. Nor does it bound z, and where
an f16 scale is subnormal, z may be 256, which 8 bits do not hold. Compiled by torch.compile, its bits are others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from requant.checkpoint.weights.blocks import Block, Extremes, ScaledCodes, extremes_kernel, extremes_of_groups
from requant.checkpoint.weights.floats import UNSIGNED, Array, bits_of, check_weight, float_kernels, rounded
from requant.checkpoint.weights.packing import (
    packed,
    packing_kernels,
    padded,
    transposed_words,
    unpacked,
    unpacking_kernels,
    whole,
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
    dtype_of_scales,
    matrix_shape,
)
from requant.errors import CheckpointError
from requant.kernels.checkpoint.shifted_codes import SHIFTED_CODES
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.checkpoint.words import transpose_words
from requant.kernels.jit.jit import Kernel
from requant.kernels.simd.widen import FloatKind

_WORD = 32
_SMALLEST_SCALE = np.float32(np.float16(1e-5))
_WIDTHS = (2, 3, 4, 8)


@dataclass(frozen=True)
class Gptq(WeightFormat):
    """`qweight` I32 [in * b / 32, out], `qzeros` I32 [in / g, out * b / 32], `scales` F16 [in / g, out].

    `group`: None for whole rows. `version`: 1 stores z - 1, 2 stores z. `scale_dtype`: F16; GPTQModel also has BF16.
    `has_g_idx`: also `g_idx` I32 [in], the group of each column, as checkpoints have it whose columns were quantized in
    the order of activations, and others. `ragged`: whether a weight is stored so whose sides are not multiples of 32.
    """

    bits: int
    symmetric: bool
    group: int | None = 128
    version: int = 1
    scale_dtype: str = "F16"
    has_g_idx: bool = False
    ragged: bool = False

    def __post_init__(self) -> None:
        if self.bits not in _WIDTHS:
            raise CheckpointError(
                f"the GPTQ layout does not support {self.bits} bits here; expected one of {list(_WIDTHS)}"
            )

    @property
    def rows_together(self) -> int:
        """As many rows as have their zero points in whole words."""
        return whole(self.bits)

    def _group(self, shape: tuple[int, int]) -> int:
        return self.group or shape[1]

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the stored tensors; none where a side is not a multiple of 32, unless `ragged`: loaders have no layer.

        Raises CheckpointError where the rows are not a multiple of the group size.
        """
        check_weight(dtype, shape)
        out, columns = shape
        if not self.ragged and (out % _WORD or columns % _WORD):
            return ()
        group = self._group(shape)
        if columns * self.bits % _WORD:
            raise CheckpointError(f"rows of {columns} codes of {self.bits} bits do not end with a word of {_WORD} bits")
        check_groups(shape, group)
        g_idx = (StoredTensor("g_idx", "I32", (columns,)),) if self.has_g_idx else ()
        return (
            StoredTensor("qweight", "I32", (columns * self.bits // _WORD, out)),
            StoredTensor("qzeros", "I32", (columns // group, -(-out * self.bits // _WORD))),
            StoredTensor("scales", self.scale_dtype, (columns // group, out)),
            *g_idx,
        )

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        words = tensors["qweight"].shape if "qweight" in tensors else ()
        shape = matrix_shape((words[1], words[0] * _WORD // self.bits) if len(words) == 2 else ())
        of_scales = dtype_of_scales(tensors, self.scale_dtype)
        has_g_idx = self.has_g_idx or "g_idx" in tensors
        return replace(self, scale_dtype=of_scales, has_g_idx=has_g_idx, ragged=True), shape

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """Return columns: a row of the weight is a column of each stored tensor."""
        groups = shape[1] // self._group(shape)
        words = row_begin * self.bits // _WORD, -(-row_end * self.bits // _WORD)
        g_idx = (Region("g_idx", 0, 1, 0, shape[1]),) if self.has_g_idx and row_begin == 0 else ()
        return (
            Region("qweight", 0, shape[1] * self.bits // _WORD, row_begin, row_end),
            Region("qzeros", 0, groups, *words),
            Region("scales", 0, groups, row_begin, row_end),
            *g_idx,
        )

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        """A NaN has the code 0."""
        group = self._group(rows.shape)
        scales, zeros = self._parameters(*extremes_of_groups(rows.bits, rows.dtype, group))
        return self._coded(rows, scales, zeros, scales)

    def _coded(self, rows: PlainRows, divisors: Array, zeros: Array, scales: Array) -> Mapping[str, Array]:
        """Return the stored tensors with the codes of rows over `divisors`."""
        columns, group = rows.shape[1], self._group(rows.shape)
        codes: Array = np.empty(rows.bits.shape, np.uint8)
        SHIFTED_CODES(
            rows.kernel_bytes, FloatKind[rows.dtype], group, divisors.reshape(-1), zeros.reshape(-1), 2**self.bits - 1,
            codes.reshape(-1),
        )  # fmt: skip
        stored_zeros = (zeros.astype(np.int16) - (2 - self.version)).astype(np.uint8) & np.uint8(2**self.bits - 1)
        return {
            "qweight": transposed_words(packed(codes, self.bits, columns)),
            "qzeros": self._packed_zeros(stored_zeros),
            "scales": np.ascontiguousarray(bits_of(scales, self.scale_dtype).T),
            "g_idx": (np.arange(columns, dtype=np.int32) // np.int32(group))[None],
        }

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        block, highest = Block(1, self._group(shape)), 2.0**self.bits - 1
        ideal, zeros = source.scales_of_integers(block, 0.0, highest, zero_points=not self.symmetric)
        scales = rounded(ideal.astype(np.float32), self.scale_dtype)
        if zeros is None:
            zeros = np.full(scales.shape, 2 ** (self.bits - 1))
        return self._coded(
            PlainRows(source.in_units(scales, block), "F32", shape, begin),
            np.ones(scales.shape, np.float32),
            zeros.astype(np.float32),
            scales,
        )

    def _packed_zeros(self, zeros: Array) -> Array:
        """Return the words of [rows, groups] zero points, those of rows that there are not being 0."""
        count = zeros.shape[0]
        codes = np.zeros((zeros.shape[1], padded(count, self.bits)), np.uint8)
        codes[:, :count] = zeros.T
        return packed(codes, self.bits, count)

    def _parameters(self, lows: Array, highs: Array) -> tuple[Array, Array]:
        """Return the scales, f16 as f32, and the zero points."""
        zero = np.float32(0)
        low, high = np.minimum(lows, zero), np.maximum(highs, zero)
        with np.errstate(all="ignore"):
            if self.symmetric:
                half = np.float32(2 ** (self.bits - 1))
                # The magnitude of the smallest has the sign with which it becomes the lowest code.
                signs = np.where(high < -low, np.float32(1), np.float32(-1))
                scales = rounded(signs * np.maximum(high, -low) / half, "F16")
                bounded = np.where(
                    scales < 0, np.minimum(scales, -_SMALLEST_SCALE), np.maximum(scales, _SMALLEST_SCALE)
                )
                return bounded, np.full(scales.shape, half, np.float32)
            scales = rounded((high - low) / np.float32(2**self.bits - 1), "F16")
            scales = np.maximum(scales, _SMALLEST_SCALE)
            # An f16 scale below the normal ones may be so much smaller than the exact one that z would be 2^b.
            zeros = np.minimum(np.rint(-low / scales), np.float32(2**self.bits - 1))
        return scales, np.where(np.isnan(zeros), zero, zeros)

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        """`g_idx`, where it is stored, has the group of each column. Raises CheckpointError for an unknown one."""
        codes, zeros, scales, width = self._parts(stored)
        precision = stored.dtypes["scales"]
        return ScaledCodes(codes, UNSIGNED, stored.shape[1], Block(1, width), scales, zeros, precision)

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        of_codes = (SHIFTED_CODES, transpose_words, *packing_kernels(self.bits))
        return (extremes_kernel(dtype), *of_codes, *float_kernels((dtype, self.scale_dtype, "F16")))

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (transpose_words, *unpacking_kernels(self.bits), scaled_values, *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        codes, _, scales, _ = self._parts(stored)
        return Codes(codes[:, : stored.shape[1]].astype(np.int16), 0, 2**self.bits - 1, np.abs(scales), uniform=True)

    def _parts(self, stored: StoredRows) -> tuple[Array, Array, Array, int]:
        """Return the codes, bytes [rows, in]; zero points and scales, f32 [rows, k]; the columns of each, in / k."""
        columns = stored.shape[1]
        codes = unpacked(transposed_words(stored.parts["qweight"]), self.bits, columns)
        zeros = unpacked(stored.parts["qzeros"], self.bits, stored.count)[:, : stored.count]
        zeros = (zeros + np.uint8(2 - self.version)) & np.uint8(2**self.bits - 1)
        scales, width = stored.floats("scales"), self._group(stored.shape)
        if self.has_g_idx:
            groups = self._groups(stored.parts["g_idx"], scales.shape[0])
            if not np.array_equal(groups, np.arange(columns) // width):
                zeros, scales, width = zeros[groups], scales[groups], 1
        return codes, np.ascontiguousarray(zeros.T.astype(np.float32)), np.ascontiguousarray(scales.T), width

    def _groups(self, g_idx: Array, count: int) -> Array:
        groups = g_idx.reshape(-1)
        if groups.size and not 0 <= int(groups.min()) <= int(groups.max()) < count:
            raise CheckpointError(
                f"g_idx has groups {groups.min()} to {groups.max()}, and the weight has {count} groups of scales"
            )
        return groups
