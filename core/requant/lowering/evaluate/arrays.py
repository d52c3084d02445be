"""Elements as arrays: integers in the narrowest of numpy's, i1 as bool, bf16 as ml_dtypes has it, others native."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant import mlir
from requant.errors import UnsupportedError
from requant.formats.elements import FloatElement, IndexElement, IntegerElement, integer_dtype

Array = NDArray[Any]

_FLOATS: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


def dtype_of(element: mlir.ElementType) -> np.dtype[Any]:
    """Return how elements are held while a module runs. Raises UnsupportedError for types without arithmetic here."""
    if isinstance(element, IntegerElement) and element.width <= 64:
        if element.width == 1:
            return np.dtype(np.bool_)
        held: np.dtype[Any] = element.dtype
        return held
    if isinstance(element, IndexElement):
        return np.dtype(np.int64)
    if isinstance(element, FloatElement) and element.name in _FLOATS:
        return _FLOATS[element.name]
    if isinstance(element, mlir.UniformType | mlir.UniformPerAxisType | mlir.UniformSubChannelType):
        storage = element.storage
        if isinstance(storage.element, IntegerElement):
            return integer_dtype(storage.width, signed=storage.signed)
    raise UnsupportedError("modules are evaluated on integers to 64 bits, f16, bf16, f32, f64 and integer storage")


def refuse_growth(operands: Sequence[Array]) -> None:
    """Raise ValueError where operands of dynamic shapes would be spread over one larger than each of them."""
    sizes = [operand.size for operand in operands]
    if prod(np.broadcast_shapes(*(operand.shape for operand in operands))) != max(sizes, default=1):
        raise ValueError("the operands differ in shape")


def is_float(array: Array) -> bool:
    """Return whether elements are floats."""
    return array.dtype.kind == "f" or array.dtype == _FLOATS["bf16"]


def wrapped(array: Array, element: mlir.ElementType) -> Array:
    """Return integers as their lowest bits: those that the element type holds, in its own container."""
    if not isinstance(element, IntegerElement):
        return array.astype(dtype_of(element))
    if element.width == 1:
        return (array.astype(np.int64) & 1).astype(np.bool_)
    found = array.astype(element.dtype)
    spare = 8 * element.dtype.itemsize - element.width
    return ((found << spare) >> spare) if spare else found


def to_integer(values: Array, element: IntegerElement) -> Array:
    """Convert floats as StableHLO's interpreter does: truncate toward zero, saturate, NaN gives 0."""
    wide = values.astype(np.float64)
    whole = np.trunc(np.where(np.isnan(wide), 0.0, wide))
    inside = np.clip(whole, -(2.0**63), 2.0**63 - 1024)
    found = np.clip(inside.astype(np.int64), element.minimum, min(element.maximum, 2**63 - 1))
    found = np.where(whole >= 2.0**63, min(element.maximum, 2**63 - 1), found)
    return found.astype(dtype_of(element))


def poison_index(values: Array, element: IntegerElement) -> int | None:
    """Return the index of the first float that MLIR's conversions to `element` do not define, None if there is none."""
    wide = np.trunc(values.astype(np.float64).reshape(-1))
    with np.errstate(invalid="ignore"):
        wrong = ~((wide >= float(element.minimum)) & (wide < float(element.maximum) + 1.0))
    found = np.flatnonzero(wrong)
    return int(found[0]) if found.size else None
