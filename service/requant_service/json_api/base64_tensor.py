"""Tensors as base64 text: standard alphabet, padding, row-major little-endian bytes.

pybase64 does the work because it releases the GIL; the standard library would freeze the event loop even from a thread.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pybase64
from numpy.typing import NDArray

from requant.errors import Base64Error, TensorDataError

# The last three characters when the bits that padding leaves over are 0, as encoders leave them (RFC 4648 section 3.5).
_CANONICAL_END = re.compile(r"[^=]{3}|[^=][AEIMQUYcgkosw048]=|[AQgw]==")
# How much of a text is looked at to say what is wrong with it: more than the first line of those that have lines.
_LOOKED_AT = 1024
_NOT_BASE64 = "the data are not standard base64 with padding (RFC 4648 section 4)"


def decode(text: str | memoryview, dtype: np.dtype[Any], elements: int | None) -> NDArray[Any]:
    """Return the `elements` values of `dtype` that `text` holds, or as many as it has. Memory is taken for the text,
    not for a promise.
    """
    try:
        data = pybase64.b64decode_as_bytearray(text, validate=True)
    except ValueError as error:
        raise Base64Error(_NOT_BASE64 + _reason(text)) from error
    if elements is None:
        elements = len(data) // dtype.itemsize
    expected = elements * dtype.itemsize
    if len(data) != expected:
        _refuse(len(data), expected, elements, dtype)
    end = text[-3:] if isinstance(text, str) else str(text[-3:], "ascii")
    if end and not _CANONICAL_END.fullmatch(end):
        raise Base64Error("the last character of the data has bits that belong to no byte; an encoder leaves them 0")
    return np.frombuffer(data, dtype)


def encode(array: NDArray[Any]) -> bytes:
    """Return the bytes of a contiguous array as base64 text."""
    encoded: bytes = pybase64.b64encode(array.view(np.uint8).data)
    return encoded


def _reason(text: str | memoryview) -> str:
    """Say what is probably wrong with a text, by its beginning and its length."""
    start = text[:_LOOKED_AT] if isinstance(text, str) else str(text[:_LOOKED_AT], "latin-1")
    if start.startswith("data:"):
        return ": it is a data URL; send only the part after the comma"
    if "-" in start or "_" in start:
        return ": - and _ are of the URL-safe alphabet; the standard one has + and / in their places"
    if any(blank in start for blank in ("\n", "\r", " ", "\\")):
        return ": it has white space or line breaks, which `base64 -w0` leaves out"
    if len(text) % 4:
        return f": it has {len(text)} characters, which is not a multiple of 4; pad it with ="
    return ""


def _refuse(actual: int, expected: int, elements: int, dtype: np.dtype[Any]) -> None:
    raise TensorDataError(
        f"the data has {actual} bytes; the type has {elements} elements of {dtype.itemsize} bytes, which is {expected}"
    )
