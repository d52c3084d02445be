"""Weights as GGUF files store them: blocks of one of its types, in the order of rows that llama.cpp computes with.

    value  = f32(scale * code), or f32(f32(scale * code) - minimum), each step in f32, as ggml dequantizes
    number = scale * code, exactly; with minimums the value, which is what ggml defines
    NVFP4  = f32(u * s) * code, where s is the f32 of the tensor `*.scale`, 1 without one, and u a block's f8E4M3FN

Rows of attn_q and attn_k lie in pairs of a head's halves, in models that llama.cpp turns so: of a head of D rows, row
s * D / 2 + j of the model is row 2 * j + s of the file. Whole rows move, and with them whole blocks.

Source: ggml 0.25 (`requant.checkpoint.gguf.tensor_types`); llama.cpp 0.5.0, `conversion/llama.py` (`permute`) and
`conversion/base.py` (NVFP4).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from requant.checkpoint.gguf.blocks import Unpacked, fields, packed_fields
from requant.checkpoint.gguf.small_blocks import E2M1_HALVES, UE4M3_VALUES
from requant.checkpoint.gguf.tensor_types import FLOATS, TENSOR_TYPES, TensorType, read_elements, unpack
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights.block_scaled import (
    MxWeight,
    codes_in_units,
    nvfp4_scales_that_hold,
    outer_scale,
)
from requant.checkpoint.weights.blocks import Block, Extremes, ScaledCodes
from requant.checkpoint.weights.floats import (
    E2M1,
    UNSIGNED,
    Array,
    bits_of,
    check_weight,
    float_kernels,
    rounded,
    values,
)
from requant.checkpoint.weights.packing import unpacked_bytes, unpacking_kernels
from requant.checkpoint.weights.repack import SourceNumbers
from requant.checkpoint.weights.weight_format import (
    Codes,
    PlainRows,
    Region,
    StoredRows,
    StoredTensor,
    WeightFormat,
)
from requant.convert.blocks.gguf import GGUF_FORMATS, packed_codes
from requant.errors import CheckpointError
from requant.kernels.checkpoint.codes import PACKED_E2M1_CODES
from requant.kernels.checkpoint.scaled_groups import scaled_groups
from requant.kernels.checkpoint.values import scaled_values
from requant.kernels.convert.blocks import scale_blocks
from requant.kernels.convert.floats.f16 import widen_f16
from requant.kernels.jit.jit import Kernel

_WEIGHT, _SCALE = "weight", "scale"
_FP4 = {"MXFP4": Block(1, 32), "NVFP4": Block(1, 16)}
_LOWEST = {"Q4_0": -8, "Q5_0": -16, "Q3_K": -4, "Q6_K": -32} | dict.fromkeys(
    ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"), 0
)
"""The lowest code of a type, where that is not -128."""


@dataclass(frozen=True, slots=True)
class _Integers:
    """The codes of a type that is written: of so many bits, with a minimum or without."""

    lowest: float
    highest: float
    has_minimum: bool


_INTEGERS = {
    "Q8_0": _Integers(-128, 127, has_minimum=False),
    "Q4_0": _Integers(-8, 7, has_minimum=False),
    "Q5_0": _Integers(-16, 15, has_minimum=False),
    "Q4_1": _Integers(0, 15, has_minimum=True),
    "Q5_1": _Integers(0, 31, has_minimum=True),
}

_NO_CODES = "floats have no codes and scales: quantize them instead"

REPACKED_TO = (*_INTEGERS, *_FP4)
"""The types to which codes and scales of other formats are moved."""


def model_order(rows: Array, head: int) -> Array:
    """Return rows of a file in the order of the model. `head`: the rows of a head, 1 where they are not turned."""
    return rows if head == 1 else _swapped(rows, head, head // 2, 2)


def file_order(rows: Array, head: int) -> Array:
    """Return rows of the model in the order of the file."""
    return rows if head == 1 else _swapped(rows, head, 2, head // 2)


def _swapped(rows: Array, head: int, first: int, second: int) -> Array:
    heads = rows.reshape(-1, first, second, *rows.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(rows.shape)


@dataclass(frozen=True)
class GgufWeight(WeightFormat):
    """Blocks of a type: `weight` U8 [out, bytes of a row], and `scale` F32 [1] where NVFP4 `is_scaled`.

    `head`: the rows of a head, where they are turned in each; 1 elsewhere.
    """

    type: TensorType
    head: int = 1
    is_scaled: bool = False

    @property
    def rows_together(self) -> int:
        """The rows of a head."""
        return self.head

    @property
    def needs_extremes(self) -> bool:
        """Whether numbers without a scale for the whole weight are given one."""
        return self.is_scaled

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        check_weight(dtype, shape)
        if shape[1] % self.type.block:
            raise CheckpointError(
                f"a weight of shape {list(shape)} is not whole blocks of {self.type.name}: its rows of {shape[1]} are "
                f"not a multiple of {self.type.block}. Choose another type"
            )
        weight = StoredTensor(_WEIGHT, "U8", (shape[0], self.type.size(shape[1])))
        return (weight, StoredTensor(_SCALE, "F32", (1,))) if self.is_scaled else (weight,)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        rows = Region(_WEIGHT, row_begin, row_end, 0, self.type.size(shape[1]))
        return (rows, Region(_SCALE, 0, 1, 0, 1)) if self.is_scaled and row_begin == 0 else (rows,)

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        raise CheckpointError(
            "plain weights are not quantized to GGUF from safetensors: convert them with llama.cpp's "
            "convert_hf_to_gguf.py, and quantize the file that it writes"
        )

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        blocks = self._blocks(stored)
        outer: float | None = None
        if self.type.name == "MXFP4":
            # In halves, as ggml has them: a scale of 2^128 is then an f32.
            table, codes, scales = E2M1_HALVES, fields(blocks[:, 1:], 4), unpack(blocks, self.type).scales
        elif self.type.name == "NVFP4":
            outer, table, codes = float(self._scale(stored)), E2M1.values, fields(blocks[:, 4:].reshape(-1, 4, 8), 4)
            with np.errstate(all="ignore"):
                scales = UE4M3_VALUES[blocks[:, :4]] * self._scale(stored)
        else:
            return self._scaled_integers(stored, unpack(blocks, self.type))
        columns, block = stored.shape[1], _FP4[self.type.name]
        codes = np.ascontiguousarray(codes).reshape(-1, columns)
        return ScaledCodes(codes, table, columns, block, scales.reshape(stored.count, -1), None, "F32", outer)

    def _scaled_integers(self, stored: StoredRows, unpacked: Unpacked) -> ScaledCodes:
        columns, groups = stored.shape[1], unpacked.scales.shape[1]
        codes, scales, zero_points = unpacked.codes, unpacked.scales, None
        if unpacked.minimums is not None:
            # As far as they are integers, which moves are. Without a scale all elements are one number.
            none = scales == 0
            with np.errstate(all="ignore"):
                zero_points = np.where(none, np.float32(1), unpacked.minimums / scales)
            scales = np.where(none, unpacked.minimums, scales)
            codes = np.where(np.repeat(none, self.type.block // groups, axis=1), np.int8(0), codes)
        lowest = _LOWEST.get(self.type.name, -128)
        return ScaledCodes(
            (np.ascontiguousarray(codes).reshape(-1, columns) - np.int8(lowest)).view(np.uint8),
            UNSIGNED + np.float32(lowest),
            columns,
            Block(1, self.type.block // groups),
            np.ascontiguousarray(scales).reshape(stored.count, -1),
            None if zero_points is None else np.ascontiguousarray(zero_points).reshape(stored.count, -1),
            "F32",
        )

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        if self.is_scaled:
            return super().dequantize(stored, dtype)
        return bits_of(self._values(stored), dtype)

    def numbers(self, stored: StoredRows) -> Array:
        if self.type.name in _FP4 or not self._has_minimums:
            return super().numbers(stored)
        return self._values(stored).astype(np.float64)

    def repacked(
        self, source: SourceNumbers, shape: tuple[int, int], begin: int, scale_dtype: str, extremes: Extremes | None
    ) -> Mapping[str, Array]:
        if self.type.name == "MXFP4":
            parts = MxWeight(4, rounds=False).repacked(source, shape, begin, scale_dtype, extremes)
            blocks = _fp4_blocks(parts["weight_packed"], parts["weight_scale"], 32)
        elif self.type.name == "NVFP4":
            scale = np.float32(outer_scale(source, extremes)) if self.is_scaled else np.float32(1)
            with np.errstate(all="ignore"):
                scales = nvfp4_scales_that_hold(source, _FP4["NVFP4"], np.float64(scale))
                packed = codes_in_units(source, UE4M3_VALUES[scales] * scale, _FP4["NVFP4"], 4)
            blocks = _fp4_blocks(packed, scales, 16)
        elif self.type.name in _INTEGERS:
            blocks = self._integer_blocks(source, shape)
        else:
            raise CheckpointError(
                f"nothing is moved to GGUF's {self.type.name}: choose one of {', '.join(REPACKED_TO)}"
            )
        rows = file_order(blocks.reshape(-1, self.type.size(shape[1])), self.head)
        return {_WEIGHT: rows, _SCALE: np.array([[scale]], "<f4")} if self.is_scaled else {_WEIGHT: rows}

    def _integer_blocks(self, source: SourceNumbers, shape: tuple[int, int]) -> Array:
        integers, block = _INTEGERS[self.type.name], Block(1, self.type.block)
        ideal, zero_points = source.scales_of_integers(
            block, integers.lowest, integers.highest, zero_points=integers.has_minimum
        )
        with np.errstate(all="ignore"):
            scales = rounded(ideal.astype(np.float32), "F16")
            units = source.in_units(scales, block).reshape(-1, self.type.block)
            heads = [scales.reshape(-1, 1)]
            if zero_points is not None:
                of_blocks = zero_points.reshape(-1, 1)
                units, heads = units + of_blocks, [*heads, np.float32(0) - of_blocks * heads[0]]
        codes = np.clip(np.rint(units), integers.lowest, integers.highest).astype(np.int8)
        stored_heads = bits_of(np.concatenate(heads, axis=1), "F16").view(np.uint8)
        format_ = GGUF_FORMATS[self.type.name]
        return np.concatenate([stored_heads, *packed_codes(codes.view(np.uint8) + np.uint8(format_.zero), format_)], 1)

    def codes(self, stored: StoredRows) -> Codes:
        unpacked = unpack(self._blocks(stored), self.type)
        codes = unpacked.codes.astype(np.int16).reshape(stored.count, -1)
        scales = np.abs(unpacked.scales.reshape(stored.count, -1))
        uniform = self.type.name in GGUF_FORMATS or self.type.name.endswith("_K")
        return Codes(codes, -128, 127, np.ascontiguousarray(scales), uniform=uniform)

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        if self.type.name in _FP4:
            return (PACKED_E2M1_CODES, *unpacking_kernels(4))
        return float_kernels(("F16",))

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        if self.is_scaled:
            return (scaled_values, *float_kernels(dtypes))
        decoding = scale_blocks if self.type.name in GGUF_FORMATS else scaled_groups
        of_scales = () if self.type.name in _FP4 else (widen_f16,)
        return (decoding, *of_scales, *float_kernels(dtypes))

    @property
    def _has_minimums(self) -> bool:
        return unpack(np.zeros((1, self.type.block_bytes), np.uint8), self.type).minimums is not None

    def _blocks(self, stored: StoredRows) -> Array:
        rows = model_order(np.ascontiguousarray(stored.parts[_WEIGHT]), self.head)
        return rows.reshape(-1, self.type.block_bytes)

    def _values(self, stored: StoredRows) -> Array:
        return read_elements(self._blocks(stored).reshape(-1), self.type).reshape(stored.count, -1)

    def _scale(self, stored: StoredRows) -> np.float32:
        return np.float32(stored.floats(_SCALE).reshape(-1)[0]) if self.is_scaled else np.float32(1)


def _fp4_blocks(packed: Array, scales: Array, group: int) -> Array:
    """Return blocks of E2M1: the scales of one or four groups, then the codes, the first half of a group below the
    second."""
    codes = unpacked_bytes(packed, 4).reshape(-1, 2, group // 2)
    together = 1 if group == 32 else 4
    nibbles = packed_fields(codes).reshape(-1, together * group // 2)
    return np.concatenate([scales.reshape(-1, together), nibbles], axis=1)


@dataclass(frozen=True)
class FloatRows(WeightFormat):
    """Floats as floats: `parameter` of `dtype` [out, in], rounded to that, rows turned in heads as in `GgufWeight`.

    `is_vector`: whether the tensor has one axis, whose elements are rows of one column. `added`: the file has
    f32(number + added), and the model f32(value - added); the number is the exact difference.
    """

    dtype: str
    head: int = 1
    parameter: str = _WEIGHT
    is_vector: bool = False
    added: int = 0
    is_plain = True

    def tensor_name(self, module: str) -> str:
        return f"{module}.{self.parameter}"

    def tensor_shape(self, shape: tuple[int, int]) -> tuple[int, ...]:
        return shape[:1] if self.is_vector else shape

    @property
    def rows_together(self) -> int:
        """The rows of a head."""
        return self.head

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        return (StoredTensor(self.parameter, self.dtype, shape),)

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        return (Region(self.parameter, row_begin, row_end, 0, shape[1]),)

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        return {self.parameter: file_order(_converted(rows.bits, rows.dtype, self.dtype, self.added), self.head)}

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        raise CheckpointError(_NO_CODES)

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        return _converted(self._rows(stored), self.dtype, dtype, -self.added)

    def numbers(self, stored: StoredRows) -> Array:
        return values(self._rows(stored), self.dtype).astype(np.float64) - self.added

    def codes(self, stored: StoredRows) -> Codes:
        raise CheckpointError(_NO_CODES)

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        return float_kernels({dtype, self.dtype})

    def dequantizing_kernels(self, dtypes: Collection[str]) -> tuple[Kernel, ...]:
        return float_kernels({*dtypes, self.dtype})

    def _rows(self, stored: StoredRows) -> Array:
        return model_order(np.ascontiguousarray(stored.parts[self.parameter]), self.head)


def _converted(bits: Array, dtype: str, to: str, added: int) -> Array:
    if dtype == to and not added:
        return bits
    floats = values(bits, dtype)
    return bits_of(floats + np.float32(added) if added else floats, to).view(DTYPES[to].array)


def numbers_of(data: Array, type_: TensorType) -> Array:
    """Return the numbers that whole blocks hold, f64 [1, elements]. `data`: uint8, flat."""
    elements = data.size // type_.block_bytes * type_.block
    dtype = type_.name if type_.name in FLOATS else "U8"
    form: WeightFormat = FloatRows(dtype) if type_.name in FLOATS else GgufWeight(type_)
    part = data.reshape(1, -1).view(DTYPES[dtype].array)
    return form.numbers(StoredRows({_WEIGHT: part}, {_WEIGHT: dtype}, (1, elements), 0, 1))


def type_named(name: str) -> TensorType:
    """Return a type to which codes and scales are moved. Raises CheckpointError for another one."""
    found = TENSOR_TYPES.get(name.upper())
    if found is None or found.name not in REPACKED_TO:
        raise CheckpointError(
            f"codes and scales are not moved to '{name}' of GGUF: choose one of {', '.join(REPACKED_TO)}"
        )
    return found
