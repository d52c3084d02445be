"""Arrays of floats in the floats that kernels compute in: f32, or f64 for f64. f16 and bf16 are widened on the way in,
exactly.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.formats.elements import FloatElement
from requant.formats.float_format import round_to_format
from requant.kernels.convert.floats.f16 import narrow_to_f16, widen_f16

Array = NDArray[Any]

COMPUTE_DTYPES = {"f16": "<f4", "bf16": "<f4", "f32": "<f4", "f64": "<f8"}
"""For each expressed type with tensors: the dtype that kernels compute in."""

_PAST_F32 = 2.0**128


def f32_of_f16(array: Array) -> Array:
    """Return f16, or their bits, as f32. A NaN is quiet, with the sign and payload of the f16, on every CPU.

    Raises TypeError for an array of another width: the kernel would write past its end.
    """
    if array.dtype.itemsize != 2:
        raise TypeError(f"expected f16 or their bits, not {array.dtype}")
    values = np.empty(array.shape, np.float32)
    widen_f16(np.ascontiguousarray(array).ravel().view(np.int16), values.ravel())
    return values


def f16_of_f32(array: Array) -> Array:
    """Return the nearest f16 (RNE). Overflow gives infinity. A NaN is quiet, with its sign and the highest bits of its
    payload, on every CPU. Raises TypeError for an array of anything but f32.
    """
    if array.dtype != np.float32:
        raise TypeError(f"expected f32, not {array.dtype}")
    values = np.empty(array.shape, np.float16)
    narrow_to_f16(np.ascontiguousarray(array).ravel(), values.ravel().view(np.int16))
    return values


def widen(array: Array, element: FloatElement) -> Array:
    """Return an array of the element's bits or values in its compute dtype. Exact. A NaN of f16 becomes quiet."""
    if element.name == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if element.name == "f16":
        return f32_of_f16(array)
    return array.astype(COMPUTE_DTYPES[element.name], copy=False)


def narrowed(values: Array, element: FloatElement) -> Array:
    """Return values of a compute dtype as an array of the element, rounded once (RNE). Overflow gives infinity."""
    with np.errstate(all="ignore"):
        if element.name == "bf16":
            return values.astype(ml_dtypes.bfloat16).view(np.uint16)
        if element.name == "f16" and values.dtype == np.float32:
            return f16_of_f32(values)
        return values.astype(element.tensor_dtype, copy=False)


def rounded(values: Array, element: FloatElement) -> Array:
    """Round f64 values to the element (RNE, once) and return them in its compute dtype. Overflow gives infinity."""
    with np.errstate(all="ignore"):
        if element.name == "bf16":
            # What is beyond f32 is infinity in both; `round_to_format` itself takes no overflow.
            bounded = np.clip(values, -_PAST_F32, _PAST_F32)
            return np.array([round_to_format(value, element) for value in bounded.tolist()], np.float32)
        narrowed = values.astype(np.float16 if element.name == "f16" else COMPUTE_DTYPES[element.name])
    return narrowed.astype(COMPUTE_DTYPES[element.name])
