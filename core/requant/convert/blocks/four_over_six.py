"""NVFP4 by "four over six" (arXiv 2512.02010): a block's largest magnitude becomes 6, or 4 if that has a smaller error.

With a the largest magnitude of the tensor and b that of the block, every step one of f32:

    e = 1536 / a, d = 1 / e                           1536 = 6 * 256
    s = E4M3(b / 6 * e), or for 4 E4M3(b / 6 * e * 1.5)
    element = E2M1(x * (1 / (d * s))), 0 where s = 0
    error = sum((element * s * a / 1536 - x)^2), or the sum or maximum of magnitudes

An element of 7 or more, which a block may have whose s is subnormal, is rounded to 8. The error counts it so, and it is
written as code 8, which is -0. The sum adds x[i] to x[i + 8], and these eight one after the other, as torch does with
vectors of 8 numbers, and without. With AVX-512 it adds in another order (read, not run), which matters where both
errors are nearly equal.

Source: fouroversix 1.0.5, quantize/pytorch/reference.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.float_encoding import Encoder
from requant.convert.small_floats import decode_table
from requant.errors import ParameterError, PreconditionError
from requant.errors.cancellation import check_cancelled

Array = NDArray[Any]

_BLOCK = 16
_ROWS = 1 << 12
"""Blocks whose candidates are in memory together."""
_ONE, _PRODUCT, _EXPANSION = np.float32(1), np.float32(6 * 256), np.float32(1.5)
_FIRST_8 = np.float32(7)
"""The least magnitude that 2 * RNE(x / 2) makes 8."""


class BlockError(StrEnum):
    """What a block's error is."""

    MSE = "mse"
    MAE = "mae"
    ABS_MAX = "abs_max"


def _added(errors: Array) -> Array:
    """Return the sums of rows of 16, in torch's order."""
    pairs = errors[:, :8] + errors[:, 8:]
    total = pairs[:, 0]
    for lane in range(1, 8):
        total = total + pairs[:, lane]
    return total


def _error(real: Array, rows: Array, error: BlockError) -> Array:
    difference = real - rows
    if error is BlockError.MSE:
        return _added(difference * difference)
    magnitudes = np.abs(difference)
    return _added(magnitudes) if error is BlockError.MAE else magnitudes.max(axis=1)


def _candidate(rows: Array, ideal: Array, largest: np.float32, of_scale: Encoder, of_element: Encoder) -> Any:
    """Return scales, elements and real numbers of blocks, whose scales before E4M3 are given."""
    counts = np.zeros(4, np.int64)
    scales, codes = np.empty(len(rows), "|u1"), np.empty(rows.size, "|u1")
    of_scale.encode(ideal, scales, 0, counts)
    decoded = decode_table("f8E4M3FN")[scales]
    factors = np.where(decoded != 0, _ONE / ((_ONE / (_PRODUCT / largest)) * decoded), np.float32(0))
    scaled = rows * factors[:, None] + np.float32(0)  # -0 becomes 0
    of_element.encode(scaled.reshape(-1), codes, 0, counts)
    beyond = np.abs(scaled) >= _FIRST_8
    elements = np.where(beyond, np.copysign(np.float32(8), scaled), decode_table("f4E2M1FN")[codes.reshape(rows.shape)])
    real = elements * decoded[:, None] * largest / _PRODUCT
    return scales, np.where(beyond, np.uint8(8), codes.reshape(rows.shape)), real


def quantize_four_over_six(
    source: Array, of_blocks: Array, scales: Array, elements: Array, largest: np.float32, error: BlockError,
    encoders: tuple[Encoder, Encoder],
) -> None:  # fmt: skip
    """Write the scales and elements of flat f32 numbers. `of_blocks`: the largest magnitude of each block; `largest`:
    what is taken for the tensor's; `encoders`: to E4M3 and to E2M1, saturating. A tensor of zeros has scales of 0.

    Raises ParameterError if `largest` is less than that of a block, PreconditionError if f32 does not hold 1536 /
    largest or the factors that follow from it.
    """
    if largest == 0 and not of_blocks.any():
        scales[:], elements[:] = 0, 0
        return
    if not 0 < largest < np.inf or largest < of_blocks.max(initial=0):
        raise ParameterError(
            f"the rule cannot use the global scale {float(largest)!r}; it is the tensor's largest magnitude, or more",
            pointer="/global_scale",
        )
    with np.errstate(all="ignore"):
        encode = _PRODUCT / largest
        ends = _ONE / ((_ONE / encode) * np.array([2.0**-9, 448], np.float32))
        if not (np.isfinite(encode) and np.isfinite(ends).all() and (ends > 0).all()):
            raise PreconditionError(
                f"the largest magnitude, {largest}, is too small or too large: f32 does not hold its scales"
            )
        rows, codes = source.reshape(-1, _BLOCK), elements.reshape(-1, _BLOCK)
        for start in range(0, len(rows), _ROWS):
            check_cancelled()
            some = slice(start, start + _ROWS)
            ideal = of_blocks[some] / np.float32(6) * encode
            (of_six, six, real_six), (of_four, four, real_four) = (
                _candidate(rows[some], each, largest, *encoders) for each in (ideal, ideal * _EXPANSION)
            )
            taken = _error(real_four, rows[some], error) < _error(real_six, rows[some], error)
            scales[some] = np.where(taken, of_four, of_six)
            codes[some] = np.where(taken[:, None], four, six)


def dequantize_four_over_six(codes: Array, scales: Array, largest: np.float32, target: Array) -> None:
    """Write f32(f32(element * scale * largest) / 1536) of codes of E2M1. `scales`: real numbers, one for each block."""
    rows, found = codes.reshape(-1, _BLOCK), target.reshape(-1, _BLOCK)
    for start in range(0, len(rows), _ROWS):
        check_cancelled()
        some = slice(start, start + _ROWS)
        found[some] = decode_table("f4E2M1FN")[rows[some]] * scales[some, None] * largest / _PRODUCT
