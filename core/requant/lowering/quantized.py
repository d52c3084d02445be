"""The quant dialect's types inside xDSL, each of which wraps a type of `requant.mlir`, and constants of modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast, get_args

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    TensorType,
    UnrankedTensorType,
)
from xdsl.dialects.builtin import Signedness as XdslSignedness
from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from requant import mlir
from requant.errors import UnsupportedError
from requant.formats.elements import FLOATS, Element, FloatElement, IndexElement, IntegerElement, Signedness
from requant.mlir.lexer import TokenStream
from requant.mlir.parser import read_quantized

Dense = DenseIntOrFPElementsAttr[Any]


def dense(element: Attribute, shape: Sequence[int], values: Sequence[float]) -> Dense:
    """Return a tensor of constants in row-major order; a single value is the value of every element."""
    type_ = TensorType(cast(Any, element), shape)
    return DenseIntOrFPElementsAttr.from_list(type_, cast(Any, list(values)))


def scalar_float(value: float, element: Attribute) -> FloatAttr[Any]:
    """Return a float of the type `element`."""
    return FloatAttr(value, cast(Any, element))


def scalar_integer(value: int, element: IntegerType) -> IntegerAttr[IntegerType]:
    """Return an integer: the lowest bits of `value`."""
    return IntegerAttr(truncated(value, element.width.data), element)


def truncated(value: int, width: int) -> int:
    """Return the lowest `width` bits of `value` as a signed integer."""
    half = 1 << (width - 1)
    return (value + half) % (2 * half) - half


_SIGNEDNESS = {
    XdslSignedness.SIGNLESS: Signedness.SIGNLESS,
    XdslSignedness.SIGNED: Signedness.SIGNED,
    XdslSignedness.UNSIGNED: Signedness.UNSIGNED,
}
_XDSL_SIGNEDNESS = {ours: theirs for theirs, ours in _SIGNEDNESS.items()}


class QuantizedAttribute(Data[mlir.QuantizedType], TypeAttribute):
    """A type of the quant dialect. `data` is the type of `requant.mlir`."""

    name: ClassVar[str]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> mlir.QuantizedType:
        """Hand the text from the `!` on to the type language's own parser. Raises TypeTextError."""
        text = parser.lexer.input.content
        stream = TokenStream(text)
        start = text.rfind("!quant", 0, parser.pos)
        short = text.startswith(f"!{cls.name}", start)
        stream.rewind(start)
        type_ = read_quantized(stream)
        assert not isinstance(type_, mlir.BlockScaledType)
        # In the long spelling `!quant<uniform<...>>` xDSL takes the last bracket.
        parser._resume_from(stream.previous_end - (0 if short else 1))
        return type_

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(mlir.print_type(self.data).removeprefix(f"!{self.name}"))


@irdl_attr_definition
class Uniform(QuantizedAttribute):
    """`!quant.uniform<...>`: per tensor, per axis or sub-channel."""

    name = "quant.uniform"


@irdl_attr_definition
class AnyQuantized(QuantizedAttribute):
    """`!quant.any<...>`."""

    name = "quant.any"


@irdl_attr_definition
class Calibrated(QuantizedAttribute):
    """`!quant.calibrated<...>`."""

    name = "quant.calibrated"


@irdl_attr_definition
class Quantile(QuantizedAttribute):
    """`!quant.quantile<...>`."""

    name = "quant.quantile"


def _wrapped(type_: mlir.QuantizedType) -> QuantizedAttribute:
    match type_:
        case mlir.AnyType():
            return AnyQuantized(type_)
        case mlir.CalibratedType():
            return Calibrated(type_)
        case mlir.QuantileType():
            return Quantile(type_)
        case _:
            return Uniform(type_)


def element_attribute(element: mlir.ElementType) -> Attribute:
    """Return the attribute of xDSL for an element type."""
    match element:
        case IntegerElement(width=width, signedness=signedness):
            return IntegerType(width, _XDSL_SIGNEDNESS[signedness])
        case FloatElement(name=name):
            return _float_attribute(name)
        case IndexElement():
            return IndexType()
        case mlir.BlockScaledType():
            raise UnsupportedError("modules have no block-scaled types here")
        case _:
            return _wrapped(element)


def _float_attribute(name: str) -> Attribute:
    for kind in get_args(AnyFloat):
        if kind.name == name:
            attribute: Attribute = kind()
            return attribute
    raise UnsupportedError(f"there is no {name} in modules")


def element_of(attribute: Attribute) -> mlir.ElementType:
    """Return the element type that an attribute stands for, or raise UnsupportedError."""
    if isinstance(attribute, QuantizedAttribute):
        return attribute.data
    if isinstance(attribute, IntegerType):
        return IntegerElement(attribute.width.data, _SIGNEDNESS[attribute.signedness.data])
    if isinstance(attribute, IndexType):
        return IndexElement()
    if isinstance(attribute, AnyFloat) and attribute.name in FLOATS:
        return FLOATS[attribute.name]
    raise UnsupportedError(f"a type `{attribute.name}` is not supported here")


def type_of(attribute: Attribute) -> mlir.ElementType | mlir.TensorType:
    """Return the type of `requant.mlir` for a type of xDSL: a tensor or an element type. Raises UnsupportedError."""
    if isinstance(attribute, UnrankedTensorType):
        return mlir.TensorType(None, element_of(attribute.element_type))
    if isinstance(attribute, TensorType):
        shape = tuple(None if size == DYNAMIC_INDEX else size for size in attribute.get_shape())
        encoding = None if isinstance(attribute.encoding, NoneAttr) else str(attribute.encoding)
        return mlir.TensorType(shape, element_of(attribute.element_type), encoding)
    return element_of(attribute)


def element_part(attribute: Attribute) -> Attribute:
    """Return the element type of a tensor, or a scalar's type itself."""
    return attribute.element_type if isinstance(attribute, TensorType | UnrankedTensorType) else attribute


def with_element(attribute: Attribute, element: Attribute) -> Attribute:
    """Return the type of the same shape with another element type; a scalar becomes the element type."""
    if isinstance(attribute, UnrankedTensorType):
        return UnrankedTensorType(element)
    if isinstance(attribute, TensorType):
        return TensorType(element, attribute.shape, attribute.encoding)
    return element


def quantized_part(attribute: Attribute) -> mlir.QuantizedType | None:
    """Return the quantized element type in a type, None if there is none."""
    element = element_part(attribute)
    return element.data if isinstance(element, QuantizedAttribute) else None


def storage_attribute(type_: mlir.QuantizedType) -> Attribute:
    """Return the type in which a quantized type is stored: `i8` for `i8` and `u8`, `ui8` for `ui8`."""
    if isinstance(type_, mlir.AnyType | mlir.UniformQuantizedType):
        element: Element | mlir.QuantizedType = type_.storage.element
        return element_attribute(element)
    raise UnsupportedError("a calibrated or quantile type has no storage type")


def storage_type(attribute: Attribute) -> Attribute:
    """Return a type with its quantized element replaced by the storage type; others stay."""
    quantized = quantized_part(attribute)
    return attribute if quantized is None else with_element(attribute, storage_attribute(quantized))
