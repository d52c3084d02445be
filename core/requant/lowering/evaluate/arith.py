"""The operations that the lowerings emit: arith, tensor and shape, on whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation

from requant import mlir
from requant.errors import PreconditionError
from requant.formats.elements import IntegerElement, Signedness
from requant.lowering.evaluate.arrays import Array, dtype_of, poison, poisoned, wrapped
from requant.lowering.quantized import element_part, type_of


class NotEvaluatedError(Exception):
    """The operation is not among those that are evaluated. The evaluator says which it is."""


def constant(value: Attribute, element: mlir.ElementType) -> Array:
    """Return the elements of a constant."""
    dtype = dtype_of(element)
    if isinstance(value, DenseIntOrFPElementsAttr):
        held = cast(Any, value)
        wide: np.dtype[Any] = np.dtype(np.int64) if dtype.kind in "iub" else np.dtype(np.float64)
        numbers = held.get_values()
        if wide.kind == "i" and any(number >> 63 not in (0, -1) for number in numbers):
            wide = np.dtype(np.uint64)
        shaped: Array = np.array(numbers, wide).astype(dtype).reshape(held.get_shape())
        return shaped
    if isinstance(value, IntegerAttr | FloatAttr):
        return np.array(cast(Any, value).value.data, dtype)
    raise NotEvaluatedError


_BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "addi": np.add, "subi": np.subtract,
    "muli": np.multiply, "maxsi": np.maximum, "minsi": np.minimum, "andi": np.bitwise_and, "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
}  # fmt: skip
_COMPARED: tuple[Callable[[Array, Array], Any], ...] = (
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal, np.less, np.less_equal, np.greater,
    np.greater_equal,
)  # fmt: skip


def evaluate(op: Operation, operands: list[Array]) -> list[Array]:
    """Return the results of an operation of arith, tensor or shape. Raises NotEvaluatedError, PreconditionError."""
    element = type_of(element_part(op.result_types[0]))
    assert not isinstance(element, mlir.TensorType)
    dialect, _, name = op.name.partition(".")
    if dialect == "arith":
        return [_arith(name, op, operands, element)]
    if dialect == "tensor":
        return [_tensor(name, op, operands, dtype_of(element))]
    if dialect == "shape":
        return _shape(name, operands)
    raise NotEvaluatedError


def _unsigned(value: Array) -> Array:
    return value.view(f"u{value.dtype.itemsize}") if value.dtype.kind == "i" else value


def _arith(name: str, op: Operation, operands: list[Array], element: mlir.ElementType) -> Array:
    if name == "constant":
        return constant(op.properties["value"], element)
    if name in _BINARY:
        return wrapped(_BINARY[name](*operands), element)
    if name in ("maxui", "minui"):
        chosen = (np.maximum if name == "maxui" else np.minimum)(*_logical(operands, element))
        return wrapped(chosen.view(operands[0].dtype), element)
    if name in ("fptosi", "fptoui"):
        assert isinstance(element, IntegerElement)
        logical = IntegerElement(element.width, Signedness.SIGNED if name == "fptosi" else Signedness.UNSIGNED)
        value, wrong, noted = operands[0], poison(operands[0], logical), poisoned.get()
        if noted is not None and noted.size == wrong.size:
            noted |= wrong
            value = np.where(wrong.reshape(value.shape), value.dtype.type(0), value)
        elif wrong.any():
            detail = f"a float does not fit {element.width} bits after truncation, and MLIR defines no result for it"
            raise PreconditionError(detail, index=int(np.argmax(wrong)))
        whole = np.trunc(value.astype(np.float64)).astype(np.int64)
        return wrapped(whole, element)
    if name in ("sitofp", "uitofp"):
        source = type_of(element_part(op.operand_types[0]))
        value = operands[0] if name == "sitofp" else _logical(operands, source)[0]
        return _rounded(value, dtype_of(element))
    if name in ("extf", "truncf"):
        return operands[0].astype(dtype_of(element))
    if name == "extsi" or name == "trunci":
        # The one bit of i1 is its sign.
        signed = -operands[0].astype(np.int8) if name == "extsi" and operands[0].dtype == np.bool_ else operands[0]
        return wrapped(signed, element)
    if name == "extui":
        return wrapped(_logical(operands, type_of(element_part(op.operand_types[0])))[0], element)
    if name in ("cmpi", "cmpf"):
        return _comparison(name, op, operands)
    if name == "select":
        return np.where(operands[0], operands[1], operands[2])
    if name in ("shli", "shrsi", "shrui"):
        return _shift(name, operands, element)
    if name == "index_cast":
        return wrapped(operands[0], element)
    raise NotEvaluatedError


def _rounded(value: Array, dtype: np.dtype[Any]) -> Array:
    """Convert integers to floats with one rounding: binary64 holds those of 32 bits; numpy converts wider ones."""
    return value.astype(np.float64).astype(dtype) if value.dtype.itemsize < 8 else value.astype(dtype)


def _logical(operands: Sequence[Array], element: Any) -> list[Array]:
    """Return signless integers read as unsigned."""
    if not isinstance(element, IntegerElement) or element.width == 1:
        return [operand.astype(np.uint8) for operand in operands]
    mask = (1 << element.width) - 1
    return [_unsigned(operand) & np.array(mask, f"u{operand.dtype.itemsize}") for operand in operands]


def _comparison(name: str, op: Operation, operands: list[Array]) -> Array:
    predicate = cast(IntegerAttr[Any], op.properties["predicate"]).value.data
    if name == "cmpf" or predicate >= len(_COMPARED):
        raise NotEvaluatedError
    if predicate >= 6:
        operands = _logical(operands, type_of(element_part(op.operand_types[0])))
    results: Array = np.asarray(_COMPARED[predicate](*operands))
    return results


def _shift(name: str, operands: list[Array], element: mlir.ElementType) -> Array:
    assert isinstance(element, IntegerElement)
    value, places = operands
    outside = np.flatnonzero(((places < 0) | (places >= element.width)).reshape(-1))
    if outside.size:
        raise PreconditionError("the shift amount is not smaller than the bit width", index=int(outside[0]))
    if name == "shrui":
        value = _logical([value], element)[0]
        return wrapped(value >> places.astype(value.dtype), element)
    return wrapped(value << places if name == "shli" else value >> places, element)


def _tensor(name: str, op: Operation, operands: list[Array], dtype: np.dtype[Any]) -> Array:
    if name == "reshape":
        shape = tuple(int(size) for size in operands[1])
        if prod(shape) != operands[0].size:
            raise ValueError("another number of elements")
        return operands[0].reshape(shape)
    if name == "dim":
        return np.array(operands[0].shape[int(operands[1])], dtype)
    if name == "from_elements":
        return np.array([int(each) for each in operands], dtype).reshape(
            cast(TensorType[Any], op.result_types[0]).get_shape()
        )
    if name in ("splat", "empty"):
        sizes = iter(int(each) for each in operands[name == "splat" :])
        declared = cast(TensorType[Any], op.result_types[0]).get_shape()
        shape = tuple(next(sizes) if size == DYNAMIC_INDEX else size for size in declared)
        if prod(shape) > 1 << 28:
            raise ValueError("too many elements")
        return np.full(shape, operands[0] if name == "splat" else 0, dtype)
    raise NotEvaluatedError


def _shape(name: str, operands: list[Array]) -> list[Array]:
    if name == "shape_of":
        return [np.array(operands[0].shape, np.int64)]
    if name == "num_elements":
        return [np.array(prod(int(size) for size in operands[0]), np.int64)]
    if name == "split_at":
        at = int(operands[1])
        return [operands[0][:at], operands[0][at:]]
    raise NotEvaluatedError
