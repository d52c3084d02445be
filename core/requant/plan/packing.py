"""Dense storage of numbers that do not fill their bytes (`packing: dense`), such as i4 or i12, and its inverse."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import TensorDataError, UnsupportedError
from requant.formats.elements import FloatElement, IntegerElement
from requant.kernels.convert import packing as kernels
from requant.mlir.types import TensorType, UniformQuantizedType

Array = NDArray[Any]

# Of these widths one number to an integer is dense already.
_WHOLE = (8, 16, 32)
_WIDEST = 64


class Packing(StrEnum):
    """How elements of widths other than 8, 16, 32 and 64 bits are stored."""

    UNPACKED = "unpacked"
    """One number to an integer of the next such width, signed ones with their sign extended."""
    DENSE = "dense"
    """Bit after bit, the lowest first: two i4 to a byte, the first in the low half; two i12 to three bytes."""


def dense_width(tensor: TensorType) -> int | None:
    """Return the bits of one number if a dense form of this tensor differs from the plain one, else None."""
    element = tensor.element
    if isinstance(element, UniformQuantizedType):
        width = element.storage.width
    elif isinstance(element, (IntegerElement, FloatElement)):
        width = element.width
    else:
        raise UnsupportedError("only numbers can be packed")
    return width if width < _WIDEST and width not in _WHOLE else None


def dense_bytes(elements: int, width: int) -> int:
    """The bytes that `elements` numbers of `width` bits take."""
    return -(-elements * width // 8)


def check_dense_bytes(found: int, elements: int, width: int) -> None:
    """Raise TensorDataError unless `found` bytes are what so many numbers take."""
    expected = dense_bytes(elements, width)
    if found != expected:
        raise TensorDataError(f"{elements} numbers of {width} bits are {expected} bytes packed; there are {found}")


def check_spare_bits(packed: Array, elements: int, width: int) -> None:
    """Raise TensorDataError if bits are set after the last number. `packed` has the bytes that the numbers take."""
    spare = packed.size * 8 - elements * width
    if spare and int(packed[-1]) >> (8 - spare):
        raise TensorDataError(f"the last {spare} bits of the packed numbers must be 0")


def pack(stored: Array, width: int) -> Array:
    """Return numbers (1-D, one to an integer) as dense bytes. Only their lowest `width` bits count."""
    packed = np.empty(dense_bytes(stored.size, width), np.uint8)
    pack_into(packed, stored, width)
    return packed


def pack_into(packed: Array, stored: Array, width: int) -> None:
    """Write what `pack` returns into `packed`, which has as many bytes."""
    check_dense_bytes(packed.size, stored.size, width)
    kernels.PACK[stored.itemsize](stored, packed, width)


def unpack(packed: Array, width: int, elements: int, dtype: np.dtype[Any]) -> Array:
    """Return `elements` numbers of `width` bits as `dtype`, which holds so many. `packed`: 1-D bytes.

    Raise TensorDataError if there are more or fewer bytes than that takes, or if bits after the last number are set.
    """
    check_dense_bytes(packed.size, elements, width)
    check_spare_bits(packed, elements, width)
    codes = np.empty(elements, dtype)
    sign = np.uint64(1 << (width - 1) if dtype.kind == "i" else 0)
    kernels.UNPACK[dtype.itemsize](packed, codes, width, sign)
    return codes
