"""The division of a tensor's last axis into blocks."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import TensorDataError, TypeFitError, UnsupportedError

Array = NDArray[Any]


def block_count(shape: tuple[int, ...], block: int, format_name: str) -> int:
    """Return how many blocks of `block` elements along the last axis a tensor of `shape` has.

    Raises TypeFitError if the tensor has no axis, or if its last axis is not a multiple of the block.
    """
    if not shape:
        raise TypeFitError(f"{format_name} has blocks of {block} along the last axis; a scalar has no axis")
    if shape[-1] % block:
        raise TypeFitError(
            f"{format_name} has blocks of {block} along the last axis, and {shape[-1]} is not a multiple of {block}"
        )
    return prod(shape) // block


def flat_f32(values: Array, format_name: str) -> Array:
    """Return `values` in row-major order, or raise UnsupportedError if they are not f32."""
    if values.dtype != np.float32:
        raise UnsupportedError(f"{format_name} is quantized from f32; this is {values.dtype}")
    return np.ascontiguousarray(values).reshape(-1)


def check_length(data: Array, expected: int, what: str) -> None:
    """Raise TensorDataError if a flat array of codes does not have the length of the shape."""
    if data.shape != (expected,):
        raise TensorDataError(f"the {what} have the shape {data.shape}; this tensor has {expected} of them")
