"""`requant-to-integer-arith`, a pass of ours: quantized operations as integer `arith` in loops of `linalg`.

Sums of products, corrected for zero points; a bias; a multiplier and a shift with rounding; the output's zero point; a
clamp: in the fixed point of a profile or a scheme, whose plans say which numbers (`requant.convert.requantize`,
`requant.integer`). Each operation is rewritten between quant.scast; others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerType, Signedness
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr

from requant import mlir
from requant.convert.requantize import plan_requantize
from requant.convert.scaling import ScalingPlan
from requant.errors import LimitError, RequantError, UnsupportedError
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import IntegerElement
from requant.integer.add import plan_add
from requant.lowering.dialects.stablehlo.formats import integers
from requant.lowering.dialects.tosa import FLAGS, Const, Rescale
from requant.lowering.dialects.upstream import StorageCast
from requant.lowering.module import Module
from requant.lowering.passes.requant_to_integer_arith.loops import OPTIONS, Choice, Loops
from requant.lowering.passes.requant_to_integer_arith.product import Contraction, Product, SumType
from requant.lowering.passes.requant_to_integer_arith.scaling import add, scale
from requant.lowering.passes.rewriting import Emitter, Options, Pass, erase_unused, is_quantized, make
from requant.lowering.quantized import element_part, storage_type, type_of
from requant.operators.tosa.rescale_plan import RescaleRounding, plan_rescale

_MOVED = ("reshape", "transpose", "slice", "concatenate", "reverse")


class Lowering:
    """The pass on one module. `_products` has the products whose sums a value is, perhaps with a bias."""

    def __init__(self, module: Module, choice: Choice) -> None:
        self._module, self._choice = module, choice
        self._products: dict[SSAValue, Product] = {}
        self._dedicated: dict[str, Callable[[Operation], SSAValue | None]] = {
            "stablehlo.uniform_quantize": self._requantize,
            "stablehlo.dot": self._product,
            "stablehlo.dot_general": self._product,
            "stablehlo.convolution": self._product,
            "stablehlo.add": self._add,
            "stablehlo.constant": self._constant,
            "stablehlo.broadcast_in_dim": self._broadcast,
            "tosa.rescale": self._rescale,
            **{f"stablehlo.{name}": self._move for name in _MOVED},
        }

    def run(self) -> None:
        """Rewrite the module. Raises LoweringError where an operation has no fixed point."""
        for op in list(self._module.operation.walk()):
            check_cancelled()
            lower = self._dedicated.get(op.name)
            if lower is None or not (isinstance(op, Rescale) or is_quantized([*op.operand_types, *op.result_types])):
                continue
            try:
                lowered = lower(op)
            except LimitError:
                raise
            except RequantError as error:
                raise self._module.failure(op, error.detail) from None
            if lowered is not None:
                self._replace(op, lowered)
        _fold_casts(self._module)
        erase_unused(self._module)

    def _replace(self, op: Operation, value: SSAValue) -> None:
        result, emitter = op.results[0], Emitter(op)
        if value.type != result.type:
            value = emitter.add(StorageCast(value, result.type))
        if result in self._products:
            self._products[value] = self._products.pop(result)
        emitter.replace_anchor(value)

    def _stored(self, emitter: Emitter, value: SSAValue) -> SSAValue:
        """Return the stored integers of a value: those that it was cast from, or a cast."""
        type_ = storage_type(value.type)
        _check_signless(type_)
        if type_ == value.type:
            return value
        owner = value.owner
        if isinstance(owner, StorageCast) and owner.input.type == type_:
            return owner.input
        return emitter.add(StorageCast(value, type_))

    def _requantize(self, op: Operation) -> SSAValue | None:
        if not is_quantized(op.operand_types):
            return None
        value, output = op.operands[0], _tensor(op.result_types[0])
        if value in self._products:
            plan = self._products[value].plan(output)
        else:
            planned = plan_requantize(_tensor(value.type), output, self._choice.profile, scheme=self._choice.scheme)
            self._choice.check(planned.scheme.name if isinstance(planned, ScalingPlan) else None)
            assert isinstance(planned, ScalingPlan)
            plan = planned
        emitter = Emitter(op)
        return scale(emitter, self._stored(emitter, value), plan, _stored_element(op.result_types[0]))

    def _product(self, op: Operation) -> SSAValue | None:
        if not all(is_quantized([type_]) for type_ in (*op.operand_types, *op.result_types)):
            return None
        types, result = [_tensor(type_) for type_ in op.operand_types], _tensor(op.result_types[0])
        product = Product.of(Contraction.of(op), types, result, self._choice)
        plan = None if product.is_sum else product.plan(result)
        emitter, element = Emitter(op), _stored_element(op.result_types[0])
        lhs, rhs = (self._stored(emitter, operand) for operand in op.operands)
        sums = product.sums(emitter, lhs, rhs)
        if plan is None:
            self._products[op.results[0]] = product
            return sums
        return scale(emitter, sums, plan, element)

    def _add(self, op: Operation) -> SSAValue | None:
        types = [_tensor(type_) for type_ in (*op.operand_types, *op.result_types)]
        emitter = Emitter(op)
        sums = [SumType.of(type_.element) for type_ in types]
        if sums[0] is not None and sums[0] == sums[1] == sums[2]:
            known = [self._products[operand] for operand in op.operands if operand in self._products]
            if known:
                self._products[op.results[0]] = known[0]
            lhs, rhs = (self._stored(emitter, operand) for operand in op.operands)
            return emitter.add(arith.AddiOp(lhs, rhs))
        plan = plan_add(types[0], types[1], types[2], self._choice.profile, scheme=self._choice.scheme)
        element = _stored_element(op.result_types[0])
        lhs, rhs = (self._stored(emitter, operand) for operand in op.operands)
        return add(emitter, lhs, rhs, plan, element, self._choice)

    def _constant(self, op: Operation) -> SSAValue | None:
        value = op.attributes["value"]
        type_ = storage_type(op.result_types[0])
        _check_signless(type_)
        if not isinstance(value, DenseIntOrFPElementsAttr) or value.type != type_:
            raise UnsupportedError("the numbers of a quantized constant have its storage type here")
        return Emitter(op).add(arith.ConstantOp(cast(Any, value)))

    def _broadcast(self, op: Operation) -> SSAValue | None:
        emitter, target = Emitter(op), op.result_types[0]
        source, result = _tensor(op.operand_types[0]).shape, _tensor(target).shape
        dims = integers(op.attributes["broadcast_dimensions"])
        if source is None or result is None or None in (*source, *result):
            raise UnsupportedError("this pass takes static shapes")
        sizes = [size for size in result if size is not None]
        if len(dims) != len(source) or any(not 0 <= axis < len(sizes) for axis in dims):
            raise UnsupportedError("the dimensions of the broadcast do not fit")
        place = [
            AffineConstantExpr(0) if size == 1 and sizes[axis] != 1 else AffineDimExpr(axis)
            for size, axis in zip(source, dims, strict=True)
        ]
        loops = Loops(emitter, sizes, _stored_element(target))
        return loops.finish(loops.read(self._stored(emitter, op.operands[0]), place))

    def _move(self, op: Operation) -> SSAValue | None:
        emitter, result = Emitter(op), storage_type(op.result_types[0])
        _check_signless(result)
        operands = [self._stored(emitter, operand) for operand in op.operands]
        name = op.name.removeprefix("stablehlo.")
        return emitter.add(make(name, operands, result, attributes=op.attributes.copy()))

    def _rescale(self, op: Operation) -> SSAValue | None:
        assert isinstance(op, Rescale)
        numbers = [_constant(value) for value in (op.multiplier, op.shift, op.input_zp, op.output_zp)]
        multiplier, shift, input_zp, output_zp = numbers
        flags: dict[str, Any] = {flag: bool(cast(Any, op.properties[flag]).value.data) for flag in FLAGS}
        plan = plan_rescale(
            _plain(op.input.type),
            _plain(op.output.type),
            multiplier,
            shift,
            input_zp=input_zp[0],
            output_zp=output_zp[0],
            rounding_mode=RescaleRounding(op.rounding_mode.data.value),
            **flags,
        )
        scaling = plan.scaling
        assert isinstance(scaling, ScalingPlan)
        Choice(self._choice.profile, scaling.scheme.name).check(scaling.scheme.name)
        emitter = Emitter(op)
        return scale(emitter, self._stored(emitter, SSAValue.get(op.input)), scaling, _stored_element(op.output.type))


def _fold_casts(module: Module) -> None:
    """Let what a cast was made of take the place of a cast back."""
    for op in list(module.operation.walk()):
        if isinstance(op, StorageCast) and isinstance(op.input.owner, StorageCast):
            original = op.input.owner.input
            if original.type == op.result.type:
                op.result.replace_all_uses_with(original)


def _tensor(type_: Attribute) -> mlir.TensorType:
    tensor = type_of(type_)
    assert isinstance(tensor, mlir.TensorType)
    return tensor


def _plain(type_: Attribute) -> mlir.TensorType:
    """Return a tensor of the signless integers that elements are stored in."""
    return mlir.TensorType(_tensor(type_).shape, IntegerElement(_stored_element(type_).width.data))


def _stored_element(type_: Attribute) -> IntegerType:
    stored = storage_type(type_)
    _check_signless(stored)
    return cast(IntegerType, element_part(stored))


def _check_signless(type_: Attribute) -> None:
    element = element_part(type_)
    if not isinstance(element, IntegerType) or element.signedness.data is not Signedness.SIGNLESS:
        raise UnsupportedError("the storage must be a signless integer, such as `i8` or `u8`; arith supports no other")


def _constant(value: SSAValue) -> list[int]:
    owner = value.owner
    values: Any = None
    if isinstance(owner, Const):
        values = owner.values
    elif isinstance(owner, Operation) and owner.name in ("stablehlo.constant", "arith.constant"):
        values = owner.attributes.get("value", owner.properties.get("value"))
    if not isinstance(values, DenseIntOrFPElementsAttr):
        raise UnsupportedError("multiplier, shift and zero points must be constants")
    return [int(each) for each in cast(Any, values).get_values()]


def _lower(module: Module, options: Options) -> None:
    Lowering(module, Choice.of(options)).run()


REQUANT_TO_INTEGER_ARITH = Pass(
    "requant-to-integer-arith",
    "quantized operations and tosa.rescale as integer arithmetic of arith and linalg, in the fixed point of a profile",
    _lower,
    OPTIONS,
)
