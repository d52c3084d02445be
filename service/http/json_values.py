"""Tensors as JSON numbers, for small tensors and for people: exact in both directions.

JSON readers give a decimal number as the nearest binary64. Rounding that once more to a narrower float is right unless
the binary64 is a tie of the narrower type and the decimal was not: then the literal itself has to decide. The literals
are asked for only when there is a tie, and only those of ties are read: others may have any length and any exponent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from core.errors import TensorDataError
from core.formats.elements import FLOATS
from core.plan.lanes import rounded, widen

Number = int | float | str
Literals = Callable[[], Sequence[str]]

_BF16 = FLOATS["bf16"]
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def decode_elements(
    values: Sequence[Number], element: object, dtype: np.dtype[Any], elements: int, literals: Literals
) -> NDArray[Any]:
    """Return `values` as elements of a type, as they are kept. Those of bf16 are real numbers too, not bit patterns."""
    if element != _BF16:
        return decode(values, dtype, elements, literals)
    return decode(values, _BFLOAT16, elements, literals).view(dtype)


def encode_elements(element: object, array: NDArray[Any]) -> bytes:
    """Return kept elements of a type as JSON numbers."""
    return encode(widen(array, _BF16) if element == _BF16 else array)


def decode(values: Sequence[Number], dtype: np.dtype[Any], elements: int, literals: Literals) -> NDArray[Any]:
    """Return `values` as `elements` values of `dtype`. `literals` gives the same numbers as texts."""
    if len(values) != elements:
        raise TensorDataError(f"there are {len(values)} values; the type has {elements} elements")
    if dtype.kind == "f" or dtype == _BFLOAT16:
        return _floats(values, dtype, literals)
    return _integers(values, dtype)


def _integers(values: Sequence[Number], dtype: np.dtype[Any]) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    for index, value in enumerate(values):
        if type(value) is not int:
            raise TensorDataError(f"value {index} is not an integer; the element type takes {low} to {high}")
        if not low <= value <= high:
            raise TensorDataError(f"value {index} is outside of {low} to {high}")
    return np.array(values, dtype)


def _floats(values: Sequence[Number], dtype: np.dtype[Any], literals: Literals) -> NDArray[Any]:
    wide = np.array([_wide(index, value) for index, value in enumerate(values)], np.float64)
    narrow = _narrowed(wide, dtype)
    ties = _ties(wide, narrow)
    if ties.size:
        written = literals()
        for index in ties:
            # The conversion is exact for any number of digits, and next to a tie an exponent cannot be out of bounds.
            tie, literal = float(wide[index]), Decimal(written[index])
            if literal != tie:
                # The binary64 next to the tie, on the literal's side, rounds to where the literal belongs.
                beside = np.nextafter(tie, math.inf if literal > tie else -math.inf)
                narrow[index] = _narrowed(np.asarray([beside]), dtype)[0]
    overflowed = np.flatnonzero(np.isinf(narrow) & np.isfinite(wide))
    if overflowed.size:
        raise TensorDataError(
            f'value {overflowed[0]} is too large for the element type; infinity is written as the text "Infinity"'
        )
    return narrow


def _narrowed(wide: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values rounded once to a narrower type. Overflow gives infinity."""
    if dtype == _BFLOAT16:
        # The cast of ml_dtypes goes by way of binary32 and rounds twice.
        return rounded(wide, _BF16).astype(dtype)
    with np.errstate(over="ignore", under="ignore"):
        return wide.astype(dtype)


def _wide(index: int, value: Number) -> float:
    """Return a value as the nearest binary64."""
    if isinstance(value, str):
        if value not in _NON_FINITE:
            raise TensorDataError(f"value {index} is an invalid string; expected one of {', '.join(_NON_FINITE)}")
        return _NON_FINITE[value]
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf
    if not math.isfinite(wide):
        raise TensorDataError(
            f'value {index} is out of range; write "NaN", "Infinity" or "-Infinity" for non-finite values'
        )
    return wide


def _ties(wide: NDArray[np.float64], narrow: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices of binary64 values that lie exactly between two neighbours of the narrower type."""
    if narrow.dtype.itemsize >= 8:
        return np.empty(0, np.intp)
    # What would follow the largest value if the exponent had room: the neighbour above for the purpose of rounding.
    above_largest = math.ldexp(1.0, int(ml_dtypes.finfo(narrow.dtype).maxexp))  # type: ignore[no-untyped-call]
    candidates = np.flatnonzero(np.isfinite(wide) & (narrow.astype(np.float64) != wide))
    with np.errstate(over="ignore", under="ignore"):
        near = narrow[candidates]
        towards = np.where(near.astype(np.float64) < wide[candidates], np.inf, -np.inf).astype(narrow.dtype)
        far = np.nextafter(near, towards).astype(np.float64)
    near64 = np.clip(near.astype(np.float64), -above_largest, above_largest)
    far = np.clip(far, -above_largest, above_largest)
    tied = np.abs(wide[candidates] - near64) == np.abs(far - wide[candidates])
    found: NDArray[np.intp] = candidates[tied]
    return found


def encode(array: NDArray[Any]) -> bytes:
    """Return an array as JSON numbers: integers in full, floats with the fewest digits that read back the same."""
    if array.dtype.kind == "f":
        texts = [str(value) if np.isfinite(value) else _non_finite(value) for value in array]
    else:
        texts = [str(int(value)) for value in array]
    return f"[{','.join(texts)}]".encode("ascii")


def _non_finite(value: float) -> str:
    if np.isnan(value):
        return '"NaN"'
    return '"Infinity"' if value > 0 else '"-Infinity"'
