"""The layout of AWQ's GEMM kernels, with codes rounded to nearest, without AWQ's search for scales.

W is f16, to which weights of other dtypes are rounded first, as AutoAWQ casts the model (`.half()`); R rounds to f16.

    s     = R(max(R(largest - smallest), f16(1e-5)) / 15)
    z     = clamp(-rint(R(smallest / s)), 0, 15)
    code  = clamp(R(rint(R(w / s)) + z), 0, 15)
    value = R((code - z) * s), then rounded (RNE) to the dtype

A word has the codes of eight successive rows of the weight in one column, row (0, 2, 4, 6, 1, 3, 5, 7)[i] in bits
[4i, 4i + 4).

Source: autoawq 0.2.9, `AwqQuantizer.pseudo_quantize_tensor` (`quantize/quantizer.py`), `WQLinear_GEMM.from_linear`
(`modules/linear/gemm.py`); value: `dequantize_gemm` (`utils/packing_utils.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from requant.checkpoint.weights.blocks import Block, Extremes, ScaledCodes, extremes_kernel, extremes_of_groups
from requant.checkpoint.weights.floats import UNSIGNED, Array, bits_of, check_weight, float_kernels, rounded
from requant.checkpoint.weights.packing import transposed_words
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
from requant.kernels.checkpoint.shifted_codes import SHIFTED_CODES_IN_F16
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.checkpoint.words import pack_eight_rows, transpose_words, unpack_eight_rows
from requant.kernels.jit.jit import Kernel
from requant.kernels.simd.widen import FloatKind

_LANES = 8
_LARGEST = np.float32(15)
_SMALLEST_RANGE = np.float32(np.float16(1e-5))


@dataclass(frozen=True)
class Awq(WeightFormat):
    """`qweight` I32 [in, out / 8], `qzeros` I32 [in / g, out / 8], `scales` F16 [in / g, out].

    `group`: None for whole rows. `scale_dtype`: F16; GPTQModel also has BF16, to which R then rounds.
    """

    group: int | None = 128
    scale_dtype: str = "F16"
    rows_together = _LANES

    def _group(self, shape: tuple[int, int]) -> int:
        return self.group or shape[1]

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        """Return the stored tensors; none where the rows are not a multiple of 8, for which there is no layer.

        Raises CheckpointError where the columns are not a multiple of the group size.
        """
        check_weight(dtype, shape)
        out, columns = shape
        if out % _LANES:
            return ()
        group = self._group(shape)
        check_groups(shape, group)
        return (
            StoredTensor("qweight", "I32", (columns, out // _LANES)),
            StoredTensor("qzeros", "I32", (columns // group, out // _LANES)),
            StoredTensor("scales", self.scale_dtype, (columns // group, out)),
        )

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        words = tensors["qweight"].shape if "qweight" in tensors else ()
        of_scales = dtype_of_scales(tensors, self.scale_dtype)
        shape = matrix_shape((words[1] * _LANES, words[0]) if len(words) == 2 else ())
        return replace(self, scale_dtype=of_scales), shape

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        """Return columns: a row of the weight is in a column of each stored tensor."""
        groups = shape[1] // self._group(shape)
        words = row_begin // _LANES, row_end // _LANES
        return (
            Region("qweight", 0, shape[1], *words),
            Region("qzeros", 0, groups, *words),
            Region("scales", 0, groups, row_begin, row_end),
        )

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        """A NaN has the code 0. Raises CheckpointError for a number beyond the range of f16."""
        group = self._group(rows.shape)
        lows, highs = extremes_of_groups(rows.bits, rows.dtype, group)
        # Rounding keeps the order, so these are the extremes of the rounded weights.
        low, high = rounded(lows, "F16"), rounded(highs, "F16")
        beyond = (np.isinf(low) & np.isfinite(lows)) | (np.isinf(high) & np.isfinite(highs))
        if beyond.any():
            row = rows.begin + int(np.argwhere(beyond)[0, 0])
            raise CheckpointError(
                f"row {row} has a magnitude above 65504, the largest f16, in which AWQ computes. Add the module to "
                "ignore, or choose another scheme"
            )
        with np.errstate(all="ignore"):
            spans = np.maximum(rounded(high - low, "F16"), _SMALLEST_RANGE)
            scales = rounded(spans / _LARGEST, "F16")
            zeros = _clamped(-np.rint(rounded(low / scales, "F16")))
        return self._coded(rows, scales, zeros, scales)

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        block = Block(1, self._group(shape))
        ideal, zeros = source.scales_of_integers(block, 0.0, float(_LARGEST), zero_points=True)
        scales = rounded(ideal.astype(np.float32), self.scale_dtype)
        assert zeros is not None
        return self._coded(
            PlainRows(source.in_units(scales, block), "F32", shape, begin),
            np.ones(scales.shape, np.float32),
            zeros.astype(np.float32),
            scales,
        )

    def _coded(self, rows: PlainRows, divisors: Array, zeros: Array, scales: Array) -> Mapping[str, Array]:
        """Return the stored tensors with the codes of rows over `divisors`."""
        group = self._group(rows.shape)
        codes = np.empty(rows.bits.shape, np.uint8)
        SHIFTED_CODES_IN_F16(
            rows.kernel_bytes, FloatKind[rows.dtype], group, divisors.reshape(-1), zeros.reshape(-1), int(_LARGEST),
            codes.reshape(-1),
        )  # fmt: skip
        return {
            "qweight": _packed(codes),
            "qzeros": _packed(zeros.astype(np.uint8)),
            "scales": np.ascontiguousarray(bits_of(scales, self.scale_dtype).T),
        }

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        codes, zeros, scales = self._parts(stored)
        block = Block(1, self._group(stored.shape))
        return ScaledCodes(codes, UNSIGNED, stored.shape[1], block, scales, zeros, stored.dtypes["scales"])

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        of_codes = (SHIFTED_CODES_IN_F16, pack_eight_rows, transpose_words)
        return (extremes_kernel(dtype), *of_codes, *float_kernels((dtype, "F16")))

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return (transpose_words, unpack_eight_rows, scaled_values, *float_kernels(dtypes))

    def codes(self, stored: StoredRows) -> Codes:
        codes, _, scales = self._parts(stored)
        return Codes(codes.astype(np.int16), 0, int(_LARGEST), scales, uniform=True)

    def _parts(self, stored: StoredRows) -> tuple[Array, Array, Array]:
        """Return the codes, bytes [rows, in], and the zero points and scales, f32 [rows, groups]."""
        codes, zeros = (_unpacked(stored.parts[suffix]) for suffix in ("qweight", "qzeros"))
        return codes, zeros.astype(np.float32), np.ascontiguousarray(stored.floats("scales").T)


def _clamped(numbers: Array) -> Array:
    return np.where(np.isnan(numbers), np.float32(0), np.clip(numbers, np.float32(0), _LARGEST))


def _packed(codes: Array) -> Array:
    """Return [columns, rows / 8] words of codes [rows, columns]."""
    rows, columns = codes.shape
    words = np.empty((rows // _LANES, columns), np.int32)
    pack_eight_rows(codes.reshape(-1), columns, words.reshape(-1).view(np.uint32))
    return transposed_words(words)


def _unpacked(stored: Array) -> Array:
    """Return the codes, bytes [rows, columns], of [columns, rows / 8] words."""
    words = transposed_words(stored)
    codes = np.empty((words.shape[0] * _LANES, words.shape[1]), np.uint8)
    unpack_eight_rows(words.reshape(-1).view(np.uint32), words.shape[1], codes.reshape(-1))
    return codes
