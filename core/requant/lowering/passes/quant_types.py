"""The passes that change quantized types, and the folders of the quant dialect.

`normalize-quant-types`: sub-channel types that say no more than per-tensor or per-axis ones. MLIR's pass has two
defects. Each is reproduced only when its option is `true`:
`sign-extend-zero-points`: an unsigned zero point is read as a signed one (`u8 {{2.0:200}}` becomes `2.0:-56`).
`ignore-block-size`: scales along one dimension become per-axis whatever their blocks hold, so that
`tensor<4x4>` with `{0:2}` and two scales gets two scales on an axis of four. Without it such a type stays.

`strip-func-quant-types`: functions take and give stored integers; quant.scast connects them. As MLIR's
`lib/Dialect/Quant/Transforms/StripFuncQuantTypes.cpp`, a type conversion: casts that undo each other are folded.

A dialect conversion in MLIR tries to fold an operation that is not legal before it looks for a pattern, so
`lower-quant-ops` and `strip-func-quant-types` fold casts although neither is a canonicalization: the rounding of a
`dcast(qcast(x))` disappears (`QuantizeCastOp::fold`, `DequantizeCastOp::fold` and `StorageCastOp::fold` in MLIR's
`lib/Dialect/Quant/IR/QuantOps.cpp`).
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from requant import mlir
from requant.formats.elements import IntegerElement, Signedness
from requant.lowering.dialects.upstream import CastOperation, DequantizeCast, QuantizeCast, StorageCast
from requant.lowering.module import Module
from requant.lowering.passes.rewriting import Options, Pass, convert_signature, functions, retype
from requant.lowering.quantized import element_attribute, quantized_part, storage_type, with_element

_INVERSE: dict[type[CastOperation], type[CastOperation]] = {
    QuantizeCast: DequantizeCast,
    DequantizeCast: QuantizeCast,
    StorageCast: StorageCast,
}


def fold_casts(module: Module, *foldable: type[CastOperation]) -> None:
    """Replace `inverse(cast(x))` by `x` where the outer operation is one of `foldable` and the types are the same.

    What folds is decided on the module as it is given: the operand of an operation is the cast that was written
    there, even if that one is folded too. The inner cast stays, used or not.
    """
    folded: dict[CastOperation, SSAValue] = {}
    originals: dict[SSAValue, SSAValue] = {}
    for op in module.operation.walk():
        if isinstance(op, foldable):
            original = _original(op)
            if original is not None:
                folded[op] = originals[op.result] = originals.get(original, original)
    for op, original in folded.items():
        op.result.replace_all_uses_with(original)
        assert op.parent is not None
        op.parent.erase_op(op)


def _original(op: CastOperation) -> SSAValue | None:
    """Return the value of which `op` undoes a cast, if it does."""
    inner = op.input.owner
    if isinstance(inner, _INVERSE[type(op)]) and inner.input.type == op.result.type:
        return inner.input
    return None


_SIGN_EXTEND, _IGNORE_BLOCKS = "sign-extend-zero-points", "ignore-block-size"


def _normalize(module: Module, options: Options) -> None:
    sign_extend, ignore_blocks = options[_SIGN_EXTEND] == "true", options[_IGNORE_BLOCKS] == "true"

    def converted(type_: Attribute) -> Attribute:
        quantized = quantized_part(type_)
        if not isinstance(type_, TensorType) or not isinstance(quantized, mlir.UniformSubChannelType):
            return type_
        normal = _normal(quantized, type_.get_shape(), sign_extend, ignore_blocks)
        return type_ if normal is None else with_element(type_, element_attribute(normal))

    for op in module.operation.walk():
        if isinstance(op, FuncOp):
            convert_signature(op, converted)
        for value in (
            *op.results,
            *(argument for region in op.regions for block in region.blocks for argument in block.args),
        ):
            retype(value, converted(value.type))


def _normal(
    type_: mlir.UniformSubChannelType, shape: tuple[int, ...], sign_extend: bool, ignore_blocks: bool
) -> mlir.QuantizedType | None:
    zero_points = type_.zero_points
    half, period = 1 << (type_.storage.width - 1), 1 << type_.storage.width
    if sign_extend:
        zero_points = tuple((zero_point + half) % period - half for zero_point in zero_points)
    if prod(type_.scale_shape) == 1:
        return mlir.UniformType(type_.storage, type_.expressed, type_.scales[0], zero_points[0])
    spread = [axis for axis, count in enumerate(type_.scale_shape) if count != 1]
    if len(spread) != 1:
        return None
    axis = spread[0]
    if not ignore_blocks and shape[axis] not in (DYNAMIC_INDEX, len(type_.scales)):
        return None
    if not ignore_blocks and dict(type_.blocks)[axis] != 1:
        return None
    return mlir.UniformPerAxisType(type_.storage, type_.expressed, axis, type_.scales, zero_points)


NORMALIZE_QUANT_TYPES = Pass(
    "normalize-quant-types",
    "sub-channel types as per-tensor or per-axis types where they are equivalent",
    _normalize,
    {_SIGN_EXTEND: ("false", "true"), _IGNORE_BLOCKS: ("false", "true")},
)


def _strip(module: Module, options: Options) -> None:
    fold_casts(module, QuantizeCast, DequantizeCast, StorageCast)
    stored_values = _StoredValues()
    for function in functions(module):
        for type_ in (*function.function_type.inputs.data, *function.function_type.outputs.data):
            _check(module, function, type_)
        convert_signature(function, storage_type)
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
    quantized = quantized_part(type_)
    if quantized is None:
        return
    storage = quantized.storage if isinstance(quantized, mlir.AnyType | mlir.UniformQuantizedType) else None
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
        retype(value, storage_type(original))
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
        stored = self._known.get(value)
        if stored is None:
            cast = StorageCast(value, storage_type(value.type))
            _insert_after(cast, value)
            stored = self._known[value] = cast.result
        return stored

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
