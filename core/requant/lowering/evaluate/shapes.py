"""Operations that move elements: StableHLO's, on elements of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from requant.lowering.dialects.stablehlo.format import integers
from requant.lowering.evaluate.arrays import Array


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
