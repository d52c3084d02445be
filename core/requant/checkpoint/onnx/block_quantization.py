"""The arithmetic of onnxruntime's block quantizer, in f32. Source: MatMulNBitsQuantizer of onnxruntime 1.31.

For each block along K of a column, with b bits:

    symmetric:   m = the extreme of larger magnitude, the minimum where both are equal;  s = m / -2^(b-1);  z = 2^(b-1)
    asymmetric:  s = (max - min) / (2^b - 1), 0 among the values;  z = clamp(RNA(-min / s), 0, 2^b - 1), 0 where s is 0
    r = 1 / R(s), 0 where R(s) is 0
    MatMulNBits:       code = clamp(RNA(w * r + z), 0, 2^b - 1)
    DequantizeLinear:  code = clamp(RNA(w * r) + z, 0, 2^b - 1)

RNA rounds to the nearest integer, ties away from zero; the two forms differ on ties. R rounds to f16 for weights of
f16 and is nothing for f32 and bf16; scales of bf16 are rounded to nearest even when they are stored. Of a block of
zeros the first one counts as m, with its sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights import floats
from requant.errors import ParameterError, PreconditionError
from requant.errors.names import entry_named, in_any_case

Array = NDArray[Any]


class Operator(StrEnum):
    """The operator that reads the codes. Each rounds in its own way."""

    MATMUL_NBITS = "MatMulNBits"
    """com.microsoft.MatMulNBits in place of the MatMul."""
    DEQUANTIZE_LINEAR = "DequantizeLinear"
    """DequantizeLinear of opset 21, in blocks, before the MatMul."""


BLOCK_SIZES = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class WeightForm:
    """Codes of `bits`, one scale, and one zero point unless symmetric, for each `block_size` elements along K.

    Raises ParameterError for what onnxruntime's quantizer does not write.
    """

    operator: Operator
    bits: int = 4
    block_size: int = 128
    symmetric: bool = False

    def __post_init__(self) -> None:
        allowed = (4, 8) if self.operator is Operator.MATMUL_NBITS else (4,)
        if self.bits not in allowed:
            named = " or ".join(map(str, allowed))
            raise ParameterError(f"{self.operator} holds weights of {named} bits, not of {self.bits}")
        if self.block_size not in BLOCK_SIZES:
            raise ParameterError(f"the block size {self.block_size} is not one of {', '.join(map(str, BLOCK_SIZES))}")

    @property
    def profile(self) -> str:
        """Return the name of the arithmetic."""
        return f"onnxruntime-{self.operator.lower()}"

    def blocks(self, k: int) -> int:
        """Return the number of blocks along K."""
        return -(-k // self.block_size)


_NAMED = {
    "MatMulNBits4": (Operator.MATMUL_NBITS, 4),
    "MatMulNBits8": (Operator.MATMUL_NBITS, 8),
    "DequantizeLinear4": (Operator.DEQUANTIZE_LINEAR, 4),
}
FORM_NAMES = tuple(_NAMED)
"""The names of operators with bits, by which `--scheme` asks for them."""


def form_named(name: str, *, block_size: int = 128, symmetric: bool = False) -> WeightForm:
    """Return a form by its name, in any case. The defaults are those of onnxruntime's quantizer.

    Raises UnknownNameError, ParameterError.
    """
    operator, bits = entry_named(_NAMED, in_any_case(_NAMED, name), "form of ONNX weights")
    return WeightForm(operator, bits, block_size, symmetric)


@dataclass(frozen=True, slots=True)
class Blocks:
    """`codes`: u8 [K, N]. `scales`: as stored, f16 and bf16 as u16, and `zero_points`: u8, both [K / block size, N]."""

    codes: Array
    scales: Array
    zero_points: Array


def quantize_columns(weights: Array, dtype: str, form: WeightForm) -> Blocks:
    """Quantize some columns and whole blocks of rows of a weight, f32 [rows, columns]; the last block may be short.

    `dtype`: F32, F16 or BF16, that of the weight and of its scales.

    Raises PreconditionError with `index` (flat in `weights`) where a value is not finite, or where the scale of a block
    or its reciprocal is not.
    """
    finite = np.isfinite(weights)
    if not finite.all():
        index = int(np.argmin(finite))
        raise PreconditionError("the value is not finite", index=index)
    rows, columns = weights.shape
    whole = rows // form.block_size * form.block_size
    parts = [weights[:whole].reshape(-1, form.block_size, columns)] if whole else []
    if whole < rows:
        parts.append(weights[whole:].reshape(1, rows - whole, columns))
    results = [_quantize(part, at * whole * columns, dtype, form) for at, part in enumerate(parts)]
    return Blocks(*(np.concatenate(each) for each in zip(*results, strict=True)))


def _quantize(blocks: Array, offset: int, dtype: str, form: WeightForm) -> tuple[Array, Array, Array]:
    """Quantize blocks [blocks, rows, columns]."""
    top, half = np.float32((1 << form.bits) - 1), np.float32(1 << (form.bits - 1))
    lowest, highest = blocks.min(axis=1), blocks.max(axis=1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        if form.symmetric:
            extremes = np.where(np.abs(highest) > np.abs(lowest), highest, lowest)
            scales = np.where(extremes == 0, blocks[:, 0], extremes) / -half
            zero_points = np.full(scales.shape, half)
        else:
            np.minimum(lowest, 0, out=lowest)
            np.maximum(highest, 0, out=highest)
            scales = (highest - lowest) / top
            ideal = _away(np.where(scales == 0, np.float32(0), -lowest / scales))
            zero_points = np.clip(ideal, np.float32(0), top)
        rounded = floats.rounded(scales, dtype) if dtype == "F16" else scales
        reciprocals = np.where(rounded == 0, np.float32(0), np.float32(1) / rounded)
    stored, held = _stored(scales, dtype)
    usable = held & np.isfinite(reciprocals)
    if not usable.all():
        block, column = divmod(int(np.argmin(usable)), blocks.shape[2])
        index = offset + block * blocks.shape[1] * blocks.shape[2] + column
        raise PreconditionError(
            "the scale of the block that begins there, or its reciprocal, is beyond its type", index=index
        )
    codes = blocks * reciprocals[:, None]
    if form.operator is Operator.MATMUL_NBITS:
        codes += zero_points[:, None]
        codes = _away(codes)
    else:
        codes = _away(codes)
        codes += zero_points[:, None]
    np.clip(codes, np.float32(0), top, out=codes)
    return codes.astype("|u1").reshape(-1, blocks.shape[2]), stored, zero_points.astype("|u1")


def _away(values: Array) -> Array:
    """Round to the nearest integer, ties away from zero: the fraction is exact, x + 0.5 is not."""
    whole = np.trunc(values)
    values -= whole
    whole += values >= np.float32(0.5)
    whole -= values <= np.float32(-0.5)
    return whole


def _stored(scales: Array, dtype: str) -> tuple[Array, Array]:
    """Return the bits of the scales in `dtype`, and whether they are finite there."""
    stored = floats.bits_of(scales, dtype)
    return stored, np.isfinite(floats.values(stored, dtype))


class MatMulNBitsColumns:
    """Some columns of B [N, blocks, block size * bits / 8], scales and zero points of com.microsoft.MatMulNBits.

    Two codes of 4 bits share a byte, the first one low: K is even. Elements beyond K are 0, and a nibble beyond the
    last zero point is 8.
    """

    def __init__(self, k: int, columns: int, dtype: str, form: WeightForm) -> None:
        self.form, self.k, blocks = form, k, form.blocks(k)
        self.codes = np.zeros((columns, blocks * form.block_size * form.bits // 8), "|u1")
        self.scales = np.empty((columns, blocks), DTYPES[dtype].array)
        self._zero_points = np.full((columns, blocks + (blocks % 2 if form.bits == 4 else 0)), 8, "|u1")

    def put(self, part: Blocks, row: int, column: int) -> None:
        """Put blocks whose first element is W[row, column] in their place."""
        columns, blocks = slice(column, column + part.codes.shape[1]), row // self.form.block_size
        # Rows are packed before they become columns: half as many bytes move.
        packed = part.codes[0::2] | (part.codes[1::2] << 4) if self.form.bits == 4 else part.codes
        begin = row * self.form.bits // 8
        self.codes[columns, begin : begin + len(packed)] = packed.T
        self.scales[columns, blocks : blocks + len(part.scales)] = part.scales.T
        self._zero_points[columns, blocks : blocks + len(part.scales)] = part.zero_points.T

    @property
    def zero_points(self) -> Array:
        """The zero points as they are stored."""
        points = self._zero_points
        return points[:, 0::2] | (points[:, 1::2] << 4) if self.form.bits == 4 else points


class DequantizeLinearRange:
    """Some rows or columns of W as DequantizeLinear holds it, codes and zero points two to a byte, the first one low.

    `transposed`: W is [N, K] in the file. Symmetric codes are INT4, code - 8, and have no zero points.
    """

    def __init__(self, rows: int, columns: int, dtype: str, form: WeightForm, *, transposed: bool) -> None:
        self.form, self.transposed, blocks = form, transposed, form.blocks(rows)
        self._codes, self._zero_points = (np.empty((height, columns), "|u1") for height in (rows, blocks))
        self._scales = np.empty((blocks, columns), DTYPES[dtype].array)

    def put(self, part: Blocks, row: int, column: int) -> None:
        """Put blocks whose first element is the one at [row, column] of this range in their place."""
        columns, blocks = slice(column, column + part.codes.shape[1]), row // self.form.block_size
        self._codes[row : row + len(part.codes), columns] = part.codes
        self._scales[blocks : blocks + len(part.scales), columns] = part.scales
        self._zero_points[blocks : blocks + len(part.scales), columns] = part.zero_points

    @property
    def codes(self) -> Array:
        """The codes as they are stored."""
        return self._nibbles(self._codes ^ 8 if self.form.symmetric else self._codes)

    @property
    def scales(self) -> Array:
        """The scales as they are stored."""
        return np.ascontiguousarray(self._scales.T if self.transposed else self._scales)

    @property
    def zero_points(self) -> Array:
        """The zero points as they are stored."""
        return self._nibbles(self._zero_points)

    def _nibbles(self, codes: Array) -> Array:
        """Pack codes in row-major order; beyond an odd number of them is a 0."""
        flat = (codes.T if self.transposed else codes).reshape(-1)
        even = np.append(flat, np.uint8(0)) if flat.size % 2 else flat
        packed: Array = even[0::2] | (even[1::2] << 4)
        return packed
