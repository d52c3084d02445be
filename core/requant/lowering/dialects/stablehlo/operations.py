"""The operations of StableHLO by name: a class each, made from a table of what differs between them.

Products, `stablehlo.reduce` and `stablehlo.convolution` have a syntax of their own. CHLO has the broadcasting
operations that StableHLO's lowering of quantized operations emits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, TensorType, i1, i64
from xdsl.ir import Attribute, Block, Dialect, Operation, Region
from xdsl.irdl import IRDLOperation, irdl_op_definition, traits_def, var_operand_def, var_region_def, var_result_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure

from requant.lowering.dialects.stablehlo.attributes import (
    Convolution,
    ConvolutionDimensions,
    Dot,
    DotDimensions,
    Precision,
    parse_convolution_dimensions,
    parse_integers,
)
from requant.lowering.dialects.stablehlo.formats import (
    Compare,
    Constant,
    Format,
    Keyed,
    Parts,
    ReducePrecision,
    Select,
    Slice,
    Typed,
    WithTypes,
    integers,
    parse_attributes,
    parse_operands,
    parse_types,
    print_attributes,
    print_function_type,
    print_operands,
)
from requant.lowering.dialects.stablehlo.verifier import BINARY, UNARY, verify
from requant.lowering.quantized import Dense, dense, element_part


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


class ReduceFormat(Format):
    """`(%x init: %c) applies stablehlo.add across dimensions = [1] : (T, U) -> V`, or with `reducer(...) {...}`."""

    def parse(self, parser: Parser) -> Parts:
        position = parser.pos
        values: list[UnresolvedOperand] = []
        initial: list[UnresolvedOperand] = []

        def pair() -> None:
            with parser.in_parens():
                values.append(parser.parse_unresolved_operand())
                parser.parse_keyword("init")
                parser.parse_punctuation(":")
                initial.append(parser.parse_unresolved_operand())

        parser.parse_comma_separated_list(parser.Delimiter.NONE, pair)
        applied = None
        if parser.parse_optional_keyword("applies") is not None:
            name_position = parser.pos
            applied = parser.ctx.get_optional_op(parser.parse_identifier())
            if applied is None or len(values) != 1:
                parser.raise_error("expected an operation that reduces one tensor", name_position)
        parser.parse_keyword("across")
        parser.parse_keyword("dimensions")
        parser.parse_punctuation("=")
        attributes: dict[str, Attribute] = {"dimensions": DenseArrayBase.from_list(i64, parse_integers(parser))}
        attributes |= parse_attributes(parser)
        parser.parse_punctuation(":")
        types = parser.parse_function_type()
        operands = parser.resolve_operands([*values, *initial], types.inputs.data, position)
        if applied is not None:
            region = reducer(element_part(types.inputs.data[0]), applied, parser.ctx.get_op("stablehlo.return"))
        else:
            parser.parse_keyword("reducer")
            region = parser.parse_region(self._arguments(parser))
        return Parts(operands, types.outputs.data, attributes, [region])

    @staticmethod
    def _arguments(parser: Parser) -> list[Parser.Argument]:
        arguments: list[Parser.Argument] = []
        while parser.parse_optional_punctuation("(") is not None:
            arguments.append(parser.parse_argument())
            parser.parse_punctuation(",")
            arguments.append(parser.parse_argument())
            parser.parse_punctuation(")")
        # Pairs are written by tensor; the block has the values of all tensors before the accumulated ones.
        return [*arguments[::2], *arguments[1::2]]

    def print(self, printer: Printer, op: Operation) -> None:
        half = len(op.operands) // 2
        for index in range(half):
            printer.print_string(", (" if index else "(")
            printer.print_operand(op.operands[index])
            printer.print_string(" init: ")
            printer.print_operand(op.operands[half + index])
            printer.print_string(")")
        applied = applied_operation(op)
        if applied is not None:
            printer.print_string(f" applies {applied.name}")
        printer.print_string(f" across dimensions = {list(integers(op.attributes['dimensions']))}")
        print_attributes(printer, op, ("dimensions",))
        print_function_type(printer, op)
        if applied is None:
            block = op.regions[0].block
            printer.print_string(" reducer")
            for index in range(half):
                printer.print_string("(")
                printer.print_block_argument(block.args[index])
                printer.print_string(", ")
                printer.print_block_argument(block.args[half + index])
                printer.print_string(")")
            printer.print_string(" ")
            printer.print_region(op.regions[0], print_entry_block_args=False)


def reducer(element: Attribute, applied: type[Operation], terminator: type[Operation]) -> Region:
    """Return the region that combines two scalars with one operation and returns the result by `terminator`."""
    scalar = TensorType(element, [])
    block = Block(arg_types=[scalar, scalar])
    combined = applied.create(operands=list(block.args), result_types=[scalar])
    block.add_ops([combined, terminator.create(operands=[combined.results[0]])])
    return Region(block)


def applied_operation(op: Operation) -> Operation | None:
    """Return the one operation of a reducer that combines its two arguments in their order, or None."""
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        return None
    block = op.regions[0].block
    ops = list(block.ops)
    if len(ops) != 2 or len(block.args) != 2 or ops[1].name != "stablehlo.return":
        return None
    plain = len(ops[0].results) == 1 and tuple(ops[0].operands) == tuple(block.args) and not ops[0].attributes
    return ops[0] if plain and tuple(ops[1].operands) == tuple(ops[0].results) else None


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
    ones, attribute = (1,) * rank, op.attributes.get
    flat = integers(attribute("padding")) or (0,) * (2 * rank)
    return Window(
        strides=integers(attribute("window_strides")) or ones,
        padding=tuple(zip(flat[::2], flat[1::2], strict=True)),
        lhs_dilation=integers(attribute("lhs_dilation")) or ones,
        rhs_dilation=integers(attribute("rhs_dilation")) or ones,
        reversal=tuple(bool(each) for each in integers(attribute("window_reversal"))) or (False,) * rank,
        feature_groups=_integer(attribute("feature_group_count")),
        batch_groups=_integer(attribute("batch_group_count")),
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


_TYPED = Typed()
_DIMS = Keyed({"dims": "broadcast_dimensions"})
_FORMATS: dict[str, Format] = {
    **dict.fromkeys((*UNARY, *BINARY, "clamp", "convert", "uniform_quantize", "uniform_dequantize"), _TYPED),
    **dict.fromkeys(("bitcast_convert", "reshape", "is_finite", "dynamic_reshape"), Typed(short=False)),
    "constant": Constant(),
    "compare": Compare(),
    "select": Select(),
    "broadcast_in_dim": _DIMS,
    "dynamic_broadcast_in_dim": _DIMS,
    "transpose": Keyed({"dims": "permutation"}),
    "concatenate": Keyed({"dim": "dimension"}),
    "get_dimension_size": Keyed({"dim": "dimension"}),
    "reverse": Keyed({"dims": "dimensions"}, short=True),
    "iota": Keyed({"dim": "iota_dimension"}, short=True),
    "pad": Keyed({"low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding"}),
    "dynamic_slice": Keyed({"sizes": "slice_sizes"}),
    "slice": Slice(),
    "dot_general": DotGeneral(),
    "dot": Product(),
    "convolution": ConvolutionFormat(),
    "reduce": ReduceFormat(),
    "reduce_precision": ReducePrecision(),
    "optimization_barrier": WithTypes(results=True),
    "return": WithTypes(results=False),
}
# Carried through and printed; with quantized types most passes refuse them.
_GENERIC = (
    "all_gather", "all_reduce", "all_to_all", "after_all", "batch_norm_grad", "batch_norm_inference",
    "batch_norm_training", "case", "cholesky", "collective_permute", "composite", "custom_call", "dynamic_conv",
    "dynamic_gather", "dynamic_pad", "dynamic_update_slice", "fft", "gather", "get_tuple_element", "if", "map",
    "reduce_scatter", "reduce_window", "rng", "rng_bit_generator", "scatter", "select_and_scatter",
    "set_dimension_size", "sort", "triangular_solve", "tuple", "while",
)  # fmt: skip


# The syntax of each operation that has one, by its full name.
FORMS: dict[str, Format] = {f"stablehlo.{name}": form for name, form in _FORMATS.items()}


class StableHloOperation(IRDLOperation):
    """Base of StableHLO's operations: any operands, results and regions; `verify` knows what each of them takes."""

    arguments = var_operand_def()
    outputs = var_result_def()
    bodies = var_region_def()

    def verify_(self) -> None:
        verify(self)


class FormattedOperation(StableHloOperation):
    """An operation with a syntax of its own."""

    @classmethod
    def parse(cls, parser: Parser) -> FormattedOperation:
        parts = FORMS[cls.name].parse(parser)
        return cls.create(
            operands=parts.operands, result_types=parts.results, attributes=parts.attributes, regions=parts.regions
        )

    def print(self, printer: Printer) -> None:
        FORMS[self.name].print(printer, self)


def _operation(name: str) -> type[StableHloOperation]:
    traits = traits_def(IsTerminator()) if name == "return" else traits_def(Pure())
    members = {"__module__": __name__, "name": f"stablehlo.{name}", "traits": traits, "__doc__": f"`stablehlo.{name}`."}
    base = FormattedOperation if f"stablehlo.{name}" in FORMS else StableHloOperation
    return cast(
        type[StableHloOperation],
        irdl_op_definition(type(f"{name.title().replace('_', '')}Operation", (base,), members)),
    )


OPERATIONS: dict[str, type[StableHloOperation]] = {name: _operation(name) for name in (*_FORMATS, *_GENERIC)}


BROADCASTING = ("add", "subtract", "multiply", "divide")


def _chlo_operation(name: str) -> type[FormattedOperation]:
    members = {
        "__module__": __name__,
        "__doc__": f"`chlo.broadcast_{name}`: {name} after broadcasting.",
        "name": f"chlo.broadcast_{name}",
        "traits": traits_def(Pure()),
    }
    FORMS[f"chlo.broadcast_{name}"] = Typed(short=False)
    operation: type[FormattedOperation] = irdl_op_definition(
        type(f"Broadcast{name.title()}", (FormattedOperation,), members)
    )
    return operation


CHLO_OPERATIONS = {name: _chlo_operation(name) for name in BROADCASTING}
Chlo = Dialect("chlo", list(CHLO_OPERATIONS.values()))
