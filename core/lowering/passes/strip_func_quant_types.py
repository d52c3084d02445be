"""`strip-func-quant-types`: functions take and give stored integers; quant.scast connects them (spec/mlir.md 2.4)."""

from __future__ import annotations

from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from core import mlir
from core.elements import IntegerElement, Signedness
from core.lowering.dialects.quant import StorageCast
from core.lowering.module import Module
from core.lowering.passes.rewriting import Options, Pass, convert_signature, functions, retype
from core.lowering.quantized import quantized_part, stored


def _strip(module: Module, options: Options) -> None:
    for function in functions(module):
        for type_ in (*function.function_type.inputs.data, *function.function_type.outputs.data):
            _check(module, function, type_)
        convert_signature(function, stored)
        if not function.is_declaration:
            _strip_arguments(function)
    for op in list(module.operation.walk()):
        if isinstance(op, CallOp):
            _strip_call(op)
    for op in list(module.operation.walk()):
        if isinstance(op, ReturnOp):
            _cast_operands(op)


def _check(module: Module, op: Operation, type_: Attribute) -> None:
    found = quantized_part(type_)
    if found is None:
        return
    storage = found.storage if isinstance(found, mlir.AnyType | mlir.UniformQuantizedType) else None
    element = None if storage is None else storage.element
    if not isinstance(element, IntegerElement) or element.signedness is not Signedness.SIGNLESS:
        raise module.failure(op, "no quant.scast takes one of its types: the storage has to be a signless integer")


def _strip_arguments(function: FuncOp) -> None:
    block = function.body.block
    first = block.first_op
    assert first is not None
    for argument in block.args:
        original = argument.type
        if quantized_part(original) is None:
            continue
        uses = list(argument.uses)
        retype(argument, stored(original))
        if uses:
            cast = StorageCast(argument, original)
            block.insert_op_before(cast, first)
            for use in uses:
                use.operation.operands[use.index] = cast.result


def _cast_operands(op: Operation) -> None:
    """Give `op` the stored numbers of its quantized operands: those that a cast was made of, or those of a new cast."""
    for index, operand in enumerate(op.operands):
        if quantized_part(operand.type) is None:
            continue
        type_, owner = stored(operand.type), operand.owner
        if isinstance(owner, StorageCast) and owner.input.type == type_:
            op.operands[index] = owner.input
            if not owner.result.uses:
                assert owner.parent is not None
                owner.parent.erase_op(owner)
            continue
        known = [use.operation for use in operand.uses if isinstance(use.operation, StorageCast)]
        found = next((cast for cast in known if cast.result.type == type_), None)
        if found is None:
            found = StorageCast(operand, type_)
            _insert_after(found, operand)
        op.operands[index] = found.result


def _insert_after(op: Operation, value: SSAValue) -> None:
    """Put `op` where `value` is known first."""
    owner = value.owner
    if isinstance(owner, Operation):
        assert owner.parent is not None
        owner.parent.insert_op_after(op, owner)
    else:
        assert owner.first_op is not None
        owner.insert_op_before(op, owner.first_op)


def _strip_call(op: CallOp) -> None:
    _cast_operands(op)
    block = op.parent
    assert block is not None
    last: Operation = op
    for result in op.results:
        original = result.type
        if quantized_part(original) is None:
            continue
        uses = list(result.uses)
        retype(result, stored(original))
        if uses:
            cast = StorageCast(result, original)
            block.insert_op_after(cast, last)
            last = cast
            for use in uses:
                use.operation.operands[use.index] = cast.result


STRIP_FUNC_QUANT_TYPES = Pass(
    "strip-func-quant-types", "quantized arguments and results of functions as their storage, with quant.scast", _strip
)
