"""Which products a dot, dot_general or convolution sums to which element: its loops, and where they read both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation
from xdsl.ir.affine import AffineDimExpr, AffineExpr

from requant.errors import TypeFitError, UnsupportedError
from requant.lowering.dialects.stablehlo.attributes import Dot, DotDimensions
from requant.lowering.dialects.stablehlo.window import window_of

Place = tuple[AffineExpr, ...]


@dataclass(frozen=True, slots=True)
class Contraction:
    """The loops over `sizes`, which are the result's, come first; after them those that are summed over.

    `lhs` and `rhs` say where each side is read. `padding`: before and after each dimension of the left side.
    `operation` is the rule of a profile that scales the sums; `batched`: the right side has batch dimensions.
    """

    operation: str
    sizes: tuple[int, ...]
    summed: tuple[int, ...]
    lhs: Place
    rhs: Place
    padding: tuple[tuple[int, int], ...] = ()
    batched: bool = False

    @property
    def depth(self) -> int:
        """How many products there are in a sum."""
        return prod(self.summed)

    def axes(self, place: Place) -> tuple[int | None, ...]:
        """Return the dimension of the result that each dimension of a side is, None for those that are summed over."""
        return tuple(
            expression.position
            if isinstance(expression, AffineDimExpr) and expression.position < len(self.sizes)
            else None
            for expression in place
        )

    @classmethod
    def of(cls, op: Operation) -> Contraction:
        """Return what `op` sums. Raises TypeFitError where its shapes disagree, UnsupportedError for some windows."""
        shapes = [cast(TensorType[Any], type_).get_shape() for type_ in (*op.operand_types, *op.result_types)]
        if any(size < 0 for shape in shapes for size in shape):
            raise TypeFitError("a shape has dynamic dimensions; this pass takes static shapes")
        if op.name == "stablehlo.convolution":
            found = _convolution(op, shapes[0], shapes[1], shapes[2])
        else:
            found = _product(op, shapes[0], shapes[1])
        if found.sizes != tuple(shapes[2]):
            raise TypeFitError(f"the result has the shape {list(shapes[2])}, and the sums {list(found.sizes)}")
        return found


def _product(op: Operation, left: Sequence[int], right: Sequence[int]) -> Contraction:
    numbers = op.attributes.get("dot_dimension_numbers")
    dims = numbers.data if isinstance(numbers, Dot) else DotDimensions((), (), (len(left) - 1,), (0,))
    batching = tuple(zip(dims.lhs_batching_dimensions, dims.rhs_batching_dimensions, strict=True))
    summed = tuple(zip(dims.lhs_contracting_dimensions, dims.rhs_contracting_dimensions, strict=True))
    free = [
        [axis for axis in range(len(shape)) if axis not in {pair[side] for pair in (*batching, *summed)}]
        for side, shape in enumerate((left, right))
    ]
    if any(left[a] != right[b] for a, b in (*batching, *summed)):
        raise TypeFitError("the operands disagree in batching or contracting dimensions")
    sizes = (*(left[a] for a, _ in batching), *(left[a] for a in free[0]), *(right[b] for b in free[1]))
    places = []
    for side, shape in enumerate((left, right)):
        first = len(batching) + (len(free[0]) if side else 0)
        loops = {pair[side]: loop for loop, pair in enumerate(batching)}
        loops |= {axis: first + index for index, axis in enumerate(free[side])}
        loops |= {pair[side]: len(sizes) + index for index, pair in enumerate(summed)}
        places.append(tuple(AffineDimExpr(loops[axis]) for axis in range(len(shape))))
    depth = tuple(left[a] for a, _ in summed)
    return Contraction("matmul", sizes, depth, places[0], places[1], batched=bool(batching))


def _convolution(op: Operation, left: Sequence[int], right: Sequence[int], result: Sequence[int]) -> Contraction:
    window = window_of(op)
    dims = window.dimensions
    if set(window.lhs_dilation) > {1} or any(window.reversal) or window.batch_groups != 1:
        raise UnsupportedError("a convolution with lhs_dilation, window_reversal or batch groups is not rewritten")
    if any(size < 0 for pair in window.padding for size in pair):
        raise UnsupportedError("a convolution with negative padding is not rewritten")
    groups, channels, outputs = window.feature_groups, right[dims.kernel.first], right[dims.kernel.second]
    if groups < 1 or left[dims.input.second] != channels * groups or outputs % groups:
        raise TypeFitError("the features of input and kernel disagree")
    rank, spatial = len(result), range(len(dims.input.spatial))
    loop = {place: AffineDimExpr(place) for place in range(rank + len(spatial) + 1)}
    batch, feature, channel = loop[dims.output.first], loop[dims.output.second], loop[rank + len(spatial)]
    lhs: dict[int, AffineExpr] = {dims.input.first: batch, dims.input.second: channel}
    if groups > 1:
        group = feature if groups == outputs else feature // (outputs // groups)
        lhs[dims.input.second] = _times(group, channels) + channel
    rhs = {dims.kernel.first: channel, dims.kernel.second: feature}
    sizes = {dims.output.first: left[dims.input.first], dims.output.second: outputs}
    padding = {dims.input.first: (0, 0), dims.input.second: (0, 0)}
    for index in spatial:
        tap, stride, step = loop[rank + index], window.strides[index], window.rhs_dilation[index]
        source, kernel, target = (each.spatial[index] for each in (dims.input, dims.kernel, dims.output))
        lhs[source] = _times(loop[target], stride) + _times(tap, step)
        rhs[kernel] = tap
        padding[source] = window.padding[index]
        reach = left[source] + sum(window.padding[index]) - (right[kernel] - 1) * step - 1
        sizes[target] = max(reach // stride + 1, 0)
    summed = (*(right[dims.kernel.spatial[index]] for index in spatial), channels)
    return Contraction(
        "conv2d", tuple(sizes[axis] for axis in range(rank)), summed, tuple(lhs[axis] for axis in range(len(left))),
        tuple(rhs[axis] for axis in range(len(right))), tuple(padding[axis] for axis in range(len(left))),
    )  # fmt: skip


def _times(expression: AffineExpr, factor: int) -> AffineExpr:
    return expression if factor == 1 else expression * factor
