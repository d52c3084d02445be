"""A function of a module, interpreted: one operation after the other, within a budget of memory and time.

Quantized operations of StableHLO are what its specification says: dequantize, compute, quantize,
with the profile `stablehlo`; quant.qcast and quant.dcast are what MLIR lowers them to, with the profile `mlir`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr, IntegerAttr, TensorType
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from requant import mlir
from requant.errors import LimitError, ParameterError, PreconditionError, RequantError, TypeFitError, UnknownNameError
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import FloatElement, IntegerElement
from requant.lowering.dialects.stablehlo.attributes import ComparisonDirection, ComparisonType, Dot, DotDimensions
from requant.lowering.dialects.stablehlo.formats import integers
from requant.lowering.dialects.stablehlo.operations import applied_operation, window_of
from requant.lowering.dialects.tosa import FLAGS, Rescale
from requant.lowering.evaluate import arith, conversions, linalg, products
from requant.lowering.evaluate.arrays import (
    Array,
    broadcast,
    dtype_of,
    is_float,
    moved,
    padded_size,
    refuse_growth,
    static_shape,
    to_integer,
    wrapped,
)
from requant.lowering.evaluate.elementwise import binary, compare, unary
from requant.lowering.module import Module
from requant.lowering.passes.rewriting import DEQUANTIZED
from requant.lowering.quantized import element_part, quantized_part, type_of
from requant.plan.operands import bind

_DEEPEST_CALL = 32
# What numpy may answer a wrong shape, axis or number with. The module verified, so it is about this operation.
_MISFITS = (ValueError, IndexError, TypeError, KeyError, AssertionError, OverflowError, ZeroDivisionError)


@dataclass(frozen=True)
class Tensor:
    """A tensor that goes in or comes out. `elements` has its shape, and is held as `arrays` says."""

    type: mlir.TensorType
    elements: Array


def function_named(module: Module, name: str | None) -> FuncOp:
    """Return the function of that name; without one `main`, or the only one. Raises UnknownNameError."""
    functions = {
        op.sym_name.data: op for op in module.operation.walk() if isinstance(op, FuncOp) and not op.is_declaration
    }
    if name is None:
        name = "main" if "main" in functions or len(functions) != 1 else next(iter(functions))
    if name not in functions:
        listed = ", ".join(list(functions)[:8])[:400]
        raise UnknownNameError(f"the module has no function {name[:80]!r} with a body; it has: {listed or 'none'}")
    return functions[name]


def evaluate(module: Module, function: FuncOp, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the results of `function` on `inputs`.

    Raises TypeFitError where an input has not the type of its argument, LoweringError where an operation is not
    evaluated, PreconditionError where its result is not defined, LimitError at the limits.
    """
    types = [type_of(argument.type) for argument in function.body.block.args]
    if len(types) != len(inputs):
        raise ParameterError(f"{len(inputs)} inputs for a function of {len(types)} arguments")
    for index, (tensor, type_) in enumerate(zip(inputs, types, strict=True)):
        try:
            bound = bind(type_, tensor.elements.shape)
        except TypeFitError as error:
            error.pointer = f"/inputs/{index}/type"
            raise
        if bound.element != tensor.type.element:
            detail = f"input {index} has elements of another type than the argument"
            raise TypeFitError(detail, pointer=f"/inputs/{index}/type")
    evaluator = _Evaluator(module)
    with np.errstate(all="ignore"):
        values = evaluator.call(function, [tensor.elements for tensor in inputs], 0)
    results = []
    for value, declared in zip(values, function.function_type.outputs.data, strict=True):
        element = type_of(element_part(declared))
        assert not isinstance(element, mlir.TensorType)
        results.append(Tensor(mlir.TensorType(value.shape, element), value))
    return results


class _Evaluator:
    """One evaluation: its values, and what it has spent."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._spent = 0
        self._products = 0
        self._values: dict[SSAValue, Array] = {}
        self._handlers: dict[str, Callable[[str, Operation, list[Array]], list[Array]]] = {
            "stablehlo": self._stablehlo,
            "chlo": self._chlo,
            "quant": self._quant,
            "tosa": self._tosa,
        }

    def check(self, byte_count: int, products: int = 0) -> None:
        """Take so many bytes and products of the budget, and see whether to go on."""
        self._spent += byte_count
        limit = self._module.limits.evaluation_bytes
        if self._spent > limit:
            raise LimitError(f"the values of the module take more than {limit} bytes", limit=limit)
        self._products += products
        limit = self._module.limits.evaluation_products
        if self._products > limit:
            raise LimitError(f"products and sums take more than {limit} steps", limit=limit)
        check_cancelled()

    def call(self, function: FuncOp, arguments: Sequence[Array], depth: int) -> list[Array]:
        """Return the results of a function."""
        if depth > _DEEPEST_CALL:
            raise LimitError(f"calls nested more than {_DEEPEST_CALL} deep", limit=_DEEPEST_CALL)
        if function.is_declaration:
            raise self._module.failure(function, "a function without a body is called")
        outer, self._values = self._values, {}
        results = self._block(function.body.block, arguments, depth)
        self._values = outer
        return results

    def _block(self, block: Block, arguments: Sequence[Array], depth: int) -> list[Array]:
        self._values.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            operands = [self._values[operand] for operand in op.operands]
            if op.name in ("func.return", "stablehlo.return", "linalg.yield", "tensor.yield"):
                return operands
            results = self._operation(op, operands, depth)
            for result, value in zip(op.results, results, strict=True):
                if isinstance(result.type, TensorType) and DYNAMIC_INDEX in result.type.get_shape():
                    self.check(value.nbytes)
                self._check_result(op, result.type, value)
                self._values[result] = value
        raise self._module.failure(block.parent_op() or self._module.operation, "a block without a return")

    def _operation(self, op: Operation, operands: list[Array], depth: int) -> list[Array]:
        dialect, _, name = op.name.partition(".")
        self.check(self._result_bytes(op))
        try:
            if isinstance(op, CallOp):
                functions = {
                    each.sym_name.data: each for each in self._module.operation.walk() if isinstance(each, FuncOp)
                }
                return self.call(functions[op.callee.root_reference.data], operands, depth + 1)
            if dialect == "linalg":
                return linalg.evaluate(op, operands, self._evaluate_body, self.check)
            if op.name == "tensor.pad":
                return linalg.pad(op, operands, self._evaluate_body)
            handler = self._handlers.get(dialect)
            if op.name in ("tensor.empty", "tensor.splat"):
                sizes = operands if name == "empty" else operands[1:]
                self.check(8 * prod(max(0, int(size)) for size in sizes))
            elif dialect == "arith":
                refuse_growth(operands)
            return arith.evaluate(op, operands) if handler is None else handler(name, op, operands)
        except PreconditionError as error:
            failed = self._module.failure(op, error.detail)
            raise PreconditionError(failed.detail, index=error.index) from None
        except arith.NotEvaluatedError:
            raise self._module.failure(op, "this operation is not evaluated") from None
        except RequantError as error:
            if isinstance(error, LimitError) or "line" in vars(error):
                raise
            raise self._module.failure(op, error.detail) from None
        except MemoryError:
            limit = self._module.limits.evaluation_bytes
            raise LimitError(f"the values of the module take more than {limit} bytes", limit=limit) from None
        except _MISFITS:
            raise self._module.failure(op, "the operands do not fit the operation") from None

    def _evaluate_body(self, block: Block, arguments: Sequence[Array]) -> list[Array]:
        """Return what the body of a linalg.generic yields, on whole arrays instead of single elements."""
        return self._block(block, arguments, _DEEPEST_CALL)

    @staticmethod
    def _result_bytes(op: Operation) -> int:
        """Return the bytes of the results whose shape the type says. Others are counted as they are made."""
        total = 0
        for result in op.results:
            type_ = result.type
            if isinstance(type_, TensorType) and DYNAMIC_INDEX not in type_.get_shape():
                total += prod(type_.get_shape()) * 8
        return total

    def _check_result(self, op: Operation, declared: Attribute, value: Array) -> None:
        if isinstance(op.parent_op(), Operation) and op.parent_op().name == "linalg.generic":  # type: ignore[union-attr]
            return
        type_ = type_of(declared)
        element = type_.element if isinstance(type_, mlir.TensorType) else type_
        shape = type_.shape if isinstance(type_, mlir.TensorType) else ()
        fits = shape is None or (
            len(shape) == value.ndim
            and all(size in (None, actual) for size, actual in zip(shape, value.shape, strict=True))
        )
        if not fits:
            actual = "x".join(map(str, value.shape)) or "scalar"
            raise self._module.failure(op, f"the result has the shape {actual}, and is declared otherwise")
        if value.dtype != dtype_of(element):
            raise self._module.failure(op, f"the result has elements of {value.dtype}, and is declared otherwise")

    def _stablehlo(self, name: str, op: Operation, operands: list[Array]) -> list[Array]:
        if name == "uniform_quantize":
            source, target = (quantized_part(type_) for type_ in (op.operand_types[0], op.result_types[0]))
            assert isinstance(target, mlir.UniformQuantizedType)
            if isinstance(source, mlir.UniformQuantizedType):
                return [conversions.requantize(operands[0], source, target)]
            element = type_of(element_part(op.operand_types[0]))
            assert isinstance(element, FloatElement)
            return [conversions.quantize(operands[0], element, target, "stablehlo")]
        if name == "uniform_dequantize":
            source = quantized_part(op.operand_types[0])
            assert isinstance(source, mlir.UniformQuantizedType)
            return [conversions.dequantize(operands[0], source, "stablehlo")]
        if name in ("optimization_barrier",):
            return operands
        if name == "pad":
            self.check(8 * padded_size(op, operands[0].shape))
        if name.startswith("dynamic_"):
            self.check(8 * prod(int(size) for size in operands[1].reshape(-1)))
        if (result := moved(name, op, operands)) is not None:
            return [result]
        raw = (
            name in ("select", "clamp")
            and len({element_part(type_) for type_ in (*op.operand_types[1:], *op.result_types)}) == 1
        )
        if (
            op.name in DEQUANTIZED
            and not raw
            and any(quantized_part(each) for each in (*op.operand_types, *op.result_types))
        ):
            return self._through_floats(name, op, operands)
        return [self._computed(name, op, operands, _element(op.result_types[0]))]

    def _through_floats(self, name: str, op: Operation, operands: list[Array]) -> list[Array]:
        """Dequantize, compute in the expressed type, quantize."""
        reals = []
        for operand, type_ in zip(operands, op.operand_types, strict=True):
            source = quantized_part(type_)
            uniform = isinstance(source, mlir.UniformQuantizedType)
            reals.append(conversions.dequantize(operand, source, "stablehlo") if uniform else operand)  # type: ignore[arg-type]
        target = quantized_part(op.result_types[0])
        if not isinstance(target, mlir.UniformQuantizedType):
            return [self._computed(name, op, reals, _element(op.result_types[0]))]
        real = self._computed(name, op, reals, target.expressed)
        return [conversions.quantize(real, target.expressed, target, "stablehlo")]

    def _computed(self, name: str, op: Operation, operands: list[Array], element: mlir.ElementType) -> Array:
        """Return the result of an operation of StableHLO on plain numbers."""
        dtype, get = dtype_of(element), op.attributes.get
        result: Array | None = None
        if name == "constant":
            result = arith.constant(cast(DenseIntOrFPElementsAttr[Any], get("value")), element)
        elif name == "convert":
            result = _converted(operands[0], element)
        elif name == "bitcast_convert":
            result = _bitcast(operands[0], dtype)
        elif name == "compare":
            refuse_growth(operands)
            direction, kind = get("comparison_direction"), get("compare_type")
            assert isinstance(direction, ComparisonDirection)
            if isinstance(kind, ComparisonType) and kind.data == "TOTALORDER" and is_float(operands[0]):
                operands = [_total_order(operand) for operand in operands]
            result = compare(direction.data, operands[0], operands[1])
        elif name == "select":
            refuse_growth(operands)
            result = np.where(operands[0], operands[1], operands[2])
        elif name == "clamp":
            refuse_growth(operands)
            result = np.minimum(np.maximum(operands[1], operands[0]), operands[2])
        elif name == "iota":
            axis = cast(IntegerAttr[Any], get("iota_dimension")).value.data
            shape = static_shape(op)
            result = broadcast(np.arange(shape[axis]), [axis], shape).astype(dtype)
        elif name == "get_dimension_size":
            result = np.array(operands[0].shape[cast(IntegerAttr[Any], get("dimension")).value.data], dtype)
        elif name == "is_finite":
            result = np.isfinite(operands[0].astype(np.float64))
        elif name == "dot":
            dims = DotDimensions(lhs_contracting_dimensions=(operands[0].ndim - 1,), rhs_contracting_dimensions=(0,))
            result = products.dot_general(operands[0], operands[1], dims, dtype, self.check)
        elif name == "dot_general":
            numbers = get("dot_dimension_numbers")
            assert isinstance(numbers, Dot)
            result = products.dot_general(operands[0], operands[1], numbers.data, dtype, self.check)
        elif name == "convolution":
            result = products.convolution(operands[0], operands[1], window_of(op), dtype, self.check)
        elif name == "reduce":
            applied = applied_operation(op)
            if applied is not None and len(operands) == 2:
                axes = integers(get("dimensions"))
                result = products.reduce(
                    applied.name.removeprefix("stablehlo."), operands[0], operands[1], axes, self.check
                )
        elif len(operands) == 1:
            result = unary(name, operands[0])
        elif len(operands) == 2:
            refuse_growth(operands)
            result = binary(name, operands[0], operands[1])
        if result is None:
            raise arith.NotEvaluatedError
        return wrapped(result, element) if isinstance(element, IntegerElement) and result.dtype.kind in "iu" else result

    def _chlo(self, name: str, op: Operation, operands: list[Array]) -> list[Array]:
        dims = integers(op.attributes.get("broadcast_dimensions"))
        rank = max(operand.ndim for operand in operands)
        spread = []
        for operand in operands:
            own = dims if dims and len(dims) == operand.ndim else tuple(range(rank - operand.ndim, rank))
            shape = [1] * rank
            for size, axis in zip(operand.shape, own, strict=True):
                shape[axis] = size
            spread.append(operand.reshape(shape))
        self.check(8 * prod(np.broadcast_shapes(*(operand.shape for operand in spread))))
        result = binary(name.removeprefix("broadcast_"), spread[0], spread[1])
        if result is None:
            raise arith.NotEvaluatedError
        return [wrapped(result, _element(op.result_types[0]))]

    def _quant(self, name: str, op: Operation, operands: list[Array]) -> list[Array]:
        source, target = op.operand_types[0], op.result_types[0]
        if name == "scast":
            return [_stored(operands[0], _element(target))]
        quantized = quantized_part(target if name == "qcast" else source)
        assert isinstance(quantized, mlir.UniformQuantizedType)
        if name == "qcast":
            return [conversions.quantize(operands[0], quantized.expressed, quantized, "mlir")]
        return [conversions.dequantize(operands[0], quantized, "mlir")]

    def _tosa(self, name: str, op: Operation, operands: list[Array]) -> list[Array]:
        if not isinstance(op, Rescale):
            return [
                arith.constant(
                    cast(DenseIntOrFPElementsAttr[Any], op.properties["values"]), _element(op.result_types[0])
                )
            ]
        types = [_element(each) for each in (op.operand_types[0], op.result_types[0])]
        plain = [IntegerElement(_width(each)) for each in types]
        flags = {flag: bool(cast(IntegerAttr[Any], op.properties[flag]).value.data) for flag in FLAGS}
        value = operands[0].view(dtype_of(plain[0]))
        result = conversions.rescale(
            value, plain[0], plain[1], cast(Any, tuple(operands[1:])), flags, op.rounding_mode.data.value
        )
        return [result.view(dtype_of(types[1]))]


def _element(type_: Attribute) -> mlir.ElementType:
    element = type_of(element_part(type_))
    assert not isinstance(element, mlir.TensorType)
    return element


def _stored(value: Array, element: mlir.ElementType) -> Array:
    """Return the same bits as integers of `element`, or as stored numbers of it, signed or not."""
    if not isinstance(element, mlir.UniformQuantizedType):
        return wrapped(value, element)
    stored = value.astype(dtype_of(element))
    spare = 8 * stored.dtype.itemsize - element.storage.width
    return (stored << spare) >> spare


def _width(element: mlir.ElementType) -> int:
    if isinstance(element, mlir.UniformQuantizedType):
        return element.storage.width
    assert isinstance(element, IntegerElement)
    return element.width


def _converted(value: Array, element: mlir.ElementType) -> Array:
    if not isinstance(element, IntegerElement):
        return value.astype(dtype_of(element))
    if element.width == 1:
        return np.asarray(value != 0)
    return to_integer(value, element) if is_float(value) else wrapped(value, element)


def _bitcast(value: Array, dtype: np.dtype[Any]) -> Array:
    if value.dtype.itemsize != dtype.itemsize or np.bool_ in (value.dtype, dtype):
        raise arith.NotEvaluatedError
    return value.view(dtype)


def _total_order(value: Array) -> Array:
    """Return integers in the order of the floats: -NaN, -infinity, ..., -0, +0, ..., NaN."""
    bits = value.view(f"i{value.dtype.itemsize}")
    ordered: Array = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    return ordered
