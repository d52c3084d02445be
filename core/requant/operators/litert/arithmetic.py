"""What LiteRT's operators share: tensors with one scale, kernels to choose from, multiplication by fixed point.

    scaled(v, d) = RDBPOT(SRDHM(wrap32(v * 2^max(shift, 0)), m), max(-shift, 0)), (m, shift) = QuantizeMultiplier(d)

s and z are scale and zero point; each operation on f32 rounds once, and RNA, RNE and RTZ name how a real number becomes
an integer: to the nearest, ties away from zero or to even, or toward zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from requant.calibration.ranges.rule import round_half_away
from requant.convert.scaling import common_granularity, plan_scaling
from requant.description import Array, Choices, Chooses, Kind, TensorValue
from requant.errors import ParameterError, TypeFitError, UnsupportedError, default_pointer
from requant.formats.elements import IntegerElement
from requant.mlir.types import TensorType, UniformQuantizedType, UniformType
from requant.operators.description import (
    Attribute,
    Operand,
    Operator,
    OperatorCall,
    Work,
    only_implementation,
)
from requant.operators.element_names import QUANTIZED, container
from requant.operators.stages import TRACE, Quantized, Stages
from requant.operators.typed_conversion import OUTPUT_TYPE, result_type
from requant.plan.channels import whole_blocks
from requant.plan.operands import integer_operand
from requant.schemes import Multiplier, Scheme
from requant.schemes.litert import LITERT

SOURCE = "LiteRT f67457790c9c (ai-edge-litert 2.3.0)"
REFERENCE, OPTIMIZED, XNNPACK = "reference", "optimized", "xnnpack"
KERNEL = Attribute(
    name="kernel",
    kind=Kind.TEXT,
    chooses=Chooses.RULES,
    description="The LiteRT kernels to follow. Default: reference.",
    default=REFERENCE,
    choices=Choices(
        "LitertOperatorKernel",
        (REFERENCE, OPTIMIZED, XNNPACK),
        "The reference kernels, the optimized ones, or those of the default interpreter: XNNPACK's where it takes the "
        "operator, otherwise the optimized ones.",
    ),
)
ACTIVATION = Attribute(
    name="fused_activation_function",
    kind=Kind.TEXT,
    description="What the result is clamped to: at least 0, -1 to 1, or 0 to 6.",
    default="NONE",
    choices=Choices("LitertActivation", ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")),
)
_BOUNDS: Mapping[str, tuple[float | None, float | None]] = {
    "NONE": (None, None), "RELU": (0.0, None), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0),
}  # fmt: skip
_INT32 = IntegerElement(32)
BYTES = ("i8", "u8")
ALL = (*BYTES, "i16")


def described(
    name: str,
    *,
    summary: str,
    inputs: tuple[Operand, ...],
    plan: Callable[[OperatorCall], Work],
    example: Mapping[str, Any],
    stages: tuple[Operand, ...] = (),
    attributes: tuple[Attribute, ...] = (),
    retyped: bool = True,
    deviations: tuple[str, ...] = (),
) -> Operator:
    """Return an operator of LiteRT with one output, whose type is `retyped` by an attribute or that of the input."""
    said = "The result, of output_type." if retyped else "The result, of the type of the input."
    return Operator(
        system="litert",
        name=name,
        summary=summary,
        source=SOURCE,
        implementations=only_implementation("litert"),
        inputs=inputs,
        outputs=(Operand(name="output", description=said, types={QUANTIZED: 1}),),
        stages=stages,
        attributes=(*((OUTPUT_TYPE,) if retyped else ()), *attributes, KERNEL, *((TRACE,) if stages else ())),
        deviations=deviations,
        plan=plan,
        example=example,
    )


def tensor(name: str, description: str, *, optional: bool = False) -> Operand:
    """Return an operand of quantized elements as descriptions have it."""
    return Operand(name=name, description=description, types={QUANTIZED: 1}, optional=optional)


def _parameters(type_: TensorType, storages: Sequence[str], symmetric: Sequence[str]) -> Quantized:
    element = type_.element
    if not isinstance(element, UniformQuantizedType):
        raise UnsupportedError("the tensor is not quantized")
    storage = element.storage
    name = f"{'i' if storage.signed else 'u'}{storage.width}"
    if name not in storages or (storage.minimum, storage.maximum) != storage.default_bounds:
        raise UnsupportedError(f"the operator takes whole {', '.join(storages)}")
    if not isinstance(element, UniformType):
        raise UnsupportedError("the operator takes one scale")
    if element.expressed.name != "f32":
        raise UnsupportedError("LiteRT's scales are f32")
    with np.errstate(all="ignore"):
        scale = np.float32(element.scale)
    if not (scale > 0 and np.isfinite(scale)):
        raise UnsupportedError(f"the scale {element.scale!r} is 0 or infinite in f32")
    if element.zero_point and name in symmetric:
        raise UnsupportedError(f"zero points of {name} are 0")
    dtype = container(element)
    assert dtype is not None
    return Quantized(scale, element.zero_point, dtype)


def quantized(
    call: OperatorCall, name: str, storages: Sequence[str] = ALL, *, symmetric: Sequence[str] = ("i16",)
) -> Quantized:
    """Return scale and zero point of an operand. Raise UnsupportedError for types that the operator does not take."""
    with default_pointer(f"/inputs/{name}"):
        return _parameters(call.inputs[name].type, storages, symmetric)


def quantized_output(
    call: OperatorCall, shape: tuple[int, ...], like: str, *, symmetric: Sequence[str] = ("i16",)
) -> tuple[Quantized, UniformQuantizedType]:
    """Return scale and zero point of the output, and its element type, whose storage is that of `like`."""
    operand = call.inputs[like]
    type_ = result_type(call, TensorValue(TensorType(shape, operand.type.element), operand.data))
    with default_pointer("/attributes/output_type"):
        found = _parameters(type_, ALL, symmetric)
        if found.dtype != operand.data.dtype:
            raise UnsupportedError(f"output_type has the storage of {like}")
    assert isinstance(type_.element, UniformQuantizedType)
    return found, type_.element


def same_dtype(call: OperatorCall, name: str, like: str) -> None:
    """Raise TypeFitError unless an operand has the storage of another."""
    if call.inputs[name].data.dtype != call.inputs[like].data.dtype:
        raise TypeFitError(f"{name} has the storage of {like}", pointer=f"/inputs/{name}")


def nearest_integer(real: Any) -> int:
    """Return RNA of one number of f32. Raise UnsupportedError for one that i32 does not hold, as LiteRT fails."""
    rounded = float(round_half_away(np.asarray(real, np.float32)))
    if not -(2.0**31) <= rounded < 2.0**31:
        raise UnsupportedError("a bound of the activation is beyond int32", pointer="/attributes/output_type")
    return int(rounded)


def multiplier_of(factor: Any) -> Multiplier:
    """Return QuantizeMultiplier(factor). Raise ParameterError, pointing at output_type, where it has none."""
    try:
        with np.errstate(all="ignore"):
            return LITERT.derive_checked(float(factor))
    except ParameterError as error:
        # Which names the shift, of which the call has none.
        error.pointer = "/attributes/output_type"
        raise


def scaled(sums: Array, multipliers: Multiplier | Sequence[Multiplier], scheme: Scheme = LITERT) -> Array:
    """Return integers times a multiplier, or one for each index of the last dimension, as i32."""
    several = multipliers if isinstance(multipliers, Sequence) else [multipliers]
    shape = sums.shape if sums.ndim else (1,)
    source = integer_operand(TensorType(shape, IntegerElement(8 * sums.itemsize)), "sum")
    target = integer_operand(TensorType(shape, _INT32), "scaled")
    blocks = whole_blocks(shape) if len(several) == 1 else (*shape[:-1], 1)
    granularity = common_granularity(shape, (whole_blocks(shape), 1), (whole_blocks(shape), 1), (blocks, len(several)))
    ordered = [several[index] for index in granularity.indices[2]]
    plan = plan_scaling(scheme, source, target, granularity, ordered, profile="litert")
    found = np.empty(sums.size, np.int32)
    plan.run(np.ascontiguousarray(sums).reshape(-1), found)
    return found.reshape(sums.shape)


def activation_range(call: OperatorCall, y: Quantized) -> tuple[int, int]:
    """Return what the activation clamps to: z + RNA(f32(bound / s)), within the type."""
    return activation_bounds(call.text(ACTIVATION.name), y)


def activation_bounds(name: str, y: Quantized) -> tuple[int, int]:
    """Return what an activation of that name clamps to."""
    return clamped_range(y, lambda bound: y.zero_point + nearest_integer(np.float32(bound) / y.scale), *_BOUNDS[name])


def clamped_range(
    y: Quantized, stored: Callable[[float], int], low: float | None, high: float | None
) -> tuple[int, int]:
    """Return the stored numbers of two bounds, within the type."""
    with np.errstate(all="ignore"):
        return (
            y.lowest if low is None else max(y.lowest, stored(low)),
            y.highest if high is None else min(y.highest, stored(high)),
        )


def xnnpack_range(call: OperatorCall, y: Quantized) -> tuple[int, int]:
    """Return what XNNPACK's activation clamps to: RNE(f32(f32(bound / s) + z)), within the type."""

    def stored(bound: float) -> int:
        shifted = np.float32(np.float32(bound) / y.scale) + np.float32(y.zero_point)
        return int(np.rint(np.clip(shifted, y.lowest, y.highest)))

    return clamped_range(y, stored, *_BOUNDS[call.text(ACTIVATION.name)])


def clamped(integers: Array, bounds: tuple[int, int], dtype: np.dtype[Any]) -> Array:
    """Return integers as the type has them. An empty range is its upper bound."""
    return np.minimum(np.maximum(integers, bounds[0]), bounds[1]).astype(dtype)


def even_in_f32(products: Array, factor: Any, y: Quantized, bounds: tuple[int, int]) -> Stages:
    """Return the stages of XNNPACK's output: RNE(clamp(f32(f32(v) * factor))) + z."""
    real = products.astype(np.float32) * factor
    low, high = np.float32(bounds[0] - y.zero_point), np.float32(bounds[1] - y.zero_point)
    rounded = np.rint(np.minimum(np.maximum(real, low), high)).astype(np.int32)
    return {"real": real, "output": (rounded + y.zero_point).astype(y.dtype)}


def is_between(low: float, high: float, *factors: Any) -> bool:
    """Return whether all factors are at least `low` and below `high`."""
    return all(low <= float(each) < high for each in factors)
