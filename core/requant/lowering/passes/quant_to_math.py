"""`stablehlo-legalize-quant-to-math`: quantized operations as arithmetic on stored numbers.

As upstream's, with what may surprise in it: dot-like operations truncate and wrap where others round and saturate,
a combined scale within 0.1 % of 1 is left out, and `u8` is stored in `i8`, which StableHLO reads as signed (`ui8` is
not). The broadcasting operations are CHLO's; `chlo-legalize-to-stablehlo` removes them.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import f32, i32
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation, SSAValue

from requant import mlir
from requant.errors.cancellation import check_cancelled
from requant.lowering.module import Module
from requant.lowering.passes.affine_math import DotLike, Uniform, bounds, dot_like, hybrid, parameters, requantize
from requant.lowering.passes.qdq import through_floats
from requant.lowering.passes.rewriting import (
    DEQUANTIZED,
    Emitter,
    Options,
    Pass,
    broadcast,
    convert_signature,
    functions,
    integer_constant,
    is_quantized,
    make,
    retype,
)
from requant.lowering.quantized import element_part, quantized_part, storage_attribute, storage_type, with_element

# Raw stored numbers go through these.
_TYPE_CHANGED = frozenset(
    f"stablehlo.{name}"
    for name in (
        "bitcast_convert", "broadcast_in_dim", "composite", "concatenate", "constant", "dynamic_reshape",
        "dynamic_slice", "gather", "maximum", "minimum", "pad", "reduce_window", "reshape", "return", "select",
        "slice", "transpose", "get_dimension_size", "dynamic_broadcast_in_dim",
    )
)  # fmt: skip


# Granularities of lhs, rhs and result of a product that is computed on integers; others are computed on floats.
_INTEGER_PRODUCTS = (
    (mlir.UniformType, mlir.UniformType, mlir.UniformType),
    (mlir.UniformType, mlir.UniformPerAxisType, mlir.UniformPerAxisType),
)


class _Lowering:
    """The pass on one module. Values keep the type that they had, while their operations are replaced."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._original: dict[SSAValue, Attribute] = {}
        self._dedicated: dict[str, Callable[[Operation], bool]] = {
            "stablehlo.uniform_quantize": self._quantize,
            "stablehlo.uniform_dequantize": self._dequantize,
            "stablehlo.add": self._add,
            "stablehlo.dot": self._dot,
            "stablehlo.dot_general": self._dot,
            "stablehlo.convolution": self._dot,
        }

    def run(self) -> None:
        for function in functions(self._module):
            convert_signature(function, storage_type)
            if not function.is_declaration:
                for argument in function.body.block.args:
                    self._store(argument)
        for op in list(self._module.operation.walk()):
            check_cancelled()
            self._lower(op)

    def type_of(self, value: SSAValue) -> Attribute:
        """Return the type that a value had before the pass."""
        return self._original.get(value, value.type)

    def quantized(self, value: SSAValue) -> Uniform | None:
        """Return the quantized type that a value had."""
        type_ = quantized_part(self.type_of(value))
        return type_ if isinstance(type_, mlir.UniformType | mlir.UniformPerAxisType) else None

    def _store(self, value: SSAValue) -> None:
        original = self.type_of(value)
        if is_quantized([original]):
            retype(value, storage_type(original))
            self._original[value] = original

    def _replace(self, op: Operation, *values: SSAValue) -> None:
        for result, value in zip(op.results, values, strict=True):
            if is_quantized([result.type]):
                self._original[value] = result.type
        Emitter(op).replace_anchor(*values)

    def _lower(self, op: Operation) -> None:
        types = [*(self.type_of(operand) for operand in op.operands), *op.result_types]
        if not is_quantized(types) or isinstance(op, ReturnOp):
            return
        if op.name == "func.call":
            for result in op.results:
                self._store(result)
            return
        if op.name in self._dedicated and self._dedicated[op.name](op):
            return
        if op.name in _TYPE_CHANGED and self._same_parameters(op):
            for value in (*op.results, *(each for region in op.regions for each in region.block.args)):
                self._store(value)
            return
        if op.name not in DEQUANTIZED:
            raise self._module.failure(op, "no lowering of this operation with quantized types; upstream has none")
        for inserted in self._through_floats(op):
            self._lower(inserted)

    def _through_floats(self, op: Operation) -> list[Operation]:
        changed = [(operand, operand.type) for operand in op.operands if operand in self._original]
        for operand, _ in changed:
            retype(operand, self._original[operand])
        inserted = through_floats(op)
        for operand, type_ in changed:
            retype(operand, type_)
        return inserted

    def _same_parameters(self, op: Operation) -> bool:
        if op.name not in ("stablehlo.maximum", "stablehlo.minimum"):
            return True
        types = [*(self.quantized(operand) for operand in op.operands), quantized_part(op.results[0].type)]
        return isinstance(types[0], mlir.UniformType) and types[0] == types[1] == types[2]

    def _quantize(self, op: Operation) -> bool:
        source, target = self.quantized(op.operands[0]), quantized_part(op.results[0].type)
        assert isinstance(target, mlir.UniformType | mlir.UniformPerAxisType)
        emitter, value, result = Emitter(op), op.operands[0], storage_type(op.results[0].type)
        if source is not None:
            axes = {each.axis for each in (source, target) if isinstance(each, mlir.UniformPerAxisType)}
            if len(axes) == 2:
                raise self._module.failure(op, "requantization cannot change the axis")
            self._replace(op, requantize(emitter, value, source, target, result))
            return True
        if element_part(value.type) != f32:
            raise self._module.failure(op, "unsupported input element type; the lowering computes in f32")
        scales, shifts, axis = parameters(emitter, target, float_zero_points=True)
        low, high = bounds(emitter, target.storage)
        real = emitter.add(broadcast("divide", value, scales, value.type, axis))
        real = emitter.add(broadcast("add", real, shifts, value.type, axis))
        real = emitter.add(make("clamp", [low, real, high], value.type))
        real = emitter.add(make("round_nearest_even", [real], value.type))
        self._replace(op, emitter.add(make("convert", [real], with_element(value.type, element_part(result)))))
        return True

    def _dequantize(self, op: Operation) -> bool:
        source, emitter, value = self.quantized(op.operands[0]), Emitter(op), op.operands[0]
        assert source is not None
        scales, shifts, axis = parameters(emitter, source, float_zero_points=False)
        whole, real = with_element(value.type, i32), with_element(value.type, f32)
        if real != op.results[0].type:
            raise self._module.failure(op, "unsupported expressed type; the lowering computes in f32")
        number = emitter.add(make("convert", [value], whole))
        number = emitter.add(broadcast("subtract", number, shifts, whole, axis))
        number = emitter.add(make("convert", [number], real))
        self._replace(op, emitter.add(broadcast("multiply", number, scales, real, axis)))
        return True

    def _add(self, op: Operation) -> bool:
        left, right, target = (*(self.quantized(each) for each in op.operands), quantized_part(op.results[0].type))
        if left is None or right is None or not isinstance(target, mlir.UniformType | mlir.UniformPerAxisType):
            return False
        whole = with_element(op.results[0].type, i32)
        emitter = Emitter(op)
        if any(isinstance(each, mlir.UniformPerAxisType) for each in (left, right, target)):
            if not isinstance(target, mlir.UniformPerAxisType) or not left == right == target:
                return False
            if storage_attribute(target) != i32:
                return False
            total = emitter.add(make("add", list(op.operands), whole))
            if any(target.zero_points):
                shifts = emitter.add(integer_constant(target.zero_points))
                total = emitter.add(broadcast("subtract", total, shifts, whole, target.axis))
            self._replace(op, total)
            return True
        assert isinstance(target, mlir.UniformType)
        sides = [
            requantize(emitter, value, each, target, whole)
            for value, each in zip(op.operands, (left, right), strict=True)
        ]
        shift = emitter.add(integer_constant(target.zero_point))
        total = emitter.add(broadcast("add", sides[0], sides[1], whole))
        total = emitter.add(broadcast("subtract", total, shift, whole))
        storage = storage_attribute(target)
        if storage != i32:
            ends = (target.storage.minimum, target.storage.maximum)
            low, high = [emitter.add(integer_constant(end)) for end in ends]
            total = emitter.add(make("clamp", [low, total, high], whole))
            total = emitter.add(make("convert", [total], with_element(whole, storage)))
        self._replace(op, total)
        return True

    def _dot(self, op: Operation) -> bool:
        left, right = (self.quantized(each) for each in op.operands)
        target = quantized_part(op.results[0].type)
        if left is None and right is not None and target is None:
            if op.name == "stablehlo.convolution" and element_part(op.operands[0].type) != f32:
                raise self._module.failure(op, "the weights become f32, and a convolution takes operands of one type")
            self._replace(op, hybrid(Emitter(op), op, right))
            return True
        kinds = tuple(type(each) for each in (left, right, target))
        if kinds not in _INTEGER_PRODUCTS:
            return False
        assert isinstance(left, mlir.UniformType)
        assert isinstance(right, mlir.UniformType | mlir.UniformPerAxisType)
        assert isinstance(target, mlir.UniformType | mlir.UniformPerAxisType)
        dot = DotLike.of(op, left, right, target)
        if dot is None:
            return False
        if dot.pads_other_storage():
            raise self._module.failure(
                op, "upstream pads with an i8 whatever the storage is, and fails; so does this pass"
            )
        self._replace(op, dot_like(Emitter(op), op, dot))
        return True


def _lower(module: Module, options: Options) -> None:
    _Lowering(module).run()


QUANT_TO_MATH = Pass(
    "stablehlo-legalize-quant-to-math",
    "quantized operations as arithmetic of StableHLO and CHLO on stored integers",
    _lower,
)
