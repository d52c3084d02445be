"""The floats of weights and scales: BF16, F16 and F32 as bits, and as the f32 in which their arithmetic is done.

These are for scales, of which there are few. Weights are the matter of `requant.kernels.checkpoint`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import CheckpointError
from requant.plan.compute_dtype import f16_of_f32, f32_of_f16

Array = NDArray[Any]

EPSILON = {"BF16": np.float32(2.0**-7), "F16": np.float32(2.0**-10), "F32": np.float32(2.0**-23)}
"""From 1 to the next number of the dtype: torch.finfo(dtype).eps."""


def check_weight(dtype: str, shape: tuple[int, int]) -> None:
    """Raise CheckpointError unless a weight of that dtype and shape can be quantized."""
    if dtype not in EPSILON:
        raise CheckpointError(f"a weight of dtype {dtype} cannot be quantized; expected BF16, F16 or F32")
    if 0 in shape:
        raise CheckpointError(f"a weight of shape {list(shape)} has no elements, so it has no scale")


def values(bits: Array, dtype: str) -> Array:
    """Return the f32 of BF16, F16 or F32 (`DTYPES[dtype].array`): all are exact."""
    if dtype == "BF16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "F16":
        return f32_of_f16(bits)
    return bits.view(np.float32)


def rounded(numbers: Array, dtype: str) -> Array:
    """Round f32 (RNE) to `dtype`, as f32. Overflow gives infinity; NaN stays NaN."""
    return numbers if dtype == "F32" else values(bits_of(numbers, dtype), dtype)


def bits_of(numbers: Array, dtype: str) -> Array:
    """Return the bits of the nearest `dtype` (RNE) as `DTYPES[dtype].array`. NaN is positive, quiet, without payload.

    The library's NaN has the sign and payload that its vector instructions leave.
    """
    numbers = np.where(np.isnan(numbers), np.float32(np.nan), numbers)
    if dtype == "F32":
        return numbers
    if dtype == "F16":
        return f16_of_f32(numbers).view(np.uint16)
    bits = numbers.view(np.uint32)
    # There is no carry out of this NaN's mantissa.
    nearest = (bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)
    return nearest.astype(np.uint16)
