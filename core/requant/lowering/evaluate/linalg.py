"""linalg.generic and linalg.fill, and tensor.pad, which has a body too.

Parallel loops are whole arrays: the body is evaluated once for all of them, on operands gathered by the indexing maps.
Loops of reductions are steps, in row-major order: the body is evaluated for each, and the output is carried along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.dialects.tensor import PadOp
from xdsl.ir import Block, Operation
from xdsl.ir.affine import AffineDimExpr, AffineMap

from requant.lowering.evaluate.arith import NotEvaluatedError
from requant.lowering.evaluate.arrays import Array, padded

Body = Callable[[Block, Sequence[Array]], list[Array]]
Check = Callable[[int], None]


def evaluate(op: Operation, operands: list[Array], body: Body, check: Check) -> list[Array]:
    """Return the result of an operation of linalg.

    `check` is called with the bytes of each step, and raises where a limit is exceeded. Raises NotEvaluatedError.
    """
    if isinstance(op, FillOp) and len(operands) == 2:
        return [np.full(operands[1].shape, operands[0], operands[1].dtype)]
    if not isinstance(op, GenericOp) or len(op.outputs) != 1:
        raise NotEvaluatedError
    kinds = [kind.data.value for kind in op.iterator_types]
    parallel, maps = kinds.count("parallel"), [each.data for each in op.indexing_maps]
    reduced = len(kinds) - parallel
    if kinds != ["parallel"] * parallel + ["reduction"] * reduced:
        raise NotEvaluatedError
    if maps[-1].results != AffineMap.identity(len(kinds)).results[:parallel] or maps[-1].num_dims != len(kinds):
        raise NotEvaluatedError
    sizes = _loop_sizes(maps, operands)
    shape, steps = sizes[:parallel], sizes[parallel:]
    # Each operation of the body makes one array of the parallel loops.
    check(8 * prod(shape) * (len(op.body.block.ops) + len(operands)))
    total = operands[-1]
    for step in np.ndindex(*steps):
        check(0)
        pairs = zip(operands[:-1], maps[:-1], strict=True)
        gathered = [_gathered(each, map_, shape, step) for each, map_ in pairs]
        (total_of_block,) = body(op.body.block, [*gathered, total])
        total = np.broadcast_to(total_of_block, shape)
    return [total.copy()]


def _loop_sizes(maps: Sequence[AffineMap], operands: Sequence[Array]) -> tuple[int, ...]:
    """Return how often each loop runs: the size of a dimension that it alone indexes."""
    sizes: dict[int, int] = {}
    for map_, operand in zip(maps, operands, strict=True):
        for expression, size in zip(map_.results, operand.shape, strict=True):
            if isinstance(expression, AffineDimExpr) and sizes.setdefault(expression.position, size) != size:
                raise ValueError("the operands disagree in the size of a loop")
    return tuple(sizes[loop] for loop in range(maps[0].num_dims))


def _gathered(value: Array, indices: AffineMap, shape: tuple[int, ...], step: tuple[int, ...]) -> Array:
    """Return the element at `indices` of each point of the parallel loops, in one step of the others."""
    if not step and indices == AffineMap.identity(len(shape)):
        return value
    if indices.num_dims != len(shape) + len(step) or len(indices.results) != value.ndim:
        raise ValueError("the indexing map does not fit")
    grid: list[Any] = [
        np.arange(size).reshape([-1 if axis == own else 1 for own in range(len(shape))])
        for axis, size in enumerate(shape)
    ]
    places = tuple(np.asarray(each.eval([*grid, *step], [])) for each in indices.results)
    if any(
        place.size and (place.min() < 0 or place.max() >= size) for place, size in zip(places, value.shape, strict=True)
    ):
        raise ValueError("an index is outside the tensor")
    return np.broadcast_to(value[places], shape) if places else np.broadcast_to(value, shape)


def pad(op: Operation, operands: list[Array], body: Body) -> list[Array]:
    """Return the result of a tensor.pad with static sizes, whose body gives the same for every index."""
    assert isinstance(op, PadOp)
    block = op.region.block
    if len(operands) != 1 or any(each.uses for each in block.args):
        raise NotEvaluatedError
    low, high = (tuple(each.get_values()) for each in (op.static_low, op.static_high))
    declared = cast(TensorType[Any], op.result.type).get_shape()
    if (
        declared != tuple(sum(each) for each in zip(low, operands[0].shape, high, strict=True))
        or min(*low, *high, 0) < 0
    ):
        raise ValueError("the result has another shape")
    (fill,) = body(block, [np.zeros((), np.int64)] * len(block.args))
    return [padded(operands[0], fill, low, high, (0,) * len(low))]
