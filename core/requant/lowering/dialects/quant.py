"""The quant dialect's operations: `quant.qcast`, `quant.dcast`, `quant.scast` (https://mlir.llvm.org/docs/Dialects/QuantDialect)."""

from __future__ import annotations

from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from requant.lowering.quantized import AnyQuantized, Calibrated, Quantile, Uniform, type_of
from requant.mlir.casts import Cast, cast_reason


class CastOperation(IRDLOperation):
    """One operand and one result; what they may be is asked of `requant.mlir.casts`."""

    input = operand_def()
    result = result_def()
    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"
    traits = traits_def(Pure())

    def __init__(self, value: SSAValue, result: Attribute) -> None:
        super().__init__(operands=[value], result_types=[result])

    def verify_(self) -> None:
        if reason := cast_reason(Cast(self.name), type_of(self.input.type), type_of(self.result.type)):
            raise VerifyException(reason)


@irdl_op_definition
class QuantizeCast(CastOperation):
    """`quant.qcast`: floats to quantized."""

    name = "quant.qcast"


@irdl_op_definition
class DequantizeCast(CastOperation):
    """`quant.dcast`: quantized to floats."""

    name = "quant.dcast"


@irdl_op_definition
class StorageCast(CastOperation):
    """`quant.scast`: quantized to its storage type or back, the bits unchanged."""

    name = "quant.scast"


Quant = Dialect("quant", [QuantizeCast, DequantizeCast, StorageCast], [Uniform, AnyQuantized, Calibrated, Quantile])
