"""The operations of the shape dialect that `lower-quant-ops` needs for unranked tensors."""

from __future__ import annotations

from xdsl.dialects.builtin import IndexType, TensorType
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure


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
