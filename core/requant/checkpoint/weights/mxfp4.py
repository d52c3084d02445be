"""MXFP4 as gpt-oss and DeepSeek-V4 store it: E2M1 codes two to a byte, and a power of two for each 32 of a row.

    value = code * 2^(E - 127), rounded once (RNE) to the dtype          E: the byte of the scale

The first code of a byte is in its lower half, as compressed-tensors has it too, whose loader rounds to BF16 on the way
(`requant.checkpoint.weights.block_scaled`).

| | codes | scales | E = 255 |
| --- | --- | --- | --- |
| DeepSeek-V4 | `weight` I8 [out, in / 2] | `scale` F8_E8M0 or U8 [out, in / 32] | NaN; as U8 infinity, times 0 NaN |
| gpt-oss | `X_blocks` U8 [experts, out, in / 32, 16] | `X_scales` U8 [experts, out, in / 32] | 2^128, times 0 is 0 |

gpt-oss has all experts in one tensor, which transformers makes [experts, in, out], the transpose of what is stored.
OpenAI's own files name them `X.blocks` and `X.scales`, and its code leaves the axes as they are. The rows of gate and
up alternate: even ones are gate's.

Source: transformers 5.23.0, `Fp8Dequantize._dequantize_one` (`integrations/finegrained_fp8.py`),
`convert_moe_packed_tensors` (`integrations/mxfp4.py`); gpt-oss, `gpt_oss/torch/weights.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from requant.checkpoint.weights.blocks import Block, ScaledCodes
from requant.checkpoint.weights.floats import E2M1, E8M0_VALUES, Array
from requant.checkpoint.weights.packing import unpacked_bytes, unpacking_kernels
from requant.checkpoint.weights.weight_format import (
    Codes,
    ReadOnlyFormat,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
    check_groups,
    matrix_shape,
)
from requant.convert.blocks import mx
from requant.errors import CheckpointError
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.jit.jit import Kernel

_BLOCK = Block(1, mx.BLOCK)
# Twice the codes by half the scales: all of these are finite and not 0, and each product is exact until it is rounded.
_TWICE_CODES: Array = E2M1.values * np.float32(2)
_HALVES: Array = E8M0_VALUES[:-1] / np.float32(2)
_HALF_SCALES: Mapping[tuple[str, bool], Array] = {
    ("F8_E8M0", False): np.append(_HALVES, np.float32(np.nan)),
    ("U8", False): np.append(_HALVES, np.float32(np.inf)),
    ("U8", True): np.append(_HALVES, np.float32(2.0**127)),
}
"""By the dtype of the scales, and whether 255 is finite."""
_KERNELS = (scaled_values, *unpacking_kernels(4))


class Layout(NamedTuple):
    """The suffixes of codes and scales, the dtype of the codes, and the dtypes that scales may have.

    `finite`: whether the byte 255 is a scale of 2^128.
    """

    codes: str
    codes_dtype: str
    scales: str
    scale_dtypes: tuple[str, ...]
    finite: bool


DEEPSEEK = Layout("weight", "I8", "scale", ("F8_E8M0", "U8"), finite=False)
GPT_OSS = Layout("blocks", "U8", "scales", ("U8",), finite=True)


@dataclass(frozen=True, slots=True)
class Mxfp4(ReadOnlyFormat):
    """Codes [step * out, in / 2] and scales [step * out, in / 32], of which every `step`th row from `first` on is the
    weight's."""

    layout: Layout
    scale_dtype: str
    first: int = 0
    step: int = 1

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_groups(shape, _BLOCK.width)
        rows = shape[0] * self.step
        return (
            StoredTensor(self.layout.codes, self.layout.codes_dtype, (rows, shape[1] // 2)),
            StoredTensor(self.layout.scales, self.scale_dtype, (rows, shape[1] // _BLOCK.width)),
        )

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        """Scales are of the dtype that they have."""
        codes, scale = tensors.get(self.layout.codes), tensors.get(self.layout.scales)
        rows, half = matrix_shape(() if codes is None else codes.shape)
        if scale is not None and scale.dtype not in self.layout.scale_dtypes:
            raise CheckpointError(
                f"{scale.suffix} of E2M1 codes is {scale.dtype}; expected one of {', '.join(self.layout.scale_dtypes)}"
            )
        return (self if scale is None else replace(self, scale_dtype=scale.dtype)), (rows, 2 * half)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        begin, end = row_begin * self.step, row_end * self.step
        return (
            Region(self.layout.codes, begin, end, 0, shape[1] // 2),
            Region(self.layout.scales, begin, end, 0, shape[1] // _BLOCK.width),
        )

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        codes, half_scales = self._unpacked(stored), self._half_scales(stored)
        return ScaledCodes(codes, _TWICE_CODES, codes.shape[1], _BLOCK, half_scales, None, "F32")

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return _KERNELS

    def codes(self, stored: StoredRows) -> Codes:
        scales = _twice(self._half_scales(stored))
        return Codes(E2M1.places[self._unpacked(stored)], -E2M1.highest, E2M1.highest, scales, uniform=False)

    def _unpacked(self, stored: StoredRows) -> Array:
        return unpacked_bytes(stored.parts[self.layout.codes][self.first :: self.step].view(np.uint8), 4)

    def _half_scales(self, stored: StoredRows) -> Array:
        table = _HALF_SCALES[self.scale_dtype, self.layout.finite]
        half: Array = table[stored.parts[self.layout.scales][self.first :: self.step]]
        return half


@dataclass(frozen=True, slots=True)
class Mxfp4Experts(ReadOnlyFormat):
    """`blocks` and `scales` of gpt-oss: those of matrices [out, columns] of several experts.

    As a matrix, it is the experts below each other: [experts * columns, out] if `transposed`, else
    [experts * out, columns].
    """

    transposed: bool
    experts: int = 0
    out: int = 0
    columns: int = 0

    @property
    def marks(self) -> tuple[frozenset[str], ...]:
        """Other formats have scales too."""
        return (frozenset({GPT_OSS.codes}),)

    @property
    def rows_together(self) -> int:
        """Whole blocks."""
        return _BLOCK.width if self.transposed else 1

    @property
    def rows_within(self) -> int:
        """Those of an expert."""
        return self.columns if self.transposed else 0

    def tensor_name(self, module: str) -> str:
        return module

    def tensor_shape(self, shape: tuple[int, int]) -> tuple[int, ...]:
        return (self.experts, shape[0] // self.experts, shape[1])

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        rows, groups = self.experts * self.out, self.columns // _BLOCK.width
        by_group = (self.experts, self.out, groups)
        return (
            StoredTensor(GPT_OSS.codes, "U8", (*by_group, _BLOCK.width // 2), (rows, self.columns // 2)),
            StoredTensor(GPT_OSS.scales, "U8", by_group, (rows, groups)),
        )

    def resolve_from_stored(
        self, tensors: Mapping[str, StoredTensor], stated: tuple[int, int] | None
    ) -> tuple[WeightFormat, tuple[int, int]]:
        shape = tensors[GPT_OSS.codes].shape if GPT_OSS.codes in tensors else ()
        if len(shape) != 4 or min(shape) < 1 or shape[3] != _BLOCK.width // 2:
            raise CheckpointError(f"blocks have shape {list(shape)}; expected [experts, out, in / 32, 16]")
        experts, out, columns = shape[0], shape[1], shape[2] * _BLOCK.width
        matrix = (experts * columns, out) if self.transposed else (experts * out, columns)
        return Mxfp4Experts(self.transposed, experts, out, columns), matrix

    def of_expert(self, first: int, step: int) -> tuple[WeightFormat, tuple[int, int]]:
        """Return the format and the shape [out / step, columns] of every `step`th row of one expert."""
        return Mxfp4(GPT_OSS, "U8", first, step), (self.out // step, self.columns)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        if not self.transposed:
            return Mxfp4(GPT_OSS, "U8").regions(dtype, shape, row_begin, row_end)
        expert, begin = divmod(row_begin, self.columns)
        end = begin + row_end - row_begin
        rows = expert * self.out, (expert + 1) * self.out
        return (
            Region(GPT_OSS.codes, *rows, begin // 2, end // 2),
            Region(GPT_OSS.scales, *rows, begin // _BLOCK.width, end // _BLOCK.width),
        )

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        found = Mxfp4(GPT_OSS, "U8").scaled_codes(stored)
        if not self.transposed:
            return found
        codes, scales = np.ascontiguousarray(found.codes.T), np.ascontiguousarray(found.scales.T)
        return replace(found, codes=codes, columns=codes.shape[1], block=Block(_BLOCK.width, 1), scales=scales)

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        # A kernel is faster with the columns of a block than with its rows.
        found = Mxfp4(GPT_OSS, "U8").scaled_codes(stored).values(dtype)
        return np.ascontiguousarray(found.T) if self.transposed else found

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return _KERNELS

    def codes(self, stored: StoredRows) -> Codes:
        found = Mxfp4(GPT_OSS, "U8").codes(stored)
        if not self.transposed:
            return found
        scales = np.repeat(found.scales, _BLOCK.width, axis=1)
        return replace(found, codes=np.ascontiguousarray(found.codes.T), scales=np.ascontiguousarray(scales.T))


def _twice(half_scales: Array) -> Array:
    with np.errstate(over="ignore"):
        return half_scales * np.float32(2)
