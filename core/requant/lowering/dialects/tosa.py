"""`tosa.const` and `tosa.rescale`, in the syntax of TOSA 1.0 (xDSL's own are of another)."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import BoolAttr, DenseIntOrFPElementsAttr, TensorType
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from requant.lowering.quantized import element_part, storage_type

FLAGS = ("scale32", "per_channel", "input_unsigned", "output_unsigned")


class RoundingMode(StrEnum):
    """The rounding modes of RESCALE."""

    SINGLE_ROUND = "SINGLE_ROUND"
    INEXACT_ROUND = "INEXACT_ROUND"
    DOUBLE_ROUND = "DOUBLE_ROUND"


@irdl_attr_definition
class RoundingModeAttribute(EnumAttribute[RoundingMode]):
    """`#tosa.rounding_mode<SINGLE_ROUND>`."""

    name = "tosa.rounding_mode"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> RoundingMode:
        with parser.in_angle_brackets():
            return parser.parse_str_enum(RoundingMode)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data.value}>")


@irdl_op_definition
class Const(IRDLOperation):
    """`tosa.const`: a tensor."""

    name = "tosa.const"

    values = prop_def(DenseIntOrFPElementsAttr)
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, values: DenseIntOrFPElementsAttr[Any]) -> None:
        super().__init__(properties={"values": values}, result_types=[values.type])

    @classmethod
    def parse(cls, parser: Parser) -> Const:
        parser.parse_keyword("values")
        with parser.in_parens():
            values = parser.parse_attribute()
        parser.parse_punctuation(":")
        position = parser.pos
        types = parser.parse_function_type()
        if not isinstance(values, DenseIntOrFPElementsAttr) or types.outputs.data != (values.type,):
            parser.raise_error("tosa.const has one result, of the type of its values", position)
        return cls(values)

    def print(self, printer: Printer) -> None:
        printer.print_string(" values(")
        printer.print_attribute(self.values)
        printer.print_string(") : ")
        printer.print_operation_type(self)

    def verify_(self) -> None:
        if self.values.type != self.output.type:
            raise VerifyException(f"values of type {self.values.type} for a result of type {self.output.type}")


@irdl_op_definition
class Rescale(IRDLOperation):
    """`tosa.rescale`: see `requant.operators.tosa.rescale_plan` for the arithmetic and the operands."""

    name = "tosa.rescale"

    input = operand_def(TensorType)
    multiplier = operand_def(TensorType)
    shift = operand_def(TensorType)
    input_zp = operand_def(TensorType)
    output_zp = operand_def(TensorType)
    scale32 = prop_def(BoolAttr)
    rounding_mode = prop_def(RoundingModeAttribute)
    per_channel = prop_def(BoolAttr)
    input_unsigned = prop_def(BoolAttr)
    output_unsigned = prop_def(BoolAttr)
    output = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(
        self, operands: tuple[SSAValue, ...], output: Attribute, properties: dict[str, Attribute] | None = None
    ) -> None:
        """Make the operation; without `properties` the one that StableHLO's pass emits: scale32 and single round."""
        if properties is None:
            flags: dict[str, Attribute] = {flag: BoolAttr.from_bool(flag == "scale32") for flag in FLAGS}
            properties = {**flags, "rounding_mode": RoundingModeAttribute(RoundingMode.SINGLE_ROUND)}
        super().__init__(operands=list(operands), result_types=[output], properties=properties)

    def verify_(self) -> None:
        source, target = self.input.type, self.output.type
        assert isinstance(source, TensorType)
        assert isinstance(target, TensorType)
        if source.get_shape() != target.get_shape():
            raise VerifyException("input and output differ in shape")
        for name, zero_point, side in (("input_zp", self.input_zp, source), ("output_zp", self.output_zp, target)):
            if element_part(zero_point.type) != element_part(storage_type(side)):
                raise VerifyException(f"{name} must have the element type of its operand")

    @classmethod
    def parse(cls, parser: Parser) -> Rescale:
        position = parser.pos
        operands = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
        properties: dict[str, Attribute] = {}
        while (name := parser.parse_optional_identifier()) is not None:
            if name == "rounding_mode":
                properties[name] = RoundingModeAttribute(RoundingModeAttribute.parse_parameter(parser))
            elif name in FLAGS:
                with parser.in_parens():
                    properties[name] = BoolAttr.from_bool(parser.parse_boolean())
            else:
                parser.raise_error(f"tosa.rescale has no attribute {name}")
        parser.parse_punctuation(":")
        types = parser.parse_function_type()
        if len(operands) != 5 or len(types.outputs.data) != 1:
            parser.raise_error("tosa.rescale has five operands and one result", position)
        values = parser.resolve_operands(operands, types.inputs.data, position)
        return cls(tuple(values), types.outputs.data[0], properties)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_operand)
        printer.print_string(f" scale32({_word(self.scale32)}) rounding_mode<{self.rounding_mode.data.value}>")
        for name in FLAGS[1:]:
            printer.print_string(f" {name}({_word(self.properties[name])})")
        printer.print_string(" : ")
        printer.print_operation_type(self)


def _word(flag: Attribute) -> str:
    return "true" if flag == BoolAttr.from_bool(True) else "false"


Tosa = Dialect("tosa", [Const, Rescale], [RoundingModeAttribute])
