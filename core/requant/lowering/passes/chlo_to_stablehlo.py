"""`chlo-legalize-to-stablehlo`: broadcasting operations as `broadcast_in_dim` and the operation, for static shapes.

Upstream's computes shapes and canonicalizes them away again; what is left of static shapes is the same. A dynamic
operand that needs no broadcast is taken too.
"""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, TensorType, i64
from xdsl.ir import Operation

from requant.lowering.dialects.stablehlo.formats import integers
from requant.lowering.module import Module
from requant.lowering.passes.rewriting import Emitter, Options, Pass, make
from requant.lowering.quantized import element_part, with_element

_PREFIX = "chlo.broadcast_"


def _legalize(module: Module, options: Options) -> None:
    for op in list(module.operation.walk()):
        if op.name.startswith(_PREFIX):
            _expand(module, op)


def _expand(module: Module, op: Operation) -> None:
    emitter, result = Emitter(op), op.result_types[0]
    rank = cast(TensorType[Any], result).get_num_dims()
    stated = integers(op.attributes.get("broadcast_dimensions"))
    operands = []
    for operand in op.operands:
        type_ = cast(TensorType[Any], operand.type)
        target = with_element(result, element_part(type_))
        if type_ == target:
            operands.append(operand)
            continue
        if DYNAMIC_INDEX in (*type_.get_shape(), *cast(TensorType[Any], result).get_shape()):
            raise module.failure(op, "a broadcast of dynamic shapes")
        count = type_.get_num_dims()
        dims = stated if stated and len(stated) == count else tuple(range(rank - count, rank))
        attributes = {"broadcast_dimensions": DenseArrayBase.from_list(i64, dims)}
        operands.append(emitter.add(make("broadcast_in_dim", [operand], target, attributes=attributes)))
    emitter.replace_anchor(emitter.add(make(op.name.removeprefix(_PREFIX), operands, result)))


CHLO_TO_STABLEHLO = Pass(
    "chlo-legalize-to-stablehlo", "broadcasting operations of CHLO as StableHLO, for static shapes", _legalize
)
