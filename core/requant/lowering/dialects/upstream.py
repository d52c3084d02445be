"""MLIR's dialects, as far as xDSL lacks them: conversions of arith, reshapes of tensor, shape, and quant.

The quant dialect has `quant.qcast`, `quant.dcast` and `quant.scast` (https://mlir.llvm.org/docs/Dialects/QuantDialect);
shape has what `lower-quant-ops` needs for unranked tensors.
"""

from __future__ import annotations

from typing import cast

from xdsl.dialects.arith import Arith as XdslArith
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType, TensorType, UnrankedTensorType
from xdsl.dialects.tensor import Tensor as XdslTensor
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, base, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from requant.lowering.quantized import AnyQuantized, Calibrated, Quantile, Uniform, element_part, type_of, with_element
from requant.mlir.casts import Cast, cast_reason

# Whether operand and result are floats, and how their widths compare where both are of one kind.
_CONVERSIONS = {
    "fptosi": (True, False, 0),
    "fptoui": (True, False, 0),
    "sitofp": (False, True, 0),
    "uitofp": (False, True, 0),
    "extf": (True, True, 1),
    "truncf": (True, True, -1),
    "extsi": (False, False, 1),
    "extui": (False, False, 1),
    "trunci": (False, False, -1),
}


class Conversion(IRDLOperation):
    """One operand and one result of the same shape, of the kinds of elements that the name says."""

    input = operand_def()
    result = result_def()
    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"
    traits = traits_def(Pure())

    def __init__(self, value: SSAValue, result: Attribute) -> None:
        super().__init__(operands=[value], result_types=[result])

    def verify_(self) -> None:
        from_float, to_float, growth = _CONVERSIONS[self.name.removeprefix("arith.")]
        source, target = element_part(self.input.type), element_part(self.result.type)
        for element, is_float in ((source, from_float), (target, to_float)):
            if not isinstance(element, AnyFloat if is_float else IntegerType):
                raise VerifyException(f"{element} is not {'a float' if is_float else 'an integer'}")
        if with_element(self.input.type, target) != self.result.type:
            raise VerifyException("operand and result differ in shape")
        if growth and (_width(target) - _width(source)) * growth <= 0:
            raise VerifyException(f"the result must be {'wider' if growth > 0 else 'narrower'} than the operand")


def _width(element: Attribute) -> int:
    return element.width.data if isinstance(element, IntegerType) else cast(AnyFloat, element).bitwidth


def _conversion(name: str) -> type[Conversion]:
    members = {"__module__": __name__, "name": f"arith.{name}", "__doc__": f"`arith.{name}`."}
    return cast(type[Conversion], irdl_op_definition(type(name.title(), (Conversion,), members)))


CONVERSIONS = {name: _conversion(name) for name in _CONVERSIONS}


_TENSOR = base(TensorType) | base(UnrankedTensorType)


@irdl_op_definition
class Reshape(IRDLOperation):
    """`tensor.reshape`: the elements in another shape, which a tensor of sizes gives."""

    name = "tensor.reshape"

    source = operand_def(_TENSOR)
    shape = operand_def(TensorType)
    result = result_def(_TENSOR)
    assembly_format = "$source `(` $shape `)` attr-dict `:` functional-type(operands, results)"
    traits = traits_def(Pure())

    def __init__(self, source: SSAValue, shape: SSAValue, result: Attribute) -> None:
        super().__init__(operands=[source, shape], result_types=[result])

    def verify_(self) -> None:
        if element_part(self.source.type) != element_part(self.result.type):
            raise VerifyException("source and result differ in element type")


def _replaced(dialect: Dialect, *operations: type[IRDLOperation]) -> Dialect:
    """Return the dialect with some of its operations replaced by ours."""
    names = {operation.name for operation in operations}
    kept = [operation for operation in dialect.operations if operation.name not in names]
    return Dialect(dialect.name, [*kept, *operations], list(dialect.attributes))


Arith = _replaced(XdslArith, *CONVERSIONS.values())
Tensor = _replaced(XdslTensor, Reshape)


@irdl_op_definition
class ShapeOf(IRDLOperation):
    """`shape.shape_of`: the sizes of a tensor, as a tensor of indices."""

    name = "shape.shape_of"

    arg = operand_def()
    result = result_def(TensorType[IndexType])
    assembly_format = "$arg attr-dict `:` type($arg) `->` type($result)"
    traits = traits_def(Pure())


@irdl_op_definition
class NumElements(IRDLOperation):
    """`shape.num_elements`: the product of sizes."""

    name = "shape.num_elements"

    shape = operand_def(TensorType[IndexType])
    result = result_def(IndexType)
    assembly_format = "$shape attr-dict `:` type($shape) `->` type($result)"
    traits = traits_def(Pure())


@irdl_op_definition
class SplitAt(IRDLOperation):
    """`shape.split_at`: the sizes before an index, and those from it on."""

    name = "shape.split_at"

    shape = operand_def(TensorType[IndexType])
    index = operand_def(IndexType)
    head = result_def(TensorType[IndexType])
    tail = result_def(TensorType[IndexType])
    traits = traits_def(Pure())


Shape = Dialect("shape", [ShapeOf, NumElements, SplitAt])


class CastOperation(IRDLOperation):
    """One operand and one result, which `requant.mlir.casts` checks."""

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
