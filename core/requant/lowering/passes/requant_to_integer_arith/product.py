"""Products of quantized tensors as loops: sums of stored integers, what corrects them for zero points, the output.

A contraction says which products a dot, dot_general or convolution sums to which element. Sums that stay are i32 at the
scale of both operands together, which a bias is added to before they are scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, TensorType, i8, i32, i64
from xdsl.dialects.tensor import EmptyOp, PadOp
from xdsl.dialects.tensor import YieldOp as PadYieldOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr

from requant import mlir
from requant.convert.scaling import ScalingPlan
from requant.errors import TypeFitError, UnsupportedError
from requant.integer.accumulation import Integers
from requant.integer.output import Side, plan_output
from requant.integer.product import choose_accumulator, product_operand, rule_of_sums
from requant.lowering.dialects.stablehlo.attributes import Dot, DotDimensions
from requant.lowering.dialects.stablehlo.operations import window_of
from requant.lowering.passes.requant_to_integer_arith.loops import Choice, Loops
from requant.lowering.passes.requant_to_integer_arith.scaling import is_signed
from requant.lowering.passes.rewriting import Emitter
from requant.lowering.quantized import scalar_integer
from requant.plan.operands import QuantizedOperand, StoredOperand
from requant.profiles import profile_named
from requant.profiles.rule import Accumulator

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
            contraction = _convolution(op, shapes[0], shapes[1], shapes[2])
        else:
            contraction = _matrix_product(op, shapes[0], shapes[1])
        if contraction.sizes != tuple(shapes[2]):
            raise TypeFitError(f"the result has the shape {list(shapes[2])}, and the sums {list(contraction.sizes)}")
        return contraction


def _matrix_product(op: Operation, left: Sequence[int], right: Sequence[int]) -> Contraction:
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


@dataclass(frozen=True, slots=True)
class SumType:
    """The scales of i32 sums with zero points 0, as f32, and the dimension that they go along, if there are several."""

    scales: tuple[float, ...]
    axis: int | None

    @classmethod
    def of(cls, type_: mlir.ElementType) -> SumType | None:
        """Return the scales of a quantized type with i32 storage, None for any other."""
        if not isinstance(type_, mlir.UniformType | mlir.UniformPerAxisType):
            return None
        storage = type_.storage
        if storage.width != 32 or not storage.signed or (storage.minimum, storage.maximum) != storage.default_bounds:
            return None
        if isinstance(type_, mlir.UniformType):
            return None if type_.zero_point else cls((_f32(type_.scale),), None)
        return None if any(type_.zero_points) else cls(tuple(map(_f32, type_.scales)), type_.axis)

    @classmethod
    def of_product(cls, lhs: StoredOperand, rhs: StoredOperand, contraction: Contraction) -> SumType | None:
        """Return the scales of the sums of two operands, None where they have none, or one for each row."""
        if not isinstance(lhs, QuantizedOperand) or not isinstance(rhs, QuantizedOperand) or len(lhs.scales) != 1:
            return None
        scale = _f32(lhs.scales[0])
        scales = tuple(_f32(scale * _f32(each)) for each in rhs.scales)
        return cls(scales, None if rhs.axis is None else contraction.axes(contraction.rhs)[rhs.axis])


def _f32(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction of two operands, summed in `accumulator`. `is_sum`: its result is the sums as they are."""

    contraction: Contraction
    lhs: StoredOperand
    rhs: StoredOperand
    accumulator: Accumulator
    is_sum: bool
    choice: Choice

    @classmethod
    def of(
        cls, contraction: Contraction, types: Sequence[mlir.TensorType], result: mlir.TensorType, choice: Choice
    ) -> Product:
        """Plan the sums. Raises UnsupportedError for types that have none."""
        lhs, rhs = (
            product_operand(type_, side, choice.profile) for type_, side in zip(types, ("lhs", "rhs"), strict=True)
        )
        for operand, place in ((lhs, contraction.lhs), (rhs, contraction.rhs)):
            dimensions = zip(operand.blocks, operand.tensor.shape or (), contraction.axes(place), strict=True)
            along_sums = any(block == 1 and size != 1 and axis is None for block, size, axis in dimensions)
            if along_sums and len(operand.zero_points) > 1:
                raise UnsupportedError(
                    "parameters along a dimension that is summed over cannot be factored out of a sum"
                )
        if contraction.padding and len(lhs.zero_points) > 1:
            raise UnsupportedError("the input of a convolution has one scale and one zero point")
        own = SumType.of(result.element)
        is_sum = own is not None and own == SumType.of_product(lhs, rhs, contraction)
        kept = Accumulator.I32
        if not is_sum:
            integers = Integers.of_operand(lhs), Integers.of_operand(rhs)
            rule = profile_named(choice.profile).product_rule(contraction.operation).of_batches(contraction.batched)
            kept = choose_accumulator(*integers, result.element, None, None, rule.accumulator)
        return cls(contraction, lhs, rhs, kept, is_sum, choice)

    @property
    def element(self) -> IntegerType:
        """The type of the sums."""
        return i32 if self.accumulator is Accumulator.I32 else i64

    def plan(self, output: mlir.TensorType) -> ScalingPlan:
        """Return the output stage. Raises UnsupportedError where it has no fixed point."""
        contraction = self.contraction
        rule = profile_named(self.choice.profile).product_rule(contraction.operation).of_batches(contraction.batched)
        rule = rule_of_sums(
            rule, self.accumulator, self.lhs, self.rhs, contraction.depth if contraction.operation == "matmul" else None
        )
        sides = (
            Side(self.lhs, contraction.axes(contraction.lhs)),
            Side(self.rhs, contraction.axes(contraction.rhs)),
        )
        shape = contraction.sizes
        order = tuple(range(len(shape)))
        used = self.choice.scheme
        self.choice.check(used or rule.scheme)
        stage = plan_output(shape, self.accumulator, sides, output, order, rule, self.choice.profile, used)
        assert isinstance(stage.plan, ScalingPlan)
        return stage.plan

    def sums(self, emitter: Emitter, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """Emit sum (a - za) * (b - zb): the sum of a * b, and where there are zero points what corrects it."""
        if any(any(pair) for pair in self.contraction.padding):
            lhs = _padded(emitter, lhs, self.contraction, self.lhs.zero_points[0])
        loops = Loops(emitter, self.contraction.sizes, self.element, self.contraction.summed)
        a = loops.extend(loops.read(lhs, self.contraction.lhs), signed=is_signed(self.lhs), element=self.element)
        b = loops.extend(loops.read(rhs, self.contraction.rhs), signed=is_signed(self.rhs), element=self.element)
        products = loops.inner.add(arith.MuliOp(a, b))
        total = loops.finish(loops.inner.add(arith.AddiOp(loops.total, products)))
        of_lhs, of_rhs = any(self.lhs.zero_points), any(self.rhs.zero_points)
        return self._corrected(emitter, total, lhs, rhs) if of_lhs or of_rhs else total

    def _corrected(self, emitter: Emitter, sums: SSAValue, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        """Emit sums - za * (sum of b) - zb * (sum of a) + K * za * zb, each only where its zero points are not 0."""
        contraction, element = self.contraction, self.element
        loops = Loops(emitter, contraction.sizes, element)
        corrected = loops.read(sums)
        zeros: list[SSAValue] = []
        for operand, place, other, other_value, other_place in (
            (self.lhs, contraction.lhs, self.rhs, rhs, contraction.rhs),
            (self.rhs, contraction.rhs, self.lhs, lhs, contraction.lhs),
        ):
            if not any(operand.zero_points):
                continue
            total, kept = self._side_sums(emitter, other, other_value, other_place)
            zeros.append(self._zero_point(loops, operand, place))
            part = loops.inner.add(arith.MuliOp(loops.read(total, kept), zeros[-1]))
            corrected = loops.inner.add(arith.SubiOp(corrected, part))
        if len(zeros) == 2:
            both = loops.inner.add(arith.MuliOp(zeros[0], zeros[1]))
            both = loops.inner.add(arith.MuliOp(both, loops.constant(contraction.depth, element)))
            corrected = loops.inner.add(arith.AddiOp(corrected, both))
        return loops.finish(corrected)

    def _zero_point(self, loops: Loops, operand: StoredOperand, place: Place) -> SSAValue:
        numbers = operand.zero_points
        along = [
            axis for axis, block in zip(self.contraction.axes(place), operand.blocks, strict=True)
            if axis is not None and block == 1
        ][:1] if len(numbers) > 1 else []  # fmt: skip
        return loops.vector(numbers, self.element, [AffineDimExpr(axis) for axis in along], [len(numbers)])

    def _side_sums(
        self, emitter: Emitter, operand: StoredOperand, value: SSAValue, place: Place
    ) -> tuple[SSAValue, Place]:
        """Emit the sums of one side's stored integers, and return them and where each element of the result has its."""
        contraction = self.contraction
        rank, summed = len(contraction.sizes), contraction.summed
        used = {loop for expression in place for loop in expression.used_dims()}
        kept = sorted(loop for loop in used if loop < rank)
        own = {loop: AffineDimExpr(index) for index, loop in enumerate(kept)}
        own |= {rank + index: AffineDimExpr(len(kept) + index) for index in range(len(summed))}
        renamed = [own.get(loop, AffineDimExpr(0)) for loop in range(rank + len(summed))]
        read = [expression.replace_dims_and_symbols(renamed, []) for expression in place]
        loops = Loops(emitter, [contraction.sizes[loop] for loop in kept], self.element, summed)
        number = loops.extend(loops.read(value, read), signed=is_signed(operand), element=self.element)
        windows = [AffineDimExpr(len(kept) + index) for index in range(len(summed))]
        if not set(windows) <= set(read):
            # Loops get their sizes from tensors that they alone index: here from one without contents.
            loops.read(emitter.add(EmptyOp([], TensorType(i8, summed))), windows)
        total = loops.finish(loops.inner.add(arith.AddiOp(loops.total, number)))
        return total, tuple(AffineDimExpr(loop) for loop in kept)


def _padded(emitter: Emitter, value: SSAValue, contraction: Contraction, zero_point: int) -> SSAValue:
    """Emit the input with the zero point around it, which stands for a real zero."""
    type_ = cast(TensorType[Any], value.type)
    fill = emitter.add(arith.ConstantOp(scalar_integer(zero_point, type_.element_type)))
    low, high = zip(*contraction.padding, strict=True)
    shape = [sum(each) for each in zip(low, type_.get_shape(), high, strict=True)]
    block = Block(arg_types=[IndexType()] * len(shape))
    block.add_op(PadYieldOp(fill))
    return emitter.add(PadOp(value, [], [], Region(block), low, high, TensorType(type_.element_type, shape)))
