"""The syntax of StableHLO's operations, one class for each form. Operations without one are written generically."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import DenseArrayBase, DenseIntOrFPElementsAttr, IntegerAttr, StringAttr, i32, i64
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from requant.lowering.dialects.stablehlo.attributes import ComparisonDirection, ComparisonType, parse_integers


@dataclass
class Parts:
    """What an operation is made of."""

    operands: Sequence[SSAValue]
    results: Sequence[Attribute]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    regions: Sequence[Region] = ()


class Format(ABC):
    """How one operation is read after its name, and written."""

    @abstractmethod
    def parse(self, parser: Parser) -> Parts: ...

    @abstractmethod
    def print(self, printer: Printer, op: Operation) -> None: ...


def parse_operands(parser: Parser) -> list[UnresolvedOperand]:
    return (
        parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        or []
    )


def parse_attributes(parser: Parser) -> dict[str, Attribute]:
    """Take the attributes in either place that they may have, `<{...}>` and `{...}`."""
    return {**parser.parse_optional_properties_dict(), **parser.parse_optional_attr_dict()}


def parse_types(parser: Parser, operands: Sequence[UnresolvedOperand], position: int) -> Parts:
    """Take `:` and a function type, or one type for every operand and the result."""
    parser.parse_punctuation(":")
    types = parser.parse_optional_function_type()
    if types is None:
        single = parser.parse_type()
        inputs: Sequence[Attribute] = [single] * len(operands)
        outputs: Sequence[Attribute] = [single]
    else:
        inputs, outputs = types.inputs.data, types.outputs.data
    return Parts(parser.resolve_operands(operands, inputs, position), outputs)


def print_operands(printer: Printer, op: Operation) -> None:
    if op.operands:
        printer.print_string(" ")
        printer.print_list(op.operands, printer.print_operand)


def print_attributes(printer: Printer, op: Operation, shown: Sequence[str] = ()) -> None:
    """Write the attributes but for those that the syntax shows already."""
    printer.print_op_attributes({key: value for key, value in op.attributes.items() if key not in shown})


def print_function_type(printer: Printer, op: Operation) -> None:
    printer.print_string(" : ")
    printer.print_operation_type(op)


def integers(value: Attribute | None) -> tuple[int, ...]:
    """Return the integers of a dense array or of dense elements; none of nothing."""
    if isinstance(value, DenseArrayBase | DenseIntOrFPElementsAttr):
        return tuple(int(each) for each in value.get_values())
    return ()


class Typed(Format):
    """`%a, %b : (T, U) -> V`, or `%a, %b : T` where all types are one."""

    def __init__(self, *, short: bool = True) -> None:
        self._short = short

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        operands = parse_operands(parser)
        attributes = parse_attributes(parser)
        parts = parse_types(parser, operands, position)
        parts.attributes = attributes
        return parts

    def print(self, printer: Printer, op: Operation) -> None:
        print_operands(printer, op)
        print_attributes(printer, op)
        types = {*op.operand_types, *op.result_types}
        if self._short and len(types) == 1 and len(op.results) == 1:
            printer.print_string(" : ")
            printer.print_attribute(types.pop())
        else:
            print_function_type(printer, op)


class Constant(Format):
    """`dense<...> : T`; with a quantized result `() <{value = dense<...>}> : () -> T`."""

    def parse(self, parser: Parser) -> Parts:
        if parser.parse_optional_punctuation("(") is not None:
            parser.parse_punctuation(")")
            attributes = parse_attributes(parser)
            parser.parse_punctuation(":")
            return Parts((), parser.parse_function_type().outputs.data, attributes)
        attributes = parse_attributes(parser)
        position = parser.pos
        value = parser.parse_attribute()
        if not isinstance(value, DenseIntOrFPElementsAttr):
            parser.raise_error("expected dense elements", position)
        return Parts((), [value.type], {**attributes, "value": value})

    def print(self, printer: Printer, op: Operation) -> None:
        value = op.attributes["value"]
        if isinstance(value, DenseIntOrFPElementsAttr) and value.type == op.result_types[0]:
            print_attributes(printer, op, ("value",))
            printer.print_string(" ")
            printer.print_attribute(value)
        else:
            printer.print_string("()")
            print_attributes(printer, op)
            print_function_type(printer, op)


class WithTypes(Format):
    """`%a, %b : T, U`: the types of operands that are the types of the results too, or of no result."""

    def __init__(self, *, results: bool) -> None:
        self._results = results

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        operands = parse_operands(parser)
        attributes = parse_attributes(parser)
        types: Sequence[Attribute] = ()
        if operands:
            parser.parse_punctuation(":")
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        values = parser.resolve_operands(operands, types, position)
        return Parts(values, types if self._results else (), attributes)

    def print(self, printer: Printer, op: Operation) -> None:
        print_operands(printer, op)
        print_attributes(printer, op)
        if op.operands:
            printer.print_string(" : ")
            printer.print_list(op.operand_types, printer.print_attribute)


class Select(Typed):
    """`%p, %a, %b : P, T`, or with a function type."""

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        operands = parse_operands(parser)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        types = parser.parse_optional_function_type()
        if types is None:
            predicate = parser.parse_type()
            parser.parse_punctuation(",")
            chosen = parser.parse_type()
            values = parser.resolve_operands(operands, [predicate, chosen, chosen], position)
            return Parts(values, [chosen], attributes)
        return Parts(parser.resolve_operands(operands, types.inputs.data, position), types.outputs.data, attributes)

    def print(self, printer: Printer, op: Operation) -> None:
        predicate, *chosen = op.operand_types
        if {*chosen, *op.result_types} != {chosen[0]}:
            return super().print(printer, op)
        print_operands(printer, op)
        print_attributes(printer, op)
        printer.print_string(" : ")
        printer.print_list([predicate, chosen[0]], printer.print_attribute)
        return None


class Compare(Format):
    """`LT, %a, %b, FLOAT : (T, T) -> U`."""

    def parse(self, parser: Parser) -> Parts:
        attributes: dict[str, Attribute] = {}
        direction = ComparisonDirection(ComparisonDirection.parse_word(parser))
        parser.parse_punctuation(",")
        position = parser.pos
        operands = [parser.parse_unresolved_operand()]
        parser.parse_punctuation(",")
        operands.append(parser.parse_unresolved_operand())
        if parser.parse_optional_punctuation(",") is not None:
            attributes["compare_type"] = ComparisonType(ComparisonType.parse_word(parser))
        attributes |= {"comparison_direction": direction, **parse_attributes(parser)}
        parts = parse_types(parser, operands, position)
        parts.attributes = attributes
        return parts

    def print(self, printer: Printer, op: Operation) -> None:
        direction, kind = op.attributes.get("comparison_direction"), op.attributes.get("compare_type")
        assert isinstance(direction, ComparisonDirection)
        printer.print_string(f" {direction.data},")
        print_operands(printer, op)
        if isinstance(kind, ComparisonType):
            printer.print_string(f", {kind.data}")
        print_attributes(printer, op, ("comparison_direction", "compare_type"))
        print_function_type(printer, op)


@dataclass
class Keyed(Format):
    """`%a, %b, dims = [0, 1] : (T) -> U`: attributes by key, each a list of integers or one. `keys` maps to names."""

    keys: dict[str, str]
    short: bool = False

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        operands: list[UnresolvedOperand] = []
        attributes: dict[str, Attribute] = {}
        while (operand := parser.parse_optional_unresolved_operand()) is not None:
            operands.append(operand)
            if parser.parse_optional_punctuation(",") is None:
                break
        while (key := parser.parse_optional_identifier()) is not None:
            if key not in self.keys:
                parser.raise_error(f"expected {' or '.join(self.keys)}")
            parser.parse_punctuation("=")
            attributes[self.keys[key]] = self._value(parser)
            if parser.parse_optional_punctuation(",") is None:
                break
        attributes |= parse_attributes(parser)
        parts = parse_types(parser, operands, position)
        parts.attributes = attributes
        return parts

    @staticmethod
    def _value(parser: Parser) -> Attribute:
        if (word := parser.parse_optional_identifier()) is not None:
            return StringAttr(word)
        value = parser.parse_optional_integer()
        return DenseArrayBase.from_list(i64, parse_integers(parser)) if value is None else IntegerAttr(value, i64)

    def print(self, printer: Printer, op: Operation) -> None:
        print_operands(printer, op)
        shown = []
        for key, name in self.keys.items():
            value = op.attributes[name]
            shown.append(f"{key} = {list(value.get_values()) if isinstance(value, DenseArrayBase) else _word(value)}")
        printer.print_string((", " if op.operands else " ") + ", ".join(shown))
        print_attributes(printer, op, tuple(self.keys.values()))
        if self.short:
            printer.print_string(" : ")
            printer.print_attribute(op.result_types[0])
        else:
            print_function_type(printer, op)


def _word(value: Attribute) -> str:
    return str(value.value.data) if isinstance(value, IntegerAttr) else str(getattr(value, "data", ""))


class Slice(Format):
    """`%x [0:2, 0:3:2] : (T) -> U`: start, limit and stride for each dimension."""

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        operand = parser.parse_unresolved_operand()
        ranges = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: self._range(parser))
        attributes = parse_attributes(parser)
        parts = parse_types(parser, [operand], position)
        columns = zip(*ranges, strict=True) if ranges else ((), (), ())
        names = ("start_indices", "limit_indices", "strides")
        for name, column in zip(names, columns, strict=True):
            attributes[name] = DenseArrayBase.from_list(i64, column)
        parts.attributes = attributes
        return parts

    @staticmethod
    def _range(parser: Parser) -> tuple[int, int, int]:
        start = parser.parse_integer()
        parser.parse_punctuation(":")
        limit = parser.parse_integer()
        return start, limit, 1 if parser.parse_optional_punctuation(":") is None else parser.parse_integer()

    def print(self, printer: Printer, op: Operation) -> None:
        names = ("start_indices", "limit_indices", "strides")
        columns = [integers(op.attributes[name]) for name in names]
        texts = (f"{a}:{b}" + (f":{c}" if c != 1 else "") for a, b, c in zip(*columns, strict=True))
        print_operands(printer, op)
        printer.print_string(f" [{', '.join(texts)}]")
        print_attributes(printer, op, names)
        print_function_type(printer, op)


class ReducePrecision(Format):
    """`%x, format = e5m2 : T`."""

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        parser.parse_keyword("format")
        parser.parse_punctuation("=")
        match = re.fullmatch(r"e([0-9]{1,3})m([0-9]{1,3})", parser.parse_identifier())
        if match is None:
            parser.raise_error("expected a format such as e5m2", position)
        attributes = parse_attributes(parser)
        parts = parse_types(parser, [operand], position)
        bits = zip(("exponent_bits", "mantissa_bits"), match.groups(), strict=True)
        parts.attributes = {**attributes, **{name: IntegerAttr(int(count), i32) for name, count in bits}}
        return parts

    def print(self, printer: Printer, op: Operation) -> None:
        bits = (op.attributes["exponent_bits"], op.attributes["mantissa_bits"])
        print_operands(printer, op)
        printer.print_string(f", format = e{_word(bits[0])}m{_word(bits[1])}")
        print_attributes(printer, op, ("exponent_bits", "mantissa_bits"))
        printer.print_string(" : ")
        printer.print_attribute(op.result_types[0])
