"""StableHLO's attributes: enums in `#stablehlo<...>`, dimension numbers of products and convolutions, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.ir import Attribute, Data, OpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from requant.mlir.lexer import body_end


class _Word(Data[str], OpaqueSyntaxAttribute):
    """`#stablehlo<kind WORD>`: one of `words`."""

    name: ClassVar[str]
    words: ClassVar[tuple[str, ...]]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        return cls.parse_word(parser)

    @classmethod
    def parse_word(cls, parser: AttrParser) -> str:
        """Take one of the words, which stands bare in operations' own syntax."""
        position = parser.pos
        word = parser.parse_identifier()
        if word not in cls.words:
            parser.raise_error(f"expected one of {', '.join(cls.words)}", position)
        return word

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f" {self.data}")


@irdl_attr_definition
class ComparisonDirection(_Word):
    """`LT` and its kind."""

    name = "stablehlo.comparison_direction"
    words = ("EQ", "NE", "GE", "GT", "LE", "LT")


@irdl_attr_definition
class ComparisonType(_Word):
    """What is compared: floats by value or in total order, signed or unsigned integers."""

    name = "stablehlo.comparison_type"
    words = ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")


@irdl_attr_definition
class Precision(_Word):
    """The requested precision of a product. It says nothing about integers."""

    name = "stablehlo.precision"
    words = ("DEFAULT", "HIGH", "HIGHEST")


@irdl_attr_definition
class Transpose(_Word):
    """Which matrix triangular_solve takes."""

    name = "stablehlo.transpose"
    words = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


class _Raw(Data[str]):
    """An attribute that stays text: of operations that are passed through, and not computed."""

    name: ClassVar[str]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        start, text = parser.pos, parser.lexer.input.content
        if text[start : start + 1] != "<":
            parser.raise_error("expected `<`", start)
        end = body_end(text, start)
        parser._resume_from(end)
        return text[start:end]

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(self.data)


@irdl_attr_definition
class Gather(_Raw):
    """`#stablehlo.gather<...>`."""

    name = "stablehlo.gather"


@irdl_attr_definition
class Scatter(_Raw):
    """`#stablehlo.scatter<...>`."""

    name = "stablehlo.scatter"


@dataclass(frozen=True)
class DotDimensions:
    """The dimensions of dot_general: batching ones of both sides, and contracting ones."""

    lhs_batching_dimensions: tuple[int, ...] = ()
    rhs_batching_dimensions: tuple[int, ...] = ()
    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()


_DOT_FIELDS = (
    "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions",
)  # fmt: skip


def parse_integers(parser: AttrParser) -> tuple[int, ...]:
    """Take `[1, 2]`."""
    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))


@irdl_attr_definition
class Dot(Data[DotDimensions]):
    """`#stablehlo.dot<lhs_contracting_dimensions = [1], ...>`."""

    name = "stablehlo.dot"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> DotDimensions:
        dimensions: dict[str, tuple[int, ...]] = {}

        def entry() -> None:
            position = parser.pos
            key = parser.parse_identifier()
            if key not in _DOT_FIELDS or key in dimensions:
                parser.raise_error(f"expected each of {', '.join(_DOT_FIELDS)} at most once", position)
            parser.parse_punctuation("=")
            dimensions[key] = parse_integers(parser)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry)
        return DotDimensions(**dimensions)

    def print_parameter(self, printer: Printer) -> None:
        texts = (f"{key} = {list(getattr(self.data, key))}" for key in _DOT_FIELDS if getattr(self.data, key))
        printer.print_string(f"<{', '.join(texts)}>")


@dataclass(frozen=True)
class Layout:
    """Where the dimensions of one tensor of a convolution are: two named ones, and the spatial ones in their order."""

    first: int
    second: int
    spatial: tuple[int, ...]

    def text(self, letters: str) -> str:
        """Return the layout as `[b, 0, 1, f]`."""
        words = [""] * (2 + len(self.spatial))
        words[self.first], words[self.second] = letters[0], letters[1]
        for index, place in enumerate(self.spatial):
            words[place] = str(index)
        return f"[{', '.join(words)}]"


@dataclass(frozen=True)
class ConvolutionDimensions:
    """The layouts of a convolution's input (b, f), kernel (i, o) and output (b, f)."""

    input: Layout
    kernel: Layout
    output: Layout
    texts: tuple[str, str, str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        texts = (self.input.text("bf"), self.kernel.text("io"), self.output.text("bf"))
        object.__setattr__(self, "texts", texts)

    def __str__(self) -> str:
        return f"{self.texts[0]}x{self.texts[1]}->{self.texts[2]}"


def parse_convolution_dimensions(parser: AttrParser) -> ConvolutionDimensions:
    """Take `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""
    first = _parse_layout(parser, "bf")
    # The `x` may be the start of a longer word only where the text is wrong.
    parser.parse_characters("x")
    second = _parse_layout(parser, "io")
    parser.parse_punctuation("->")
    return ConvolutionDimensions(first, second, _parse_layout(parser, "bf"))


def _parse_layout(parser: AttrParser, letters: str) -> Layout:
    position = parser.pos

    def word() -> str:
        identifier = parser.parse_optional_identifier()
        return str(parser.parse_integer()) if identifier is None else identifier

    words: Sequence[str] = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, word)
    expected = [*letters, *map(str, range(len(words) - 2))]
    if sorted(words) != sorted(expected):
        parser.raise_error(
            f"expected {letters[0]}, {letters[1]} and the spatial dimensions from 0, each once", position
        )
    places = {word: index for index, word in enumerate(words)}
    spatial = tuple(places[str(index)] for index in range(len(words) - 2))
    return Layout(places[letters[0]], places[letters[1]], spatial)


@irdl_attr_definition
class Convolution(Data[ConvolutionDimensions]):
    """`#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`."""

    name = "stablehlo.conv"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> ConvolutionDimensions:
        with parser.in_angle_brackets():
            return parse_convolution_dimensions(parser)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


ATTRIBUTES: list[type[Attribute]] = [
    ComparisonDirection,
    ComparisonType,
    Precision,
    Transpose,
    Gather,
    Scatter,
    Dot,
    Convolution,
]
