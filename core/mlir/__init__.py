"""The type language of MLIR: `parse_type` and `parse_storage` read texts, `print_type` and `print_storage` write them."""

from __future__ import annotations

from core.mlir.parser import parse_storage, parse_type
from core.mlir.printer import print_storage, print_type
from core.mlir.types import (
    AnyType,
    CalibratedType,
    ElementType,
    QuantileType,
    QuantizedType,
    StorageElement,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)

__all__ = [
    "AnyType",
    "CalibratedType",
    "ElementType",
    "QuantileType",
    "QuantizedType",
    "StorageElement",
    "StorageType",
    "TensorType",
    "TupleType",
    "Type",
    "UniformPerAxisType",
    "UniformQuantizedType",
    "UniformSubChannelType",
    "UniformType",
    "parse_storage",
    "parse_type",
    "print_storage",
    "print_type",
]
