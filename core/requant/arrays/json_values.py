"""Tensors as JSON numbers, for small tensors and for people: exact in both directions.

JSON readers give a decimal number as the nearest binary64. Rounding that once more to a narrower float is right unless
the binary64 is a tie of the narrower type and the decimal was not: then the literal itself has to decide. The literals
are asked for only when there is a tie, and only those of ties are read: others may have any length and any exponent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.errors import TensorDataError
from requant.formats.elements import FLOATS, FloatElement
from requant.plan.float_arrays import rounded, widen

Number = int | float | str
Literals = Callable[[], Sequence[Any]]

_BF16 = FLOATS["bf16"]
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TEXTS = '"NaN", "Infinity" and "-Infinity"'


def decode_elements(
    values: Sequence[Any], element: object, dtype: np.dtype[Any], shape: Sequence[int], literals: Literals
) -> NDArray[Any]:
    """Return `values`, flat or nested as `shape`, as flat elements of a type, as they are kept.

    Those of bf16 are real numbers too, not bit patterns. `literals` gives the same lists with the texts of numbers.
    Raise TensorDataError pointing at the value or list at fault: `/3`, or `/1/0` where lists are nested.
    """
    flat = flattened(values, shape)

    def flat_literals() -> Sequence[str]:
        return flattened(literals(), shape)

    try:
        if element != _BF16:
            return decode(flat, dtype, prod(shape), flat_literals)
        return decode(flat, _BFLOAT16, prod(shape), flat_literals).view(dtype)
    except TensorDataError as error:
        if isinstance(element, FloatElement) and dtype.kind == "u":
            error.detail += f"; elements of {element.name} are sent as their codes"
        if flat is not values and error.pointer is not None:
            error.pointer = _place(int(error.pointer.removeprefix("/")), shape)
        raise


def flattened(values: Sequence[Any], shape: Sequence[int]) -> Sequence[Any]:
    """Return the elements of a flat list, which is not inspected, or of lists that are nested exactly as `shape`.

    Raise TensorDataError pointing at the first list that is not.
    """
    if not values or not isinstance(values[0], list):
        return values
    level: Sequence[Any] = [values]
    for axis, size in enumerate(shape):
        for index, members in enumerate(level):
            if not isinstance(members, list) or len(members) != size:
                actual = f"has {len(members)} members" if isinstance(members, list) else "is none"
                raise TensorDataError(
                    f"the values are neither {prod(shape)} numbers nor lists nested as the shape "
                    f"{'x'.join(map(str, shape))}: axis {axis} needs lists of {size}, and this one {actual}",
                    pointer=_place(index, shape[:axis]),
                )
        level = [member for members in level for member in members]
    return level


def _place(index: int, shape: Sequence[int]) -> str:
    """Return the JSON pointer to an element, given its index in row-major order."""
    return "".join(f"/{each}" for each in np.unravel_index(index, shape)) if shape else ""


def encode_elements(element: object, array: NDArray[Any]) -> bytes:
    """Return kept elements of a type as JSON numbers."""
    return encode(widen(array, _BF16) if element == _BF16 else array)


def decode(values: Sequence[Number], dtype: np.dtype[Any], elements: int, literals: Literals) -> NDArray[Any]:
    """Return `values` as `elements` values of `dtype`. `literals` gives the same numbers as texts."""
    if len(values) != elements:
        actual, needed = _counted(len(values), "value"), _counted(elements, "element")
        raise TensorDataError(f"there {'is' if len(values) == 1 else 'are'} {actual}; the type has {needed}")
    if dtype.kind == "f" or dtype == _BFLOAT16:
        return _floats(values, dtype, literals)
    return _integers(values, dtype)


def _integers(values: Sequence[Number], dtype: np.dtype[Any]) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    for index, value in enumerate(values):
        if type(value) is not int:
            raise _wrong(index, f"is not an integer; the element type takes {low} to {high}, without a decimal point")
        if not low <= value <= high:
            raise _wrong(index, f"is outside {low} to {high}, the range of the element type")
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
        raise _wrong(
            int(overflowed[0]), 'is too large for the element type; infinity is written as the text "Infinity"'
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
        if value not in NON_FINITE:
            raise _wrong(index, f"is a text; numbers are not quoted, and the only texts are {_TEXTS}")
        return NON_FINITE[value]
    if type(value) not in (int, float):
        raise _wrong(index, "is not a number")
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf
    if not math.isfinite(wide):
        raise _wrong(
            index, f"is not finite, or larger than any double; values that are not finite are the texts {_TEXTS}"
        )
    return wide


def _wrong(index: int, detail: str) -> TensorDataError:
    return TensorDataError(f"value {index} {detail}", pointer=f"/{index}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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
    ties: NDArray[np.intp] = candidates[tied]
    return ties


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
