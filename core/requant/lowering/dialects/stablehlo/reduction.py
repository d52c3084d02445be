"""The syntax of `stablehlo.reduce`: one operation applied across dimensions, or a reducer of its own."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from requant.lowering.dialects.stablehlo.attributes import parse_integers
from requant.lowering.dialects.stablehlo.format import (
    Format,
    Parts,
    integers,
    parse_attributes,
    print_attributes,
    print_function_type,
)
from requant.lowering.quantized import element_part


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
