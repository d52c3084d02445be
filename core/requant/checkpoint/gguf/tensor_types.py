"""The types of tensors in GGUF files, and their elements to and from f32.

Source: ggml 0.25: ggml.h (`enum ggml_type`), llama.h (`enum llama_ftype`), ggml-quants.c, the `_ref` functions.

K-quants are those of `requant.checkpoint.gguf.k_quants`, I-quants of `i_quants`, and FP4, ternary and binary types of
`small_blocks`.
Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 are those of `requant.convert.blocks.gguf`, but that d of a block of zeros is -0 in Q4_0
and Q5_0 whatever their signs, as in C (gguf-py has +0 where the first one is -0).

F16 and BF16: nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf import i_quants, k_quants, small_blocks
from requant.checkpoint.gguf import quant_search as search
from requant.checkpoint.gguf.blocks import Unpacked, check, f16_at, stored_f16
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights import floats
from requant.convert.blocks.gguf import GGUF_FORMATS, GgufTensor, dequantize_gguf, quantize_gguf, unpacked_codes
from requant.errors import PreconditionError

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
    TensorType("Q1_0", 41, 128, 18),
    TensorType("Q2_0", 42, 64, 18),
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
"""The types that all tensors may be converted to, each with the value of `general.file_type`."""

FLOATS = ("F32", "F16", "BF16")

GGML_VERSION = "0.25"
"""Whose arithmetic it is."""

# The types whose d has the sign of an extreme value.
_SIGNED_SCALES = ("Q4_0", "Q5_0")

_UNPACK: Mapping[str, Callable[[Array], Unpacked]] = {
    "MXFP4": small_blocks.unpack_mxfp4,
    "NVFP4": small_blocks.unpack_nvfp4,
    "Q2_0": small_blocks.unpack_q2_0,
    "TQ1_0": small_blocks.unpack_tq1_0,
    "TQ2_0": small_blocks.unpack_tq2_0,
    "Q2_K": k_quants.unpack_q2_k,
    "Q3_K": k_quants.unpack_q3_k,
    "Q4_K": k_quants.unpack_q4_k,
    "Q5_K": k_quants.unpack_q5_k,
    "Q6_K": k_quants.unpack_q6_k,
    "Q8_K": k_quants.unpack_q8_k,
    "IQ4_NL": i_quants.unpack_iq4_nl,
    "IQ4_XS": i_quants.unpack_iq4_xs,
    "IQ3_S": i_quants.unpack_iq3_s,
    "IQ3_XXS": i_quants.unpack_iq3_xxs,
    "IQ2_S": i_quants.unpack_iq2_s,
    "IQ2_XS": i_quants.unpack_iq2_xs,
    "IQ2_XXS": i_quants.unpack_iq2_xxs,
    "IQ1_S": i_quants.unpack_iq1_s,
    "IQ1_M": i_quants.unpack_iq1_m,
}
_WRITE: Mapping[str, Callable[[Array], Array]] = {
    "MXFP4": small_blocks.write_mxfp4,
    "TQ1_0": small_blocks.write_tq1_0,
    "TQ2_0": small_blocks.write_tq2_0,
}

_SEARCH: Mapping[str, Callable[[Array, Array | None], Array]] = {
    "Q2_K": k_quants.write_q2_k,
    "Q3_K": k_quants.write_q3_k,
    "Q4_K": k_quants.write_q4_k,
    "Q5_K": k_quants.write_q5_k,
    "Q6_K": k_quants.write_q6_k,
    "IQ4_NL": i_quants.write_iq4_nl,
    "IQ4_XS": i_quants.write_iq4_xs,
}

READABLE = (*FLOATS, *GGUF_FORMATS, "Q1_0", *_UNPACK)
"""The types that can be dequantized."""

SEARCHED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", *_SEARCH)
"""The types that the importance of columns changes."""

WRITABLE = (*FLOATS, *GGUF_FORMATS, *_WRITE, *_SEARCH)
"""The types that can be written."""


def read_elements(data: Array, type_: TensorType) -> Array:
    """Return the f32 values of some whole blocks, flat. `data`: uint8, flat; `type_`: one of READABLE."""
    if type_.name in FLOATS:
        return floats.values(data.view(DTYPES[type_.name].array), type_.name)
    if type_.name in GGUF_FORMATS:
        return dequantize_gguf(GgufTensor(type_.name, (data.size // type_.block_bytes * type_.block,), data))
    blocks = data.reshape(-1, type_.block_bytes)
    if type_.name == "Q1_0":
        return small_blocks.read_q1_0(blocks)
    return _UNPACK[type_.name](blocks).values()


def unpack(blocks: Array, type_: TensorType) -> Unpacked:
    """Return the numbers of blocks, uint8 [n, bytes]. `type_`: one of READABLE that is not of floats."""
    if type_.name in GGUF_FORMATS:
        format_ = GGUF_FORMATS[type_.name]
        codes = unpacked_codes(blocks, format_).view("|i1") - np.int8(format_.zero)
        heads = f16_at(blocks, 0, 1 + format_.has_minimum)
        return Unpacked(codes, heads[:, :1], heads, -heads[:, 1:] if format_.has_minimum else None)
    return small_blocks.unpack_q1_0(blocks) if type_.name == "Q1_0" else _UNPACK[type_.name](blocks)


def write_elements(values: Array, type_: TensorType, *, first: int = 0, importance: Array | None = None) -> Array:
    """Return the stored bytes of f32 values, whole blocks of them, flat. `type_`: one of WRITABLE.

    `first`: the index of the first value in its tensor. `importance`: of the columns, f32, where the values are whole
    rows; of it the types that search for their scales, and Q4_0 to Q5_1, make weights, and the others take no notice.

    Raises PreconditionError with the index of the first value that is not finite, or of the first block whose scale is
    beyond its type.
    """
    try:
        return _written(values, type_, importance)
    except PreconditionError as fault:
        index = first + (fault.index or 0)
        raise PreconditionError(fault.detail.format(index=f"{index:,}"), index=index) from None


def _written(values: Array, type_: TensorType, importance: Array | None) -> Array:
    check(np.isfinite(values), 1, "the value at index {index} is not finite")
    if type_.name == "F32":
        return values.view("|u1")
    if type_.name == "F16":
        return stored_f16(values, 1).view("|u1")
    if type_.name == "BF16":
        stored = floats.bits_of(values, "BF16")
        check((stored & 0x7F80) != 0x7F80, 1, "the value at index {index} is beyond bf16's largest")
        return stored.view("|u1")
    if type_.name in GGUF_FORMATS:
        if importance is not None and type_.name in SEARCHED:
            rows = values.reshape(-1, importance.size)
            with np.errstate(all="ignore"):
                stored = search.write_plain_blocks(type_.name, rows, np.broadcast_to(importance, rows.shape))
        else:
            stored = _plain_blocks(values, type_.name)
        heads = stored.reshape(-1, type_.block_bytes)[:, : 2 + 2 * GGUF_FORMATS[type_.name].has_minimum]
        usable = np.isfinite(np.ascontiguousarray(heads).view("<f2")).all(axis=1)
        check(usable, type_.block, "the scale or the minimum of the block at index {index} is beyond f16's 65504")
        return stored.reshape(-1)
    blocks = values.reshape(-1, type_.block)
    if type_.name in _SEARCH:
        of_blocks = None
        if importance is not None:
            rows = np.broadcast_to(importance, (values.size // importance.size, importance.size))
            of_blocks = rows.reshape(-1, type_.block)
        # What is not a number on the way loses its comparisons, as in C.
        with np.errstate(all="ignore"):
            return _SEARCH[type_.name](blocks, of_blocks).reshape(-1)
    return _WRITE[type_.name](blocks).reshape(-1)


def _plain_blocks(values: Array, name: str) -> Array:
    # -0 + 0 is +0, and d = 0 / -8 = -0.
    signed = values + np.float32(0) if name in _SIGNED_SCALES else values
    try:
        return quantize_gguf(signed, name).data
    except PreconditionError as error:
        detail = "f32 cannot represent the scale of the block at index {index}"
        raise PreconditionError(detail, index=error.index) from None
