"""GGUF's blocks of 32 along the last axis, to and from the bytes that gguf stores. Source: ggml's ggml-quants.c.

| format | scale                                 | code                                        | bytes of a block     |
|--------|---------------------------------------|---------------------------------------------|----------------------|
| Q8_0   | d = f32(amax / 127)                   | RNA(f32(x * id))                            | d, 32 int8           |
| Q4_0   | d = f32(m / -8), m the first value of | min(15, RTZ(f32(f32(x * id) + 8.5)))        | d, nibbles           |
|        | the largest magnitude, with its sign  |                                             |                      |
| Q4_1   | d = f32(f32(max - min) / 15)          | min(15, RTZ(f32(f32(f32(x-min)*id) + 0.5))) | d, min, nibbles      |
| Q5_0   | as Q4_0 with -16                      | as Q4_0 with 31 and 16.5                    | d, fifths, nibbles   |
| Q5_1   | as Q4_1 with 31                       | as Q4_1 with 31                             | d, min, fifths, nib. |

id = f32(1 / d), and 0 where d is 0. d and min are stored as f16 (RNE, beyond 65504 an infinity), while the codes come
from the f32 d. Nibbles: byte j has the code of element j below that of element j + 16. Fifths: the codes' fifth bits in
a 32-bit little-endian word, element 0 lowest. What is stored means d * code, d * (code - 8), d * code + min,
d * (code - 16) and d * code + min, each step in f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.blocks.blocking import block_count, check_length, flat_f32
from requant.errors import PreconditionError
from requant.errors.names import entry_named
from requant.kernels.convert import blocks as kernels
from requant.plan.float_arrays import f32_of_f16

Array = NDArray[Any]

BLOCK = 32
_HALF = BLOCK // 2


@dataclass(frozen=True, slots=True)
class GgufFormat:
    """One format: bits of a code, what d is the quotient by, the code of zero, and whether a minimum is stored."""

    name: str
    bits: int
    divisor: float
    zero: int
    has_minimum: bool

    @property
    def block_bytes(self) -> int:
        return 2 + 2 * self.has_minimum + BLOCK * self.bits // 8


GGUF_FORMATS: dict[str, GgufFormat] = {
    row.name: row
    for row in (
        GgufFormat("Q8_0", 8, 127.0, 0, False),
        GgufFormat("Q4_0", 4, -8.0, 8, False),
        GgufFormat("Q4_1", 4, 15.0, 0, True),
        GgufFormat("Q5_0", 5, -16.0, 16, False),
        GgufFormat("Q5_1", 5, 31.0, 0, True),
    )
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`shape` elements of `format_name`. `data`: uint8, flat, the blocks one after the other as in a GGUF file."""

    format_name: str
    shape: tuple[int, ...]
    data: Array


def gguf_format(name: str) -> GgufFormat:
    """Return the format of a name, or raise UnknownNameError."""
    return entry_named(GGUF_FORMATS, name, "GGUF format")


def _reciprocals(source: Array, extremes: Array, scales: Array) -> Array:
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        reciprocals = np.where(scales == 0, np.float32(0), np.float32(1) / scales)
    # Comparisons pass over a NaN, so a minimum and a maximum do not show it; the extreme value does.
    usable = np.isfinite(extremes) & np.isfinite(reciprocals) & np.isfinite(scales)
    if not usable.all():
        block = int(np.argmin(usable))
        finite = np.isfinite(source[block * BLOCK : (block + 1) * BLOCK])
        index = block * BLOCK + int(np.argmin(finite))
        if finite.all():
            reason = f"d of its block is {scales[block]}, and f32 does not hold that or its reciprocal"
        else:
            reason = "it is not finite"
        raise PreconditionError(f"the value at index {index} cannot be quantized: {reason}", index=index)
    return reciprocals


def _f16(column: Array) -> Array:
    with np.errstate(over="ignore"):
        return column.astype("<f2").reshape(-1, 1).view("|u1")


def packed_codes(codes: Array, format_: GgufFormat) -> list[Array]:
    """Return the parts of blocks [n, some bytes] that hold codes, uint8 [n, 32], as `unpacked_codes` returns them."""
    rows = codes.reshape(-1, BLOCK)
    if format_.bits == 8:
        return [rows]
    nibbles = (rows[:, :_HALF] & 15) | (rows[:, _HALF:] << 4)
    return [np.packbits(rows >> 4, axis=1, bitorder="little"), nibbles] if format_.bits == 5 else [nibbles]


def unpacked_codes(blocks: Array, format_: GgufFormat) -> Array:
    """Return the codes of blocks [n, bytes] as they are stored, uint8 [n, 32]; those of Q8_0 are int8 as bytes."""
    if format_.bits == 8:
        return np.ascontiguousarray(blocks[:, -BLOCK:])
    nibbles = blocks[:, -_HALF:]
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=1)
    if format_.bits == 5:
        codes |= np.unpackbits(blocks[:, -_HALF - 4 : -_HALF], axis=1, bitorder="little") << 4
    return codes


def quantize_gguf(values: Array, format_name: str) -> GgufTensor:
    """Derive the scales of an f32 tensor of any rank from 1, quantize it, and pack it.

    Raises UnknownNameError for the format; UnsupportedError for values that are not f32; TypeFitError if the last axis
    is not a multiple of 32; PreconditionError where gguf's arithmetic is undefined: a value is NaN or infinite, or a
    block's d or 1 / d is beyond f32.
    """
    format_ = gguf_format(format_name)
    shape = values.shape
    count = block_count(shape, BLOCK, format_name)
    source = flat_f32(values, format_name)
    codes = np.empty(source.size, "|u1")
    extremes, lowest, highest = (np.empty(count, "<f4") for _ in range(3))
    kernels.extremes(source, BLOCK, extremes, lowest, highest)
    divisor = np.float32(format_.divisor)
    if format_.has_minimum:
        with np.errstate(over="ignore", invalid="ignore"):
            scales = (highest - lowest) / divisor
    else:
        scales = (np.abs(extremes) if format_.bits == 8 else extremes) / divisor
    reciprocals = _reciprocals(source, extremes, scales)
    if format_.bits == 8:
        kernels.quantize_symmetric(source, BLOCK, reciprocals, codes)
    else:
        subtracted = lowest if format_.has_minimum else np.zeros(count, "<f4")
        largest = (1 << format_.bits) - 1
        kernels.quantize_shifted(source, BLOCK, subtracted, reciprocals, format_.zero + 0.5, largest, codes)
    heads = [_f16(scales), _f16(lowest)] if format_.has_minimum else [_f16(scales)]
    return GgufTensor(format_name, shape, np.concatenate([*heads, *packed_codes(codes, format_)], axis=1).reshape(-1))


def dequantize_gguf(tensor: GgufTensor) -> Array:
    """Return the f32 values of the stored blocks, in the tensor's shape.

    Raises UnknownNameError for the format, TypeFitError if the last axis is not a multiple of 32, TensorDataError for
    data of another length than the shape asks for.
    """
    format_ = gguf_format(tensor.format_name)
    count = block_count(tensor.shape, BLOCK, tensor.format_name)
    check_length(tensor.data, count * format_.block_bytes, "bytes")
    blocks = tensor.data.reshape(count, format_.block_bytes)
    heads = f32_of_f16(np.ascontiguousarray(blocks[:, : 2 + 2 * format_.has_minimum]).view("<f2"))
    codes = np.arange(256, dtype="|u1")
    table = (codes.view("|i1") if format_.bits == 8 else codes).astype("<f4") - np.float32(format_.zero)
    target = np.empty(count * BLOCK, "<f4")
    scales = np.ascontiguousarray(heads[:, 0])
    kernels.scale_blocks(unpacked_codes(blocks, format_).reshape(-1), table, scales, BLOCK, target)
    if format_.has_minimum:
        with np.errstate(over="ignore", invalid="ignore"):
            target.reshape(count, BLOCK)[...] += heads[:, 1:]
    _settle_nans(target.reshape(count, BLOCK), heads)
    return target.reshape(tensor.shape)


def _settle_nans(rows: Array, heads: Array) -> None:
    """Let NaN be the same on every CPU: that of d, else that of the minimum, else, where an infinity made it, the
    negative one that x86 makes."""
    wrong = ~np.isfinite(heads).all(axis=1)
    if wrong.any():
        found, given = rows[wrong], heads[wrong]
        nan = np.full((given.shape[0], 1), -np.float32(np.nan))
        for column in reversed(range(given.shape[1])):
            own = given[:, column : column + 1]
            nan = np.where(np.isnan(own), own, nan)
        rows[wrong] = np.where(np.isnan(found), nan, found)
