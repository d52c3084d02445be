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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.onnx.weight_form import Operator, WeightForm
from requant.checkpoint.weights import floats
from requant.errors import PreconditionError

Array = NDArray[Any]


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
