"""The type language of MLIR: `parse_type` reads a text, `print_type` writes the canonical one; storages likewise."""

from __future__ import annotations

from requant.mlir.parser import parse_storage, parse_type
from requant.mlir.printer import print_storage, print_type
from requant.mlir.types import (
    AnyType,
    BlockScaledType,
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
    "BlockScaledType",
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
