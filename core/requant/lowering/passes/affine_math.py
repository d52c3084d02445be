"""Scales and zero points as constants of StableHLO, requantization with merged ones, and products of quantized tensors.

Quantized dot, dot_general and convolution are integer products and corrections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseArrayBase, IntegerType, TensorType, f32, i8, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from requant import mlir
from requant.lowering.dialects.stablehlo.attributes import Dot, DotDimensions, Layout
from requant.lowering.dialects.stablehlo.operations import OPERATIONS, padding_attribute, reducer, window_of
from requant.lowering.passes.rewriting import (
    Emitter,
    broadcast,
    constant,
    dimension,
    float_constant,
    integer_constant,
    make,
)
from requant.lowering.quantized import dense, element_part, storage_attribute, storage_type, truncated, with_element
from requant.schemes.scheme import rounded_to_f32

Uniform = mlir.UniformType | mlir.UniformPerAxisType


def parameters(emitter: Emitter, type_: Uniform, *, float_zero_points: bool) -> tuple[SSAValue, SSAValue, int | None]:
    """Emit scale and zero point, as scalars or as vectors, and return them and the axis of the vectors."""
    if isinstance(type_, mlir.UniformType):
        scale = emitter.add(float_constant(rounded_to_f32(type_.scale)))
        point = type_.zero_point
        shift = float_constant(rounded_to_f32(point)) if float_zero_points else integer_constant(point)
        return scale, emitter.add(shift), None
    scale = emitter.add(float_constant([rounded_to_f32(each) for each in type_.scales]))
    points = type_.zero_points
    shift = float_constant([rounded_to_f32(each) for each in points]) if float_zero_points else integer_constant(points)
    return scale, emitter.add(shift), type_.axis


def bounds(emitter: Emitter, storage: mlir.StorageType) -> tuple[SSAValue, SSAValue]:
    """Emit the storage bounds as floats."""
    low = emitter.add(float_constant(rounded_to_f32(storage.minimum)))
    return low, emitter.add(float_constant(rounded_to_f32(storage.maximum)))


def requantize(emitter: Emitter, value: SSAValue, source: Uniform, target: Uniform, result: Attribute) -> SSAValue:
    """Emit f32(q) * f32(ms) + f32(mz), clamped where `result` is narrower than 32 bits, rounded, converted.

    ms = s_in / s_out and mz = z_out - z_in * ms in f64; mz is left out where all of it is 0.
    """
    if source == target:
        return emitter.add(make("convert", [value], result))
    real = with_element(result, f32)
    number = emitter.add(make("convert", [value], real))
    number = _merged(emitter, number, source, target)
    element = element_part(result)
    if isinstance(element, IntegerType) and element.width.data < 32:
        low, high = bounds(emitter, target.storage)
        number = emitter.add(make("clamp", [low, number, high], number.type))
    number = emitter.add(make("round_nearest_even", [number], real))
    return emitter.add(make("convert", [number], result))


def _merged(emitter: Emitter, value: SSAValue, source: Uniform, target: Uniform) -> SSAValue:
    if isinstance(source, mlir.UniformType) and isinstance(target, mlir.UniformType):
        ratio = source.scale / target.scale
        factor = emitter.add(float_constant(rounded_to_f32(ratio)))
        value = emitter.add(broadcast("multiply", value, factor, value.type))
        offset = target.zero_point - source.zero_point * ratio
        if offset != 0:
            value = emitter.add(
                broadcast("add", value, emitter.add(float_constant(rounded_to_f32(offset))), value.type)
            )
        return value
    axis = next(each.axis for each in (target, source) if isinstance(each, mlir.UniformPerAxisType))
    count = max(len(source.scales), len(target.scales))
    spread = [each * count if len(each) == 1 else each for each in (source.scales, target.scales)]
    points = [each * count if len(each) == 1 else each for each in (source.zero_points, target.zero_points)]
    ratios = [s_in / s_out for s_in, s_out in zip(*spread, strict=True)]
    offsets = [
        rounded_to_f32(z_out - z_in * ratio) for z_in, z_out, ratio in zip(points[0], points[1], ratios, strict=True)
    ]
    factors = emitter.add(float_constant([rounded_to_f32(ratio) for ratio in ratios]))
    spread_type = _with_size(value.type, axis, count)
    value = emitter.add(broadcast("multiply", value, factors, spread_type, axis))
    if any(offsets):
        value = emitter.add(broadcast("add", value, emitter.add(float_constant(offsets)), spread_type, axis))
    return value


def _with_size(type_: Attribute, axis: int, size: int) -> Attribute:
    """Return a tensor type whose dimension `axis` has `size`: upstream infers a dynamic one from the scales."""
    if not isinstance(type_, TensorType):
        return type_
    shape = list(type_.get_shape())
    shape[axis] = size
    return TensorType(type_.element_type, shape, type_.encoding)


# A combined scale this near to 1 is taken for 1, and ratios this near to each other for equal.
_NEAR = 0.001
# The layouts that upstream multiplies as integers: input (b, f, spatial), kernel (i, o, spatial), output as input.
_LAYOUTS = (
    (Layout(0, 3, (1, 2)), Layout(2, 3, (0, 1)), Layout(0, 3, (1, 2))),
    (Layout(0, 1, (2, 3)), Layout(1, 0, (2, 3)), Layout(0, 1, (2, 3))),
    (Layout(0, 4, (1, 2, 3)), Layout(3, 4, (0, 1, 2)), Layout(0, 4, (1, 2, 3))),
    (Layout(0, 1, (2, 3, 4)), Layout(1, 0, (2, 3, 4)), Layout(0, 1, (2, 3, 4))),
)


@dataclass(frozen=True)
class DotLike:
    """A product of quantized tensors: its types, and which dimensions of each side are batching and summed over."""

    left: mlir.UniformType
    right: Uniform
    result: Uniform
    left_batching: tuple[int, ...]
    left_summed: tuple[int, ...]
    right_batching: tuple[int, ...]
    right_summed: tuple[int, ...]
    left_place: int
    right_place: int
    padding: tuple[tuple[int, int], ...] = ()
    spatial: tuple[int, ...] = ()

    @classmethod
    def of(cls, op: Operation, left: mlir.UniformType, right: Uniform, result: Uniform) -> DotLike | None:
        """Return what `op` multiplies, None for a convolution that is not multiplied as integers."""
        rank = cast(TensorType[Attribute], op.operands[0].type).get_num_dims()
        if op.name == "stablehlo.dot":
            return cls(left, right, result, (), (1,), (), (0,), 0, 1)
        if op.name == "stablehlo.dot_general":
            numbers = op.attributes["dot_dimension_numbers"]
            assert isinstance(numbers, Dot)
            dims = numbers.data
            return cls(
                left,
                right,
                result,
                dims.lhs_batching_dimensions,
                dims.lhs_contracting_dimensions,
                dims.rhs_batching_dimensions,
                dims.rhs_contracting_dimensions,
                len(dims.lhs_batching_dimensions),
                rank - len(dims.lhs_contracting_dimensions),
            )
        window = window_of(op)
        dims_ = window.dimensions
        layout = (dims_.input, dims_.kernel, dims_.output)
        fits = layout in _LAYOUTS and set(window.lhs_dilation) <= {1} and _is_channelwise(right, result, rank)
        if not fits:
            return None
        padding = window.padding if any(any(pair) for pair in window.padding) else ()
        feature, spatial = dims_.input.second, dims_.input.spatial
        kernel = (*dims_.kernel.spatial, dims_.kernel.first)
        return cls(left, right, result, (0,), (*spatial, feature), (), kernel, 1, dims_.output.second, padding, spatial)

    def pads_other_storage(self) -> bool:
        """Return whether there is padding of anything else than i8, with which upstream pads."""
        return bool(self.padding) and storage_attribute(self.left) != i8


def _is_channelwise(right: Uniform, result: Uniform, rank: int) -> bool:
    if isinstance(right, mlir.UniformType):
        return right.zero_point == 0
    assert isinstance(result, mlir.UniformPerAxisType)
    if any(right.zero_points) or any(result.zero_points) or right.axis != rank - 1:
        return False
    ratios = [ours / theirs for ours, theirs in zip(result.scales, right.scales, strict=True)]
    return all(abs((ratio - ratios[0]) / ratios[0]) <= _NEAR for ratio in ratios)


def hybrid(emitter: Emitter, op: Operation, right: Uniform) -> SSAValue:
    """Emit a product of floats and dequantized weights."""
    barrier = emitter.add(make("optimization_barrier", [op.operands[1]], op.operands[1].type))
    factors, shifts, axis = parameters(emitter, right, float_zero_points=True)
    real = with_element(barrier.type, f32)
    weights = emitter.add(make("convert", [barrier], real))
    if any(right.zero_points):
        weights = emitter.add(broadcast("subtract", weights, shifts, real, axis))
    weights = emitter.add(broadcast("multiply", weights, factors, real, axis))
    return emitter.add(
        type(op).create(
            operands=[op.operands[0], weights], result_types=op.result_types, attributes=op.attributes.copy()
        )
    )


def dot_like(emitter: Emitter, op: Operation, dot: DotLike) -> SSAValue:
    """Emit convert(trunc(acc * c) + (z_out - trunc(offset * c))), where c is left out when it is near 1."""
    whole = with_element(op.results[0].type, i32)
    left, right = op.operands
    name, attributes = op.name.removeprefix("stablehlo."), op.attributes.copy()
    if name == "dot":
        attributes["dot_dimension_numbers"] = Dot(
            DotDimensions(lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))
        )
        name = "dot_general"
    if dot.padding:
        left = _padded(emitter, left, dot)
        attributes["padding"] = padding_attribute([(0, 0)] * len(dot.padding))
    sums = emitter.add(make(name, [left, right], whole, attributes=attributes))
    offset = _offset(emitter, dot, left, right, sums)
    combined = dot.left.scales[0] * dot.right.scales[0] / dot.result.scales[0]
    if abs(combined - 1.0) > _NEAR:
        factor = emitter.add(float_constant(rounded_to_f32(combined)))
        sums = _scaled(emitter, sums, factor)
        if offset is not None:
            offset = _scaled(emitter, offset, factor)
    point = dot.result.zero_point if isinstance(dot.result, mlir.UniformType) else 0
    shift = emitter.add(integer_constant(point))
    if offset is not None:
        shift = emitter.add(broadcast("subtract", shift, offset, whole))
    total = emitter.add(broadcast("add", sums, shift, whole))
    return emitter.add(make("convert", [total], storage_type(op.results[0].type)))


def _scaled(emitter: Emitter, value: SSAValue, factor: SSAValue) -> SSAValue:
    real = with_element(value.type, f32)
    number = emitter.add(make("convert", [value], real))
    number = emitter.add(broadcast("multiply", number, factor, real))
    return emitter.add(make("convert", [number], value.type))


def _padded(emitter: Emitter, value: SSAValue, dot: DotLike) -> SSAValue:
    point = emitter.add(constant(dense(i8, [], [truncated(dot.left.zero_point, 8)])))
    type_ = cast(TensorType[Attribute], value.type)
    shape = list(type_.get_shape())
    low, high = [0] * len(shape), [0] * len(shape)
    for axis, (before, after) in zip(dot.spatial, dot.padding, strict=True):
        low[axis], high[axis] = before, after
        if shape[axis] != DYNAMIC_INDEX:
            shape[axis] += before + after
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    arrays = {
        name: DenseArrayBase.from_list(i64, each)
        for name, each in zip(names, (low, high, [0] * len(shape)), strict=True)
    }
    result = TensorType(type_.element_type, shape)
    return emitter.add(make("pad", [value, point], result, attributes=arrays))


def _offset(emitter: Emitter, dot: DotLike, left: SSAValue, right: SSAValue, sums: SSAValue) -> SSAValue | None:
    """Emit z_r * sum(lhs) + z_l * sum(rhs) - z_l * z_r * K, each only where it is not 0."""
    point_left = dot.left.zero_point
    point_right = dot.right.zero_point if isinstance(dot.right, mlir.UniformType) else 0
    sizes: list[SSAValue] = []
    total = None
    if point_right:
        part = _partial(emitter, left, point_right, dot.left_summed)
        total = _spread(emitter, part, dot.left_summed, dot.left_batching, dot.left_place, sums, sizes)
    if point_left:
        part = _partial(emitter, right, point_left, dot.right_summed)
        part = _spread(emitter, part, dot.right_summed, dot.right_batching, dot.right_place, sums, sizes)
        total = part if total is None else emitter.add(make("add", [total, part], part.type))
    if total is not None and point_left and point_right:
        product = _count(emitter, right, dot.right_summed, point_left * point_right)
        total = emitter.add(broadcast("subtract", total, product, total.type))
    return total


def _partial(emitter: Emitter, value: SSAValue, other: int, summed: Sequence[int]) -> SSAValue:
    """Emit the sum of `value` over some dimensions, times the zero point of the other side."""
    type_ = cast(TensorType[Attribute], value.type)
    kept = [size for axis, size in enumerate(type_.get_shape()) if axis not in summed]
    number = emitter.add(make("convert", [value], with_element(type_, i32)))
    zero = emitter.add(integer_constant(0))
    result = TensorType(i32, kept)
    dims = {"dimensions": DenseArrayBase.from_list(i64, list(summed))}
    body = reducer(i32, OPERATIONS["add"], OPERATIONS["return"])
    number = emitter.add(make("reduce", [number, zero], result, attributes=dims, regions=[body]))
    return emitter.add(broadcast("multiply", number, emitter.add(integer_constant(other)), result))


def _spread(
    emitter: Emitter,
    part: SSAValue,
    summed: Sequence[int],
    batching: Sequence[int],
    place: int,
    sums: SSAValue,
    sizes: list[SSAValue],
) -> SSAValue:
    """Broadcast a partial offset to the shape of the result. `sizes` keeps that shape once it was emitted."""
    rank = cast(TensorType[Attribute], part.type).get_num_dims()
    original = [axis for axis in range(rank + len(summed)) if axis not in summed]
    batch, dims = 0, []
    for axis in original:
        if axis in batching:
            dims.append(batch)
            batch += 1
        else:
            dims.append(place)
            place += 1
    attributes = {"broadcast_dimensions": DenseArrayBase.from_list(i64, dims)}
    type_ = cast(TensorType[Attribute], sums.type)
    if DYNAMIC_INDEX not in type_.get_shape():
        return emitter.add(make("broadcast_in_dim", [part], type_, attributes=attributes))
    if not sizes:
        sizes.append(_shape(emitter, sums))
    return emitter.add(make("dynamic_broadcast_in_dim", [part, sizes[0]], type_, attributes=attributes))


def _shape(emitter: Emitter, value: SSAValue) -> SSAValue:
    one = TensorType(i64, [1])
    parts = []
    shape = cast(TensorType[Attribute], value.type).get_shape()
    for axis, size in enumerate(shape):
        if size != DYNAMIC_INDEX:
            parts.append(emitter.add(constant(dense(i64, [1], [size]))))
            continue
        found = emitter.add(
            make("get_dimension_size", [value], TensorType(i32, []), attributes={"dimension": dimension(axis)})
        )
        found = emitter.add(make("convert", [found], TensorType(i64, [])))
        parts.append(emitter.add(make("reshape", [found], one)))
    result = TensorType(i64, [len(shape)])
    return emitter.add(make("concatenate", parts, result, attributes={"dimension": dimension(0)}))


def _count(emitter: Emitter, right: SSAValue, summed: Sequence[int], points: int) -> SSAValue:
    """Emit z_l * z_r * K, where K counts the products of one sum; dynamic sizes of K are multiplied in."""
    shape = cast(TensorType[Attribute], right.type).get_shape()
    scalar = TensorType(i32, [])
    dynamic = emitter.add(integer_constant(1))
    unknown = [axis for axis in summed if shape[axis] == DYNAMIC_INDEX]
    for axis in unknown:
        size = emitter.add(make("get_dimension_size", [right], scalar, attributes={"dimension": dimension(axis)}))
        dynamic = emitter.add(make("multiply", [dynamic, size], scalar))
    known = prod(shape[axis] for axis in summed if axis not in unknown)
    product = emitter.add(integer_constant(points * known))
    if unknown:
        product = emitter.add(make("multiply", [product, dynamic], scalar))
    return product
