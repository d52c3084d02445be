"""How operations of StableHLO are read and written: what every form is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import DenseArrayBase, DenseIntOrFPElementsAttr
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer


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
