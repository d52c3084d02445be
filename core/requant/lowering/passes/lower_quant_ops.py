"""`lower-quant-ops`: quant.qcast and quant.dcast become arithmetic on stored numbers.

As MLIR's `lib/Dialect/Quant/Transforms/LowerQuantOps.cpp`: a qcast of a dcast of the same type, or the reverse, is
folded first; then x / S + Z truncated toward zero, without saturation; (q - Z) * S back. Per-tensor types are computed
on whole tensors, per-axis and sub-channel types in a `linalg.generic`, unranked tensors after a reshape.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    TensorType,
    UnrankedTensorType,
)
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.dialects.tensor import DimOp, EmptyOp, FromElementsOp, SplatOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap

from requant import mlir
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import IntegerElement, Signedness
from requant.formats.float_format import round_to_format
from requant.lowering.dialects.upstream import (
    CONVERSIONS,
    DequantizeCast,
    NumElements,
    QuantizeCast,
    Reshape,
    ShapeOf,
    SplitAt,
    StorageCast,
)
from requant.lowering.module import Module
from requant.lowering.passes.quant_types import fold_casts
from requant.lowering.passes.rewriting import Emitter, Options, Pass
from requant.lowering.quantized import (
    dense,
    element_attribute,
    element_part,
    quantized_part,
    scalar_float,
    scalar_integer,
    storage_type,
    truncated,
    with_element,
)

_INDEX = IndexType()


def _lower(module: Module, options: Options) -> None:
    fold_casts(module, QuantizeCast, DequantizeCast)
    for op in list(module.operation.walk()):
        if isinstance(op, QuantizeCast | DequantizeCast):
            check_cancelled()
            _lower_cast(module, op)


def _lower_cast(module: Module, op: QuantizeCast | DequantizeCast) -> None:
    quantizes = isinstance(op, QuantizeCast)
    type_ = quantized_part(op.result.type if quantizes else op.input.type)
    if not isinstance(type_, mlir.UniformQuantizedType):
        raise module.failure(op, "only uniform types have parameters to compute with")
    element = type_.storage.element
    if not isinstance(element, IntegerElement) or element.signedness is not Signedness.SIGNLESS:
        raise module.failure(op, "the storage must be a signless integer, such as `i8` or `u8`; MLIR lowers no other")
    emitter = Emitter(op)
    if quantizes:
        result = _convert(emitter, op.input, type_, quantizes=True)
        emitter.replace_anchor(emitter.add(StorageCast(result, op.result.type)))
    else:
        source = emitter.add(StorageCast(op.input, storage_type(op.input.type)))
        emitter.replace_anchor(_convert(emitter, source, type_, quantizes=False))


def _convert(emitter: Emitter, value: SSAValue, type_: mlir.UniformQuantizedType, *, quantizes: bool) -> SSAValue:
    if isinstance(type_, mlir.UniformSubChannelType):
        assert isinstance(value.type, TensorType)
        axes: list[AffineExpr] = [AffineConstantExpr(0)] * value.type.get_num_dims()
        for axis, size in type_.blocks:
            axes[axis] = AffineDimExpr(axis) // size
        return _by_channel(emitter, value, type_, axes, type_.scale_shape, quantizes)
    if not isinstance(value.type, UnrankedTensorType):
        axis = type_.axis if isinstance(type_, mlir.UniformPerAxisType) else 0
        return _convert_ranked(emitter, value, type_, axis, quantizes)
    shape = emitter.add(ShapeOf.create(operands=[value], result_types=[TensorType(_INDEX, [DYNAMIC_INDEX])]))
    if isinstance(type_, mlir.UniformPerAxisType):
        sizes, flat = _around_axis(emitter, shape, type_), [DYNAMIC_INDEX, len(type_.scales), DYNAMIC_INDEX]
    else:
        sizes, flat = [_product(emitter, shape)], [DYNAMIC_INDEX]
    flat_shape = emitter.add(FromElementsOp(*sizes))
    flattened = emitter.add(Reshape(value, flat_shape, TensorType(value.type.element_type, flat)))
    result = _convert_ranked(emitter, flattened, type_, 1, quantizes)
    return emitter.add(Reshape(result, shape, UnrankedTensorType(element_part(result.type))))


def _convert_ranked(
    emitter: Emitter, value: SSAValue, type_: mlir.UniformQuantizedType, axis: int, quantizes: bool
) -> SSAValue:
    if isinstance(type_, mlir.UniformPerAxisType):
        return _by_channel(emitter, value, type_, [AffineDimExpr(axis)], (len(type_.scales),), quantizes)
    assert isinstance(type_, mlir.UniformType)
    expressed, storage = _elements(type_)
    scale = emitter.add(arith.ConstantOp(scalar_float(round_to_format(type_.scale, type_.expressed), expressed)))
    zero_point = emitter.add(arith.ConstantOp(scalar_integer(type_.zero_point, storage)))
    sizes = _dynamic_sizes(emitter, value)
    zero = not truncated(type_.zero_point, storage.width.data)
    return _arithmetic(emitter, value, scale, None if zero else zero_point, type_, quantizes, sizes)


def _product(emitter: Emitter, shape: SSAValue) -> SSAValue:
    return emitter.add(NumElements.create(operands=[shape], result_types=[_INDEX]))


def _around_axis(emitter: Emitter, shape: SSAValue, type_: mlir.UniformPerAxisType) -> list[SSAValue]:
    """Return the sizes [left, axis, right] of an unranked tensor."""
    at = [emitter.add(arith.ConstantOp(IntegerAttr(index, _INDEX))) for index in (type_.axis, type_.axis + 1)]
    sizes = []
    for index, part in enumerate(at):
        split = SplitAt.create(operands=[shape, part], result_types=[shape.type, shape.type])
        emitter.add(split)
        sizes.append(_product(emitter, split.results[index]))
    middle = emitter.add(arith.ConstantOp(IntegerAttr(len(type_.scales), _INDEX)))
    return [sizes[0], middle, sizes[1]]


def _dynamic_sizes(emitter: Emitter, value: SSAValue) -> list[SSAValue]:
    if not isinstance(value.type, TensorType):
        return []
    sizes = []
    for index, size in enumerate(value.type.get_shape()):
        if size == DYNAMIC_INDEX:
            position = emitter.add(arith.ConstantOp(IntegerAttr(index, _INDEX)))
            sizes.append(emitter.add(DimOp(value, position)))
    return sizes


def _elements(type_: mlir.UniformQuantizedType) -> tuple[Attribute, IntegerType]:
    storage = element_attribute(type_.storage.element)
    assert isinstance(storage, IntegerType)
    return element_attribute(type_.expressed), storage


def _by_channel(
    emitter: Emitter,
    value: SSAValue,
    type_: mlir.UniformPerAxisType | mlir.UniformSubChannelType,
    axes: Sequence[AffineExpr],
    shape: Sequence[int],
    quantizes: bool,
) -> SSAValue:
    """Compute each element with the parameters at `axes` of its index."""
    expressed, storage = _elements(type_)
    source = value.type
    assert isinstance(source, TensorType)
    scales = [round_to_format(scale, type_.expressed) for scale in type_.scales]
    zero_points = [truncated(zero_point, storage.width.data) for zero_point in type_.zero_points]
    constants = (dense(expressed, shape, scales), dense(storage, shape, zero_points))
    parameters = [emitter.add(arith.ConstantOp(each)) for each in constants]
    target = TensorType(storage if quantizes else expressed, source.shape)
    empty = emitter.add(EmptyOp(_dynamic_sizes(emitter, value), target))
    rank = source.get_num_dims()
    identity, channel = AffineMapAttr(AffineMap.identity(rank)), AffineMapAttr(AffineMap(rank, 0, tuple(axes)))
    block = Block(arg_types=[source.element_type, expressed, storage, target.element_type])
    inner = Emitter.at_end(block)
    result = _arithmetic(inner, block.args[0], block.args[1], block.args[2], type_, quantizes, [])
    block.add_op(YieldOp(result))
    generic = GenericOp(
        [value, *parameters],
        [empty],
        Region(block),
        [identity, channel, channel, identity],
        [IteratorTypeAttr.parallel()] * rank,
        [target],
    )
    return emitter.add(generic)


def _arithmetic(
    emitter: Emitter,
    value: SSAValue,
    scale: SSAValue,
    zero_point: SSAValue | None,
    type_: mlir.UniformQuantizedType,
    quantizes: bool,
    sizes: Sequence[SSAValue],
) -> SSAValue:
    """Compute x / S + Z or (q - Z) * S on scalars or whole tensors."""
    kind = "si" if type_.storage.signed else "ui"
    expressed, storage = _elements(type_)
    shape = value.type

    def whole(scalar: SSAValue) -> SSAValue:
        if not isinstance(shape, TensorType):
            return scalar
        return emitter.add(SplatOp(scalar, sizes, TensorType(scalar.type, shape.shape)))

    def to_float(integer: SSAValue) -> SSAValue:
        return emitter.add(CONVERSIONS[f"{kind}tofp"](integer, with_element(shape, expressed)))

    scale = whole(scale)
    if not quantizes:
        real = to_float(value)
        if zero_point is not None:
            real = emitter.add(arith.SubfOp(real, to_float(whole(zero_point))))
        return emitter.add(arith.MulfOp(real, scale))
    real = emitter.add(arith.DivfOp(value, scale))
    if zero_point is not None:
        shift = to_float(whole(zero_point))
        real = emitter.add(arith.AddfOp(real, shift))
    result = emitter.add(CONVERSIONS[f"fpto{kind}"](real, with_element(shape, storage)))
    bounds = (type_.storage.minimum, type_.storage.maximum)
    if bounds == type_.storage.default_bounds:
        return result
    constants = [emitter.add(arith.ConstantOp(scalar_integer(bound, storage))) for bound in bounds]
    low, high = [whole(constant) for constant in constants]
    larger, smaller = (arith.MaxSIOp, arith.MinSIOp) if kind == "si" else (arith.MaxUIOp, arith.MinUIOp)
    result = emitter.add(larger(result, low))
    return emitter.add(smaller(result, high))


LOWER_QUANT_OPS = Pass(
    "lower-quant-ops", "quant.qcast and quant.dcast as arith, tensor and linalg, as MLIR lowers them", _lower
)
