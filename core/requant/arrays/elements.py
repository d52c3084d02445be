"""numpy arrays as the flat tensors of `core`, and back.

`core` keeps bf16 and small floats as their bit patterns in unsigned integers; here they are arrays of ml_dtypes.
Integers of other widths than 8, 16, 32 or 64 bits are kept one to an integer of the next wider dtype.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from requant.errors import TensorDataError, TypeFitError, UnsupportedError, excerpt
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.mlir.types import ElementType, TensorType, UniformQuantizedType
from requant.plan.operands import element_name
from requant.plan.plan import check_within

Array = NDArray[Any]

_NUMPY_FLOATS = {np.dtype(np.float16): "f16", np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_SMALL_FLOATS = {
    np.dtype(dtype): name
    for dtype, name in (
        (ml_dtypes.bfloat16, "bf16"),
        (ml_dtypes.float8_e5m2, "f8E5M2"),
        (ml_dtypes.float8_e4m3, "f8E4M3"),
        (ml_dtypes.float8_e4m3fn, "f8E4M3FN"),
        (ml_dtypes.float8_e5m2fnuz, "f8E5M2FNUZ"),
        (ml_dtypes.float8_e4m3fnuz, "f8E4M3FNUZ"),
        (ml_dtypes.float8_e4m3b11fnuz, "f8E4M3B11FNUZ"),
        (ml_dtypes.float8_e3m4, "f8E3M4"),
        (ml_dtypes.float8_e8m0fnu, "f8E8M0FNU"),
        (ml_dtypes.float6_e2m3fn, "f6E2M3FN"),
        (ml_dtypes.float6_e3m2fn, "f6E3M2FN"),
        (ml_dtypes.float4_e2m1fn, "f4E2M1FN"),
    )
}
_DTYPES = {name: dtype for dtype, name in _SMALL_FLOATS.items()}
# Integers of ml_dtypes, which numpy holds one to a byte.
_SMALL_INTEGERS = {
    np.dtype(dtype): (width, signed)
    for dtype, width, signed in (
        (ml_dtypes.int2, 2, True),
        (ml_dtypes.uint2, 2, False),
        (ml_dtypes.int4, 4, True),
        (ml_dtypes.uint4, 4, False),
    )
}


def as_array(values: ArrayLike) -> Array:
    """Return an array in native byte order. Floats that are not in an array yet, as in a list, become f32.

    Raise TensorDataError for lists whose rows have not one length.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise TensorDataError(f"the numbers are no array: {excerpt(str(error))}") from None
    if not hasattr(values, "dtype") and array.dtype == np.float64:
        array = array.astype(np.float32)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_stored(values: ArrayLike, *, typed: bool) -> Array:
    """Return an array of stored numbers. `typed`: whether their type is given, which an empty list does not have.

    Raise TensorDataError for an empty list without a type.
    """
    array = as_array(values)
    if array.size or hasattr(values, "dtype"):
        return array
    if not typed:
        raise TensorDataError("an empty list has no type of numbers: give an array, or the type of its numbers")
    # Numbers in lists may be of any type that holds them, and so may none.
    return array.astype(np.uint8)


def element_of(dtype: np.dtype[Any]) -> ElementType:
    """Return the element type of an array of a dtype. Raise UnsupportedError for one that has none."""
    if name := _NUMPY_FLOATS.get(dtype) or _SMALL_FLOATS.get(dtype):
        return FLOATS[name]
    if dtype in _SMALL_INTEGERS:
        width, signed = _SMALL_INTEGERS[dtype]
    elif dtype.kind in "iu":
        width, signed = 8 * dtype.itemsize, dtype.kind == "i"
    else:
        raise UnsupportedError(f"arrays of {dtype} are not supported; expected integers, floats or a type of ml_dtypes")
    return IntegerElement(width, Signedness.SIGNLESS if signed else Signedness.UNSIGNED)


def numpy_dtype(element: FloatElement) -> np.dtype[Any]:
    """Return the dtype of arrays of a float type."""
    return _DTYPES.get(element.name) or element.tensor_dtype


def flat_bits(array: Array, dtype: np.dtype[Any], element: ElementType, name: str) -> Array:
    """Return the elements of an array, flat and contiguous, in the dtype in which `core` keeps `element`.

    Integers may be of any dtype that holds them. Small floats may be unsigned integers, their bit patterns. Raise
    TypeFitError for other floats than those of the type, TensorDataError for an integer that `dtype` does not hold.
    """
    stored = element_name(element)
    own_element = _NUMPY_FLOATS.get(array.dtype) or _SMALL_FLOATS.get(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if own_element is not None:
        if own_element != stored:
            raise TypeFitError(
                f"{name} is an array of {array.dtype} ({own_element}), and its type has elements of {stored}"
            )
        return flat.view(dtype) if array.dtype in _SMALL_FLOATS else flat
    if array.dtype in _SMALL_INTEGERS:
        flat = flat.astype(np.int8 if _SMALL_INTEGERS[array.dtype][1] else np.uint8)
    if flat.dtype == dtype:
        return flat
    if flat.dtype.kind not in "iu" or dtype.kind not in "iu":
        raise TensorDataError(f"{name} is an array of {array.dtype}; its type has elements of {stored}")
    bounds = np.iinfo(dtype)
    check_within(flat, int(bounds.min), int(bounds.max))
    return flat.astype(dtype)


def shaped(flat: Array, type_: TensorType, shape: tuple[int, ...]) -> Array:
    """Return the flat elements of a tensor as an array of its shape, small floats and bf16 as those of ml_dtypes."""
    element = type_.element
    stored = element.storage.element if isinstance(element, UniformQuantizedType) else element
    if isinstance(stored, FloatElement) and stored.name in _DTYPES:
        flat = flat.view(_DTYPES[stored.name])
    return flat.reshape(shape)
