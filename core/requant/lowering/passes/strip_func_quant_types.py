"""`strip-func-quant-types`: functions take and give stored integers; quant.scast connects them.

As MLIR's `lib/Dialect/Quant/Transforms/StripFuncQuantTypes.cpp`, a type conversion: casts that undo each
other are folded.
"""

from __future__ import annotations

from xdsl.dialects.func import CallOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from requant import mlir
from requant.formats.elements import IntegerElement, Signedness
from requant.lowering.dialects.quant import DequantizeCast, QuantizeCast, StorageCast
from requant.lowering.module import Module
from requant.lowering.passes.fold_casts import fold_casts
from requant.lowering.passes.rewriting import Options, Pass, convert_signature, functions, retype
from requant.lowering.quantized import quantized_part, stored


def _strip(module: Module, options: Options) -> None:
    fold_casts(module, QuantizeCast, DequantizeCast, StorageCast)
    stored_values = _StoredValues()
    for function in functions(module):
        for type_ in (*function.function_type.inputs.data, *function.function_type.outputs.data):
            _check(module, function, type_)
        convert_signature(function, stored)
        if not function.is_declaration:
            for argument in function.body.block.args:
                stored_values.strip(argument)
    for op in list(module.operation.walk()):
        if isinstance(op, CallOp | ReturnOp):
            stored_values.take_place_in(op)
        if isinstance(op, CallOp):
            for result in op.results:
                stored_values.strip(result)
    stored_values.erase_unused()


def _check(module: Module, op: Operation, type_: Attribute) -> None:
    found = quantized_part(type_)
    if found is None:
        return
    storage = found.storage if isinstance(found, mlir.AnyType | mlir.UniformQuantizedType) else None
    element = None if storage is None else storage.element
    if not isinstance(element, IntegerElement) or element.signedness is not Signedness.SIGNLESS:
        raise module.failure(op, "no quant.scast takes one of its types: the storage must be a signless integer")


class _StoredValues:
    """The stored integers of quantized values: those a value was made of by this pass, or those of one cast.

    Casts that the module had before are neither looked through nor used again, as in MLIR's type conversion.
    """

    def __init__(self) -> None:
        self._known: dict[SSAValue, SSAValue] = {}

    def strip(self, value: SSAValue) -> None:
        """Retype `value` as stored integers, with a cast to its quantized type right after it where that is used."""
        original = value.type
        if quantized_part(original) is None:
            return
        uses = list(value.uses)
        retype(value, stored(original))
        if uses:
            cast = StorageCast(value, original)
            _insert_after(cast, value)
            for use in uses:
                use.operation.operands[use.index] = cast.result
            self._known[cast.result] = value

    def take_place_in(self, op: Operation) -> None:
        """Give `op` stored integers in the place of its quantized operands."""
        for index, operand in enumerate(op.operands):
            if quantized_part(operand.type) is not None:
                op.operands[index] = self._of(operand)

    def _of(self, value: SSAValue) -> SSAValue:
        found = self._known.get(value)
        if found is None:
            cast = StorageCast(value, stored(value.type))
            _insert_after(cast, value)
            found = self._known[value] = cast.result
        return found

    def erase_unused(self) -> None:
        """Erase the casts to quantized types that nothing uses any more."""
        for value in self._known:
            op = value.owner
            if isinstance(op, StorageCast) and not value.uses:
                assert op.parent is not None
                op.parent.erase_op(op)


def _insert_after(op: Operation, value: SSAValue) -> None:
    """Put `op` where `value` is known first: the casts of a function's arguments stand in reverse order."""
    owner = value.owner
    if isinstance(owner, Operation):
        assert owner.parent is not None
        owner.parent.insert_op_after(op, owner)
    else:
        assert owner.first_op is not None
        owner.insert_op_before(op, owner.first_op)


STRIP_FUNC_QUANT_TYPES = Pass(
    "strip-func-quant-types", "quantized arguments and results of functions as their storage, with quant.scast", _strip
)
