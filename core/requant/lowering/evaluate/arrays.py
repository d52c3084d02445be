"""Elements as arrays, and operations that move them.

Integers are in the narrowest of numpy's, i1 is bool, bf16 as ml_dtypes has it, others native.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from math import prod
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from requant import mlir
from requant.errors import UnsupportedError
from requant.formats.elements import FloatElement, IndexElement, IntegerElement, integer_dtype
from requant.lowering.dialects.stablehlo.formats import integers

Array = NDArray[Any]

_FLOATS: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


def dtype_of(element: mlir.ElementType) -> np.dtype[Any]:
    """Return how elements are held while a module runs. Raises UnsupportedError for types without arithmetic here."""
    if isinstance(element, IntegerElement) and element.width <= 64:
        if element.width == 1:
            return np.dtype(np.bool_)
        held: np.dtype[Any] = element.dtype
        return held
    if isinstance(element, IndexElement):
        return np.dtype(np.int64)
    if isinstance(element, FloatElement) and element.name in _FLOATS:
        return _FLOATS[element.name]
    if isinstance(element, mlir.UniformType | mlir.UniformPerAxisType | mlir.UniformSubChannelType):
        storage = element.storage
        if isinstance(storage.element, IntegerElement):
            return integer_dtype(storage.width, signed=storage.signed)
    raise UnsupportedError("modules are evaluated on integers to 64 bits, f16, bf16, f32, f64 and integer storage")


def refuse_growth(operands: Sequence[Array]) -> None:
    """Raise ValueError where operands of dynamic shapes would be spread over one larger than each of them."""
    sizes = [operand.size for operand in operands]
    if prod(np.broadcast_shapes(*(operand.shape for operand in operands))) != max(sizes, default=1):
        raise ValueError("the operands differ in shape")


def is_float(array: Array) -> bool:
    """Return whether elements are floats."""
    return array.dtype.kind == "f" or array.dtype == _FLOATS["bf16"]


def wrapped(array: Array, element: mlir.ElementType) -> Array:
    """Return integers as their lowest bits: those that the element type holds, in its own container."""
    if not isinstance(element, IntegerElement):
        return array.astype(dtype_of(element))
    if element.width == 1:
        return (array.astype(np.int64) & 1).astype(np.bool_)
    stored = array.astype(element.dtype)
    spare = 8 * element.dtype.itemsize - element.width
    return ((stored << spare) >> spare) if spare else stored


def to_integer(values: Array, element: IntegerElement) -> Array:
    """Convert floats as StableHLO's interpreter does: truncate toward zero, saturate, NaN gives 0."""
    wide = values.astype(np.float64)
    whole = np.trunc(np.where(np.isnan(wide), 0.0, wide))
    inside = np.clip(whole, -(2.0**63), 2.0**63 - 1024)
    clipped = np.clip(inside.astype(np.int64), element.minimum, min(element.maximum, 2**63 - 1))
    clipped = np.where(whole >= 2.0**63, min(element.maximum, 2**63 - 1), clipped)
    return clipped.astype(dtype_of(element))


def poison(values: Array, element: IntegerElement) -> NDArray[np.bool_]:
    """Return which floats MLIR's conversions to `element` do not define, flat."""
    wide = np.trunc(values.astype(np.float64).reshape(-1))
    with np.errstate(invalid="ignore"):
        wrong: NDArray[np.bool_] = ~((wide >= float(element.minimum)) & (wide < float(element.maximum) + 1.0))
    return wrong


poisoned: ContextVar[NDArray[np.bool_] | None] = ContextVar("poisoned", default=None)
"""Of a function on single elements: where conversions note for which of them they are undefined, and go on."""


def static_shape(op: Operation) -> tuple[int, ...]:
    """Return the shape of the one result of `op`."""
    return tuple(cast(TensorType[Any], op.result_types[0]).get_shape())


def broadcast(value: Array, dims: Sequence[int], shape: Sequence[int]) -> Array:
    """Spread `value` over `shape`; its dimensions are those at `dims`."""
    if len(dims) != value.ndim or any(not 0 <= axis < len(shape) for axis in dims) or len({*dims}) != len(dims):
        raise ValueError("the dimensions of the broadcast do not fit")
    order = np.argsort(np.array(dims, np.int64), kind="stable").tolist() if dims else []
    sorted_dims = [dims[index] for index in order]
    source = value.transpose(order) if order else value
    target = [1] * len(shape)
    for size, axis in zip(source.shape, sorted_dims, strict=True):
        target[axis] = size
    return np.broadcast_to(source.reshape(target), tuple(shape)).copy()


def padded(value: Array, fill: Array, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Array:
    """Return `value` with `fill` before, after and between its elements; negative padding takes away."""
    spread = [size + max(size - 1, 0) * gap for size, gap in zip(value.shape, interior, strict=True)]
    inner = np.full(spread, fill, value.dtype)
    inner[tuple(slice(None, None, gap + 1) for gap in interior)] = value
    outer = np.full(
        [max(before, 0) + size + max(after, 0) for before, size, after in zip(low, spread, high, strict=True)],
        fill,
        value.dtype,
    )
    outer[tuple(slice(max(before, 0), max(before, 0) + size) for before, size in zip(low, spread, strict=True))] = inner
    cut = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for before, after, size in zip(low, high, outer.shape, strict=True)
    )
    return outer[cut].copy()


def moved(name: str, op: Operation, operands: Sequence[Array]) -> Array | None:
    """Return what an operation that only moves elements gives, None if `name` is none of them."""
    get = op.attributes.get
    if name in ("reshape", "dynamic_reshape"):
        shape = static_shape(op) if name == "reshape" else tuple(int(size) for size in operands[1])
        if prod(shape) != operands[0].size:
            raise ValueError("another number of elements")
        return operands[0].reshape(shape)
    if name == "broadcast_in_dim":
        return broadcast(operands[0], integers(get("broadcast_dimensions")), static_shape(op))
    if name == "dynamic_broadcast_in_dim":
        return broadcast(operands[0], integers(get("broadcast_dimensions")), [int(size) for size in operands[1]])
    if name == "transpose":
        return np.ascontiguousarray(operands[0].transpose(integers(get("permutation"))))
    if name == "reverse":
        return np.flip(operands[0], integers(get("dimensions"))).copy()
    if name == "slice":
        columns = [integers(get(key)) for key in ("start_indices", "limit_indices", "strides")]
        ranges = list(zip(*columns, strict=True))
        for (start, limit, stride), size in zip(ranges, operands[0].shape, strict=True):
            if not 0 <= start <= limit <= size or stride < 1:
                raise ValueError("the ranges do not fit the operand")
        return operands[0][tuple(slice(*each) for each in ranges)].copy()
    if name == "pad":
        columns = [integers(get(key)) for key in ("edge_padding_low", "edge_padding_high", "interior_padding")]
        return padded(operands[0], operands[1], *columns)
    if name == "concatenate":
        return np.concatenate(operands, axis=cast(Any, op.attributes["dimension"]).value.data)
    return None


def padded_size(op: Operation, shape: Sequence[int]) -> int:
    """Return how many elements padding makes of `shape`, counted before anything is made."""
    get = op.attributes.get
    columns = [integers(get(key)) for key in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    return prod(
        max(low, 0) + size + max(size - 1, 0) * max(gap, 0) + max(high, 0)
        for size, low, high, gap in zip(shape, *columns, strict=True)
    )
