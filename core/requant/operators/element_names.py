"""Element types as descriptions name them, and the dtypes of their arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness, integer_dtype
from requant.mlir.printer import print_type
from requant.mlir.types import ElementType, UniformQuantizedType

QUANTIZED = "quantized"


def type_key(element: ElementType) -> str:
    """Return what descriptions call an element type: its name, or "quantized" for every uniform type."""
    return QUANTIZED if isinstance(element, UniformQuantizedType) else print_type(element)


def container(element: ElementType) -> np.dtype[Any] | None:
    """Return the dtype of elements of a type, None for a type that no operator has tensors of."""
    if isinstance(element, UniformQuantizedType):
        storage = element.storage
        if isinstance(storage.element, IntegerElement) and 1 <= storage.width <= 32:
            return integer_dtype(storage.width, signed=storage.signed)
        return storage.element.dtype if isinstance(storage.element, FloatElement) else None
    if isinstance(element, IntegerElement) and 1 <= element.width <= 64:
        return element.dtype
    return element.dtype if isinstance(element, FloatElement) else None


def element_named(name: str) -> IntegerElement | FloatElement:
    """Return the element type of a name that is not QUANTIZED."""
    if name in FLOATS:
        return FLOATS[name]
    unsigned = name.startswith("ui")
    return IntegerElement(int(name.lstrip("ui")), Signedness.UNSIGNED if unsigned else Signedness.SIGNLESS)
