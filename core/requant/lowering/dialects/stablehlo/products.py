"""The syntax of StableHLO's products of matrices."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    ArrayAttr,
)
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer

from requant.lowering.dialects.stablehlo.attributes import (
    Dot,
    DotDimensions,
    Precision,
    parse_integers,
)
from requant.lowering.dialects.stablehlo.format import (
    Format,
    Parts,
    parse_attributes,
    parse_types,
    print_attributes,
    print_function_type,
    print_operands,
)


class DotGeneral(Format):
    """`%a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [...] : (T, U) -> V`."""

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        operands = [parser.parse_unresolved_operand()]
        parser.parse_punctuation(",")
        operands.append(parser.parse_unresolved_operand())
        attributes: dict[str, Attribute] = {}
        dimensions: dict[str, tuple[int, ...]] = {}
        while parser.parse_optional_punctuation(",") is not None:
            key = parser.parse_identifier()
            parser.parse_punctuation("=")
            if key == "precision":
                attributes["precision_config"] = parse_precisions(parser)
                continue
            if key not in ("batching_dims", "contracting_dims"):
                parser.raise_error("expected batching_dims, contracting_dims or precision")
            kind = key.removesuffix("_dims")
            dimensions[f"lhs_{kind}_dimensions"] = parse_integers(parser)
            parser.parse_characters("x")
            dimensions[f"rhs_{kind}_dimensions"] = parse_integers(parser)
        attributes |= {"dot_dimension_numbers": Dot(DotDimensions(**dimensions)), **parse_attributes(parser)}
        parts = parse_types(parser, operands, position)
        parts.attributes = attributes
        return parts

    def print(self, printer: Printer, op: Operation) -> None:
        numbers = op.attributes["dot_dimension_numbers"]
        assert isinstance(numbers, Dot)
        dims = numbers.data
        print_operands(printer, op)
        if dims.lhs_batching_dimensions:
            batching = f"{list(dims.lhs_batching_dimensions)} x {list(dims.rhs_batching_dimensions)}"
            printer.print_string(f", batching_dims = {batching}")
        contracting = f"{list(dims.lhs_contracting_dimensions)} x {list(dims.rhs_contracting_dimensions)}"
        printer.print_string(f", contracting_dims = {contracting}")
        print_precisions(printer, op)
        print_attributes(printer, op, ("dot_dimension_numbers", "precision_config"))
        print_function_type(printer, op)


class Product(Format):
    """`stablehlo.dot`: `%a, %b, precision = [DEFAULT, DEFAULT] : (T, U) -> V`."""

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        operands = [parser.parse_unresolved_operand()]
        parser.parse_punctuation(",")
        operands.append(parser.parse_unresolved_operand())
        attributes: dict[str, Attribute] = {}
        if parser.parse_optional_punctuation(",") is not None:
            parser.parse_keyword("precision")
            parser.parse_punctuation("=")
            attributes["precision_config"] = parse_precisions(parser)
        attributes |= parse_attributes(parser)
        parts = parse_types(parser, operands, position)
        parts.attributes = attributes
        return parts

    def print(self, printer: Printer, op: Operation) -> None:
        print_operands(printer, op)
        print_precisions(printer, op)
        print_attributes(printer, op, ("precision_config",))
        print_function_type(printer, op)


def parse_precisions(parser: Parser) -> ArrayAttr[Attribute]:
    words = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: Precision.parse_word(parser))
    return ArrayAttr([Precision(word) for word in words])


def print_precisions(printer: Printer, op: Operation) -> None:
    config = op.attributes.get("precision_config")
    if isinstance(config, ArrayAttr) and config.data:
        words = ", ".join(each.data for each in config.data if isinstance(each, Precision))
        printer.print_string(f", precision = [{words}]")
