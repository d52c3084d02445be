"""The types of tensors in GGUF files, and their elements to and from f32.

Source: ggml 0.25: ggml.h (`enum ggml_type`), llama.h (`enum llama_ftype`), ggml-quants.c, the `_ref` functions.

| type  | block | scale                                             | code                                    |
|-------|-------|---------------------------------------------------|-----------------------------------------|
| MXFP4 | 32    | 2^(e - 127), e = floor(log2(amax)) - 2 + 127; 0   | nearest E2M1 of x / scale, a tie to the |
|       |       | where amax is 0                                   | smaller magnitude, -0 as 0              |
| TQ1_0 | 256   | d = amax                                          | RNA(f32(x * id)) + 1                    |
| TQ2_0 | 256   | d = amax                                          | RNA(f32(x * id)) + 1                    |

log2 is rounded to f32 before its floor, so that amax just below a power of two counts as that power. id = f32(1 / d),
0 where d is 0; d is stored as f16, last in its block. Ternary codes are 0, 1 and 2 for -d, 0 and d.

- MXFP4, 17 bytes: e, and 16 bytes with the code of element j below that of element j + 16.
- TQ2_0, 66 bytes: byte 32 h + j has the codes of the elements 128 h + j + 32 i at bit 2 i.
- TQ1_0, 54 bytes: a byte has the codes of five elements as the digits of a number q in base 3, the first one highest,
  as ceil(256 q / 243). Bytes 0 to 31 have the elements j + 32 i, bytes 32 to 47 the elements 160 + j + 16 i, bytes 48
  to 51 the four elements 240 + j + 4 i and a digit 0.

Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 are those of `requant.convert.blocks.gguf`, but that d of a block of zeros is -0 in Q4_0
and Q5_0 whatever their signs, as in C (gguf-py has +0 where the first one is -0).

F16 and BF16: nearest, ties to even.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights import floats
from requant.convert.blocks.gguf import GGUF_FORMATS, GgufTensor, dequantize_gguf, quantize_gguf
from requant.convert.small_floats import decode_table
from requant.errors import PreconditionError
from requant.errors.names import entry_named, in_any_case
from requant.plan.float_arrays import f32_of_f16

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A type by its number in files: `block_bytes` bytes hold `block` elements along the innermost dimension."""

    name: str
    number: int
    block: int
    block_bytes: int

    def size(self, elements: int) -> int:
        """Return the bytes of that many elements, a multiple of the block."""
        return elements // self.block * self.block_bytes


_ALL = (
    TensorType("F32", 0, 1, 4),
    TensorType("F16", 1, 1, 2),
    TensorType("Q4_0", 2, 32, 18),
    TensorType("Q4_1", 3, 32, 20),
    TensorType("Q5_0", 6, 32, 22),
    TensorType("Q5_1", 7, 32, 24),
    TensorType("Q8_0", 8, 32, 34),
    TensorType("Q8_1", 9, 32, 36),
    TensorType("Q2_K", 10, 256, 84),
    TensorType("Q3_K", 11, 256, 110),
    TensorType("Q4_K", 12, 256, 144),
    TensorType("Q5_K", 13, 256, 176),
    TensorType("Q6_K", 14, 256, 210),
    TensorType("Q8_K", 15, 256, 292),
    TensorType("IQ2_XXS", 16, 256, 66),
    TensorType("IQ2_XS", 17, 256, 74),
    TensorType("IQ3_XXS", 18, 256, 98),
    TensorType("IQ1_S", 19, 256, 50),
    TensorType("IQ4_NL", 20, 32, 18),
    TensorType("IQ3_S", 21, 256, 110),
    TensorType("IQ2_S", 22, 256, 82),
    TensorType("IQ4_XS", 23, 256, 136),
    TensorType("I8", 24, 1, 1),
    TensorType("I16", 25, 1, 2),
    TensorType("I32", 26, 1, 4),
    TensorType("I64", 27, 1, 8),
    TensorType("F64", 28, 1, 8),
    TensorType("IQ1_M", 29, 256, 56),
    TensorType("BF16", 30, 1, 2),
    TensorType("TQ1_0", 34, 256, 54),
    TensorType("TQ2_0", 35, 256, 66),
    TensorType("MXFP4", 39, 32, 17),
    TensorType("NVFP4", 40, 64, 36),
)

TENSOR_TYPES = {each.name: each for each in _ALL}
TYPE_OF_NUMBER = {each.number: each for each in _ALL}

FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q5_0": 8,
    "Q5_1": 9,
    "BF16": 32,
    "TQ1_0": 36,
    "TQ2_0": 37,
    "MXFP4": 38,
}
"""The types that tensors are converted to, each with the value of `general.file_type`."""

FLOATS = ("F32", "F16", "BF16")


def target_type(name: str) -> TensorType:
    """Return the type to convert to by its name, in any case. Raises UnknownNameError."""
    known = in_any_case(FILE_TYPES, name)
    entry_named(FILE_TYPES, known, "GGUF type to convert to")
    return TENSOR_TYPES[known]


_E2M1 = decode_table("f4E2M1FN")
# In halves, as ggml has them: the scale is halved too. They are integers, without -0.
_E2M1_HALVES = 2 * _E2M1 + np.float32(0)
# A magnitude above the k-th of these has at least code k + 1.
_MIDPOINTS = (_E2M1[:7] + _E2M1[1:8]) / np.float32(2)
_SMALLEST_AMAX = 2.0**-125
_DIGITS = (81, 27, 9, 3, 1)
# Of TQ1_0: the first element, bytes and codes in each byte of the three parts of a block.
_TERNARY_PARTS = ((0, 32, 5), (160, 16, 5), (240, 4, 4))
# The types whose d has the sign of an extreme value.
_SIGNED_SCALES = ("Q4_0", "Q5_0")
READABLE = ("F32", "F16", "BF16", *GGUF_FORMATS, "MXFP4", "TQ1_0", "TQ2_0")
"""The types that can be dequantized."""


def read_elements(data: Array, type_: TensorType) -> Array:
    """Return the f32 values of some whole blocks. `data`: uint8, flat; `type_`: one of READABLE."""
    if type_.name in FLOATS:
        return floats.values(data.view(DTYPES[type_.name].array), type_.name)
    if type_.name in GGUF_FORMATS:
        return dequantize_gguf(GgufTensor(type_.name, (data.size // type_.block_bytes * type_.block,), data))
    blocks = data.reshape(-1, type_.block_bytes)
    with np.errstate(invalid="ignore"):
        return _READERS[type_.name](blocks).reshape(-1)


def write_elements(values: Array, type_: TensorType, *, first: int = 0) -> Array:
    """Return the stored bytes of f32 values, whole blocks of them, flat. `type_`: one of FILE_TYPES.

    `first`: the index of the first value in its tensor. Raises PreconditionError with the index of the first value that
    is not finite, or of the first block whose scale is beyond its type.
    """
    try:
        return _written(values, type_)
    except PreconditionError as fault:
        index = first + (fault.index or 0)
        raise PreconditionError(fault.detail.format(index=f"{index:,}"), index=index) from None


def _check(usable: Array, block: int, detail: str) -> None:
    """Raise PreconditionError for the first block that is not usable. `{index}` stands for its index in `detail`."""
    if not usable.all():
        raise PreconditionError(detail, index=int(np.argmin(usable)) * block)


def _written(values: Array, type_: TensorType) -> Array:
    _check(np.isfinite(values), 1, "the value at index {index} is not finite")
    if type_.name == "F32":
        return values.view("|u1")
    if type_.name == "F16":
        return _f16(values, 1).view("|u1")
    if type_.name == "BF16":
        stored = floats.bits_of(values, "BF16")
        _check((stored & 0x7F80) != 0x7F80, 1, "the value at index {index} is beyond bf16's largest")
        return stored.view("|u1")
    if type_.name in GGUF_FORMATS:
        # -0 + 0 is +0, and d = 0 / -8 = -0.
        signed = values + np.float32(0) if type_.name in _SIGNED_SCALES else values
        try:
            stored = quantize_gguf(signed, type_.name).data
        except PreconditionError as error:
            detail = "f32 cannot represent the scale of the block at index {index}"
            raise PreconditionError(detail, index=error.index) from None
        heads = stored.reshape(-1, type_.block_bytes)[:, : 2 + 2 * GGUF_FORMATS[type_.name].has_minimum]
        usable = np.isfinite(np.ascontiguousarray(heads).view("<f2")).all(axis=1)
        _check(usable, type_.block, "the scale or the minimum of the block at index {index} is beyond f16's 65504")
        return stored
    return _WRITERS[type_.name](values.reshape(-1, type_.block)).reshape(-1)


def _f16(values: Array, block: int) -> Array:
    with np.errstate(over="ignore"):
        stored = values.astype("<f2")
    what = "value" if block == 1 else "scale of the block"
    _check(np.isfinite(stored), block, f"the {what} at index {{index}} is beyond f16's 65504")
    return stored


def _write_mxfp4(values: Array) -> Array:
    magnitudes = np.abs(values)
    largest = magnitudes.max(axis=1)
    usable = (largest == 0) | (largest >= np.float32(_SMALLEST_AMAX))
    _check(usable, 32, "all magnitudes of the block at index {index} are below 2^-125, where ggml's MXFP4 is undefined")
    with np.errstate(divide="ignore"):
        exponents = np.where(largest > 0, np.floor(np.log2(largest.astype("<f8")).astype("<f4")) - 2 + 127, 0)
    scales = np.ldexp(np.float32(1), exponents.astype("<i4") - 127).astype("<f4")
    codes = np.zeros(values.shape, "|u1")
    for midpoint in _MIDPOINTS:
        codes += magnitudes > (midpoint * scales)[:, None]
    codes |= ((values < 0) & (codes > 0)).view("|u1") << 3
    return np.concatenate([exponents.astype("|u1")[:, None], codes[:, :16] | (codes[:, 16:] << 4)], axis=1)


def _read_mxfp4(blocks: Array) -> Array:
    halves = np.ldexp(np.float32(1), blocks[:, :1].astype("<i4") - 128).astype("<f4")
    nibbles = blocks[:, 1:]
    values: Array = _E2M1_HALVES[np.concatenate([nibbles & 15, nibbles >> 4], axis=1)] * halves
    return values


def _ternary_codes(values: Array) -> tuple[Array, Array]:
    """Return the codes, and d as the bytes of an f16."""
    largest = np.abs(values).max(axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        reciprocals = np.where(largest == 0, np.float32(0), np.float32(1) / largest)
    _check(
        np.isfinite(reciprocals), 256, "f32 cannot represent the reciprocal of the scale of the block at index {index}"
    )
    scaled = values * reciprocals[:, None]
    # Magnitudes are at most 1 and the rounding of the product: half and above is away from zero.
    codes = (1 + (scaled >= 0.5).view("|i1") - (scaled <= -0.5).view("|i1")).astype("|u1")
    return codes, _f16(largest, 256).reshape(-1, 1).view("|u1")


def _write_tq1_0(values: Array) -> Array:
    codes, scales = _ternary_codes(values)
    parts = []
    for begin, width, count in _TERNARY_PARTS:
        digits = codes[:, begin : begin + width * count].reshape(-1, count, width).astype("<u2")
        number = (digits * np.array(_DIGITS[:count], "<u2")[:, None]).sum(axis=1, dtype="<u2")
        parts.append(((number * 256 + 242) // 243).astype("|u1"))
    return np.concatenate([*parts, scales], axis=1)


def _read_tq1_0(blocks: Array) -> Array:
    codes, at = [], 0
    for _, width, count in _TERNARY_PARTS:
        packed = blocks[:, at : at + width]
        at += width
        for power in _DIGITS[::-1][:count]:
            # The multiplication wraps in a byte: the digits above leave it.
            codes += [((packed * np.uint8(power)).astype("<u2") * 3 >> 8).astype("|i1") - np.int8(1)]
    return np.concatenate(codes, axis=1).astype("<f4") * _scale_at(blocks, at)


def _write_tq2_0(values: Array) -> Array:
    codes, scales = _ternary_codes(values)
    quarters = codes.reshape(-1, 2, 4, 32)
    packed = quarters[:, :, 0] | quarters[:, :, 1] << 2 | quarters[:, :, 2] << 4 | quarters[:, :, 3] << 6
    return np.concatenate([packed.reshape(-1, 64), scales], axis=1)


def _read_tq2_0(blocks: Array) -> Array:
    packed = blocks[:, :64].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], "|u1").reshape(4, 1)
    codes = ((packed & 3).astype("|i1") - np.int8(1)).reshape(-1, 256)
    values: Array = codes.astype("<f4") * _scale_at(blocks, 64)
    return values


def _scale_at(blocks: Array, at: int) -> Array:
    return f32_of_f16(np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2"))


_WRITERS = {"MXFP4": _write_mxfp4, "TQ1_0": _write_tq1_0, "TQ2_0": _write_tq2_0}
_READERS = {"MXFP4": _read_mxfp4, "TQ1_0": _read_tq1_0, "TQ2_0": _read_tq2_0}
