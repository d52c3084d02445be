"""Integers of any width between memory and vectors of int64."""

from __future__ import annotations

import numpy as np

from core.kernels._jit import Array, Number, device
from core.kernels.vector_memory import load_as, store_as
from core.kernels.vectors import convert


@device
def load_integers(source: Array, index: Number, valid: Number, size: int, signed: bool) -> Number:
    """Sixteen integers of `size` bytes from an array of bytes. Those of eight bytes are signed."""
    if size == 1:
        if signed:
            return convert(load_as(source, index, valid, np.int8), np.int64)
        return convert(load_as(source, index, valid, np.uint8), np.int64)
    if size == 2:
        if signed:
            return convert(load_as(source, index, valid, np.int16), np.int64)
        return convert(load_as(source, index, valid, np.uint16), np.int64)
    if size == 4:
        if signed:
            return convert(load_as(source, index, valid, np.int32), np.int64)
        return convert(load_as(source, index, valid, np.uint32), np.int64)
    return load_as(source, index, valid, np.int64)


@device
def store_integers(target: Array, index: Number, stored: Number, valid: Number, size: int) -> None:
    """The lowest `size` bytes, up to four, of the integers in `valid` to an array of bytes."""
    if size == 1:
        store_as(target, index, stored, valid, np.int8)
    elif size == 2:
        store_as(target, index, stored, valid, np.int16)
    else:
        store_as(target, index, stored, valid, np.int32)
