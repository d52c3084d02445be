"""Canonical text: what the newest MLIR prints for a type, to the letter; docs/types.md lists where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from requant.errors.cancellation import checked
from requant.formats.elements import FloatElement, IndexElement, IntegerElement, Signedness
from requant.mlir.float_text import float_text, scale_text
from requant.mlir.types import (
    AnyType,
    CalibratedType,
    QuantileType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)


def print_type(type_: Type) -> str:
    """Return the canonical text of `type_`, which `parse_type` reads back to an equal type.

    Sub-channel scales that MLIR writes in a form that it does not read back are written as decimals instead.
    """
    match type_:
        case IntegerElement() | FloatElement() | IndexElement():
            return type_.name
        case AnyType(storage=storage, expressed=expressed):
            return f"!quant.any<{print_storage(storage)}{'' if expressed is None else ':' + expressed.name}>"
        case UniformType(scale=scale, zero_point=zero_point):
            return f"{_uniform(type_)}, {_parameter(float_text(scale), zero_point)}>"
        case UniformPerAxisType(axis=axis, scales=scales, zero_points=zero_points):
            pairs = zip(_texts(scales, float_text), zero_points, strict=True)
            parameters = ",".join([_parameter(scale, zero_point) for scale, zero_point in pairs])
            return f"{_uniform(type_)}:{axis}, {{{parameters}}}>"
        case UniformSubChannelType(blocks=blocks):
            pairs_text = ", ".join(f"{axis}:{size}" for axis, size in blocks)
            return f"{_uniform(type_)}:{{{pairs_text}}}, {_nested(type_)}>"
        case CalibratedType(expressed=expressed, minimum=minimum, maximum=maximum):
            return f"!quant.calibrated<{expressed.name}<{float_text(minimum)}:{float_text(maximum)}>>"
        case QuantileType():
            return _quantile(type_)
        case TensorType(element=element):
            return print_tensor(type_, print_type(element))
        case TupleType(members=members):
            return print_tuple([print_type(member) for member in members])


def print_tensor(type_: TensorType, element: str) -> str:
    """Return the text of a tensor whose element type has the text `element`."""
    suffix = "" if type_.encoding is None else f", {type_.encoding}"
    return f"tensor<{_shape(type_.shape)}{element}{suffix}>"


def print_tuple(members: list[str]) -> str:
    """Return the text of a tuple whose members have these texts."""
    return f"tuple<{', '.join(members)}>"


def _uniform(type_: UniformQuantizedType) -> str:
    return f"!quant.uniform<{print_storage(type_.storage)}:{type_.expressed.name}"


def print_storage(storage: StorageType) -> str:
    """Return the text of a storage: its element, and its bounds where they are not the default ones."""
    element = storage.element
    if isinstance(element, QuantileType):
        name = _quantile(element)
    elif isinstance(element, IntegerElement) and element.signedness is Signedness.SIGNLESS and not storage.signed:
        name = f"u{element.width}"
    else:
        name = element.name
    bounds = (storage.minimum, storage.maximum)
    return name if bounds == storage.default_bounds else f"{name}<{bounds[0]}:{bounds[1]}>"


def _quantile(type_: QuantileType) -> str:
    table = ",".join(_texts(type_.table, float_text))
    bounds = "" if type_.minimum is None else f", <{type_.minimum}:{type_.maximum}>"
    return f"!quant.quantile<{type_.storage.name}:{type_.value.name}, {{{table}}}{bounds}>"


def _texts(values: tuple[float, ...], text: Callable[[float], str]) -> list[str]:
    """Return the text of each value. Equal ones are made once, but for zeros, which are equal with either sign."""
    texts = {value: text(value) for value in checked(set(values)) if value}
    return [texts[value] if value else text(value) for value in values]


def _parameter(scale: str, zero_point: int) -> str:
    return f"{scale}:{zero_point}" if zero_point else scale


def _nested(type_: UniformSubChannelType) -> str:
    """Return the parameters in braces nested as `scale_shape`. Zero points are printed as signed, as MLIR does."""
    half, period = 1 << (type_.storage.width - 1), 1 << type_.storage.width
    texts = _texts(type_.scales, lambda scale: scale_text(scale, type_.expressed))
    items = [
        _parameter(text, zero_point - period if zero_point >= half else zero_point)
        for text, zero_point in zip(texts, type_.zero_points, strict=True)
    ]
    for size in reversed(type_.scale_shape):
        items = [f"{{{', '.join(group)}}}" for group in _groups(items, size)]
    return items[0]


def _groups(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _shape(shape: tuple[int | None, ...] | None) -> str:
    if shape is None:
        return "*x"
    return "".join("?x" if dimension is None else f"{dimension}x" for dimension in shape)
