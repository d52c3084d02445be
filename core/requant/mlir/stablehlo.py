"""StableHLO's constraints on element types, as its implementation enforces them on operands.

The numbers C3 to C13 are those of the StableHLO specification for quantized element types. What its implementation
asks of other tensors (ranked; signless or unsigned integers; floats of at most 64 bits) was checked with jaxlib 0.10.2.
"""

from __future__ import annotations

from requant.formats.elements import FloatElement, IndexElement, IntegerElement, Signedness
from requant.mlir.fit import fit_fault
from requant.mlir.types import (
    AnyType,
    BlockScaledType,
    CalibratedType,
    ElementType,
    QuantileType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformSubChannelType,
    UniformType,
)

STORAGE_WIDTHS = (2, 4, 8, 16, 32)
_INTEGER_WIDTHS = (2, 4, 8, 16, 32, 64)
_OTHER_FLOATS = frozenset({"tf32", "f80", "f128"})


def stablehlo_reason(type_: Type) -> str | None:
    """Return why StableHLO does not take `type_`, or None. A type outside a tensor is judged as an element type."""
    if isinstance(type_, TupleType):
        return next((reason for member in type_.members if (reason := stablehlo_reason(member))), None)
    if isinstance(type_, TensorType):
        if type_.shape is None:
            return "tensors are ranked in StableHLO"
        return _element_reason(type_.element) or fit_fault(type_)
    return _element_reason(type_)


def _element_reason(element: ElementType) -> str | None:
    match element:
        case IntegerElement():
            return _integer_reason(element)
        case FloatElement(name=name):
            return f"{name} is not a float type of StableHLO" if name in _OTHER_FLOATS else None
        case IndexElement():
            return "index is not an element type of StableHLO"
        case UniformType(storage=storage, zero_point=zero_point):
            return _storage_reason(storage) or _zero_point_reason(storage, (zero_point,))
        case UniformPerAxisType(storage=storage, zero_points=zero_points):
            return _storage_reason(storage) or _zero_point_reason(storage, zero_points)
        case UniformSubChannelType():
            return "sub-channel types are not in StableHLO"
        case BlockScaledType():
            return "block-scaled types are TOSA's"
        case AnyType() | CalibratedType() | QuantileType():
            return "quantized types are per-tensor or per-axis uniform in StableHLO"


def _integer_reason(element: IntegerElement) -> str | None:
    if element.signedness is Signedness.SIGNED:
        return f"{element.name}: signed integers are written without sign in StableHLO, i{element.width}"
    if element.width in _INTEGER_WIDTHS or element == IntegerElement(1):
        return None
    return f"{element.name}: integers have {', '.join(map(str, _INTEGER_WIDTHS))} bits in StableHLO, or are i1"


def _storage_reason(storage: StorageType) -> str | None:
    element = storage.element
    if not isinstance(element, IntegerElement):
        stored = element.name if isinstance(element, FloatElement) else "a quantile"
        return f"the storage type is {stored}; StableHLO stores integers"
    if element.signedness is Signedness.SIGNED:
        return f"the storage type {element.name} is refused by StableHLO's operations; write i{element.width}"
    if element.width not in STORAGE_WIDTHS:
        return f"storage of {element.width} bits; StableHLO has {', '.join(map(str, STORAGE_WIDTHS))}"
    return None


def _zero_point_reason(storage: StorageType, zero_points: tuple[int, ...]) -> str | None:
    low, high = storage.minimum, storage.maximum
    outside = next((value for value in zero_points if not low <= value <= high), None)
    return None if outside is None else f"zero point {outside} is outside the storage bounds {low} to {high} (C7)"
