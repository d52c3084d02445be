"""Which types the quant dialect's three operations take: `qcast`, `dcast` and `scast`.

Every function returns the reason against, or None when the operation takes the types.
"""

from __future__ import annotations

from enum import StrEnum

from requant.formats.elements import FloatElement, IntegerElement, Signedness
from requant.mlir.fit import fit_fault
from requant.mlir.printer import print_type
from requant.mlir.types import (
    AnyType,
    CalibratedType,
    TensorType,
    Type,
    UniformQuantizedType,
)


class Cast(StrEnum):
    """The operations: float to quantized, quantized to float, and between quantized and its storage."""

    QCAST = "quant.qcast"
    DCAST = "quant.dcast"
    SCAST = "quant.scast"


_STORED = UniformQuantizedType | AnyType
_QUANTIZED = _STORED | CalibratedType


def cast_reason(cast: Cast, operand: Type, result: Type) -> str | None:
    """Return why `cast` does not take `operand` to `result`, or None when it does."""
    match cast:
        case Cast.QCAST:
            return _float_cast_reason(operand, result)
        case Cast.DCAST:
            return _float_cast_reason(result, operand)
        case Cast.SCAST:
            return _storage_cast_reason(operand, result)


def qcast_reason(quantized: Type) -> str | None:
    """Return why no `quant.qcast` gives `quantized`, or None when one does, from a float of the same shape."""
    element = _element(quantized)
    if not isinstance(element, _QUANTIZED):
        return f"not a quantized type: {_named(element)}"
    if element.expressed is None:
        return "the type has no expressed type, so it equals no float type"
    return fit_fault(quantized)


def dcast_reason(quantized: Type) -> str | None:
    """Return why no `quant.dcast` takes `quantized`, or None when one does. The rules are those of `qcast`."""
    return qcast_reason(quantized)


def scast_reason(quantized: Type) -> str | None:
    """Return why no `quant.scast` takes or gives `quantized`, or None when one does."""
    element = _element(quantized)
    if not isinstance(element, _QUANTIZED):
        return f"not a quantized type: {_named(element)}"
    if not isinstance(element, _STORED):
        return "a calibrated type has no storage type"
    storage = element.storage.element
    if not isinstance(storage, IntegerElement) or storage.signedness is not Signedness.SIGNLESS:
        return f"the storage type {print_type(storage)} is not a signless integer (`iN` or `uN`)"
    return fit_fault(quantized)


def _float_cast_reason(real: Type, quantized: Type) -> str | None:
    real_element, element = _element(real), _element(quantized)
    if not isinstance(real_element, FloatElement):
        return f"the float side is not a float or a tensor of floats: {_named(real_element)}"
    if not isinstance(element, _QUANTIZED):
        return f"the quantized side is not quantized: {_named(element)}"
    if reason := _shape_reason(real, quantized):
        return reason
    if element.expressed != real_element:
        expressed = "missing" if element.expressed is None else element.expressed.name
        return f"the expressed type ({expressed}) is not the float type ({real_element.name})"
    return fit_fault(quantized)


def _storage_cast_reason(operand: Type, result: Type) -> str | None:
    sides = [operand, result]
    quantized_sides = [side for side in sides if isinstance(_element(side), _QUANTIZED)]
    if len(quantized_sides) != 1:
        return f"exactly one side is quantized and the other integer; here {len(quantized_sides)} are quantized"
    quantized = quantized_sides[0]
    integer_side = result if quantized is operand else operand
    integer = _element(integer_side)
    if not isinstance(integer, IntegerElement) or integer.signedness is not Signedness.SIGNLESS:
        return f"the integer side is not a signless integer or a tensor of them: {_named(integer)}"
    if reason := _shape_reason(operand, result):
        return reason
    if reason := scast_reason(quantized):
        return reason
    element = _element(quantized)
    assert isinstance(element, _STORED)
    if element.storage.element != integer:
        return f"the storage type {print_type(element.storage.element)} is not the integer type {integer.name}"
    return None


def _shape_reason(left: Type, right: Type) -> str | None:
    shapes = [_shape_of(side) for side in (left, right)]
    if shapes[0] == shapes[1]:
        return None
    return f"the sides differ in shape: {shapes[0]} and {shapes[1]}; `?` equals only `?`"


def _shape_of(container: Type) -> str:
    if not isinstance(container, TensorType):
        return "a scalar"
    if container.shape is None:
        return "an unranked tensor"
    return f"[{', '.join('?' if dimension is None else str(dimension) for dimension in container.shape)}]"


def _element(container: Type) -> Type:
    return container.element if isinstance(container, TensorType) else container


def _named(type_: Type) -> str:
    """Return a short name: the text of a quantized type may be a megabyte."""
    if isinstance(type_, IntegerElement | FloatElement):
        return type_.name
    return {
        "QuantileType": "a bare quantile",
        "TupleType": "a tuple",
        "IndexElement": "index",
        "BlockScaledType": "a block-scaled type",
    }.get(type(type_).__name__, "a quantized type")
