"""The syntax of `stablehlo.convolution`, and its window with everything that may be left out filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i1, i64
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer

from requant.lowering.constants import Dense, dense
from requant.lowering.dialects.stablehlo.attributes import (
    Convolution,
    ConvolutionDimensions,
    parse_convolution_dimensions,
    parse_integers,
)
from requant.lowering.dialects.stablehlo.format import (
    Format,
    Parts,
    integers,
    parse_attributes,
    parse_operands,
    parse_types,
    print_attributes,
    print_function_type,
)

_NAMES = {
    "stride": "window_strides", "pad": "padding", "lhs_dilate": "lhs_dilation", "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}  # fmt: skip


def padding_attribute(pairs: Sequence[Sequence[int]]) -> Dense:
    """Return the attribute for paddings before and after each spatial dimension."""
    return dense(i64, [len(pairs), 2], [size for pair in pairs for size in pair])


@dataclass(frozen=True)
class Window:
    """How a kernel moves over the spatial dimensions; one entry for each."""

    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    reversal: tuple[bool, ...]
    feature_groups: int
    batch_groups: int
    dimensions: ConvolutionDimensions


def window_of(op: Operation) -> Window:
    """Return the window of a `stablehlo.convolution`."""
    numbers = op.attributes["dimension_numbers"]
    assert isinstance(numbers, Convolution)
    rank = len(numbers.data.input.spatial)
    ones, found = (1,) * rank, op.attributes.get
    flat = integers(found("padding")) or (0,) * (2 * rank)
    return Window(
        strides=integers(found("window_strides")) or ones,
        padding=tuple(zip(flat[::2], flat[1::2], strict=True)),
        lhs_dilation=integers(found("lhs_dilation")) or ones,
        rhs_dilation=integers(found("rhs_dilation")) or ones,
        reversal=tuple(bool(each) for each in integers(found("window_reversal"))) or (False,) * rank,
        feature_groups=_integer(found("feature_group_count")),
        batch_groups=_integer(found("batch_group_count")),
        dimensions=numbers.data,
    )


def _integer(value: Attribute | None) -> int:
    return value.value.data if isinstance(value, IntegerAttr) else 1


class ConvolutionFormat(Format):
    """`(%x, %w) dim_numbers = ..., window = {stride = [1, 1], pad = [[0, 0], [0, 0]]} {...} : (T, U) -> V`."""

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        with parser.in_parens():
            operands = parse_operands(parser)
        parser.parse_keyword("dim_numbers")
        parser.parse_punctuation("=")
        attributes: dict[str, Attribute] = {"dimension_numbers": Convolution(parse_convolution_dimensions(parser))}
        parser.parse_punctuation(",")
        parser.parse_keyword("window")
        parser.parse_punctuation("=")
        parser.parse_comma_separated_list(parser.Delimiter.BRACES, lambda: self._entry(parser, attributes))
        attributes |= parse_attributes(parser)
        parts = parse_types(parser, operands, position)
        parts.attributes = attributes
        return parts

    @staticmethod
    def _entry(parser: Parser, attributes: dict[str, Attribute]) -> None:
        key = parser.parse_identifier()
        if key not in _NAMES or _NAMES[key] in attributes:
            parser.raise_error(f"expected each of {', '.join(_NAMES)} at most once")
        parser.parse_punctuation("=")
        if key == "pad":
            position = parser.pos
            pairs = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_integers(parser))
            if any(len(pair) != 2 for pair in pairs):
                parser.raise_error("expected pairs of paddings", position)
            attributes["padding"] = padding_attribute(pairs)
        elif key == "reverse":
            flags = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_boolean)
            attributes["window_reversal"] = DenseArrayBase.from_list(i1, [int(flag) for flag in flags])
        else:
            attributes[_NAMES[key]] = DenseArrayBase.from_list(i64, parse_integers(parser))

    def print(self, printer: Printer, op: Operation) -> None:
        numbers = op.attributes["dimension_numbers"]
        assert isinstance(numbers, Convolution)
        printer.print_string("(")
        printer.print_list(op.operands, printer.print_operand)
        shown = []
        for key, name in _NAMES.items():
            values = integers(op.attributes.get(name))
            if not values:
                continue
            if key == "pad":
                pairs = [list(pair) for pair in zip(values[::2], values[1::2], strict=True)]
                shown.append(f"pad = {pairs}")
            elif key == "reverse":
                shown.append(f"reverse = [{', '.join('true' if value else 'false' for value in values)}]")
            else:
                shown.append(f"{key} = {list(values)}")
        printer.print_string(f") dim_numbers = {numbers.data}, window = {{{', '.join(shown)}}}")
        print_attributes(printer, op, ("dimension_numbers", *_NAMES.values()))
        print_function_type(printer, op)
