"""Scales and zero points as constants of StableHLO, and requantization with merged ones."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerType, TensorType, f32
from xdsl.ir import Attribute, SSAValue

from requant import mlir
from requant.lowering.passes.rewriting import Emitter
from requant.lowering.passes.stablehlo_ops import broadcast, float_constant, integer_constant, make
from requant.lowering.quantized import element_part, with_element
from requant.schemes.factors import rounded_to_f32

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
