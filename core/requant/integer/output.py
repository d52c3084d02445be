"""The output stage: from sums, whose scale is that of one operand times the other's, to the output's stored integers.

The scheme is the profile's, and its kernels are those of requantize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.requantize import plan_through_real
from requant.convert.scaling import Granularity, common_granularity, plan_scaling
from requant.errors import ParameterError, PreconditionError, TypeFitError, UnsupportedError, error_side
from requant.errors.cancellation import checked
from requant.formats.elements import FLOATS, IntegerElement
from requant.formats.rounding import Rounding
from requant.integer.accumulation import LARGEST_BIAS, Integers
from requant.mlir.types import StorageType, TensorType, UniformPerAxisType, UniformQuantizedType, UniformType
from requant.plan.channels import whole_blocks
from requant.plan.compute_dtype import rounded_scales
from requant.plan.operands import QuantizedOperand, StoredOperand, integer_operand, quantized_operand, static_shape
from requant.plan.plan import Plan
from requant.profiles import Operation, OperationRule, profile_named
from requant.profiles.rule import DEQUANTIZE, INTEGERS, Accumulator, ProductRule
from requant.schemes import Factor, Multiplier, Scheme, scheme_named
from requant.schemes.multipliers import derive_each

_OUTPUTS = replace(DEQUANTIZE, storages=INTEGERS, expressed=("f16", "bf16", "f32", "f64"))


@dataclass(frozen=True, slots=True)
class Side:
    """An operand, and for each of its dimensions the dimension of the sums, as they are in memory, if it is one."""

    operand: StoredOperand
    axes: tuple[int | None, ...]

    def blocks(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return how many indices of each dimension of the sums have one parameter of this operand."""
        blocks = list(whole_blocks(shape))
        for axis, block, size in zip(self.axes, self.operand.blocks, self.operand.tensor.shape or (), strict=True):
            if axis is not None and block == 1 and size is not None and size > 1:
                blocks[axis] = 1
        return tuple(blocks)

    def quantized(self, name: str) -> QuantizedOperand:
        """Return the operand, or raise UnsupportedError for plain integers."""
        if not isinstance(self.operand, QuantizedOperand):
            with error_side(name):
                detail = f"the {name} has plain integers, without a scale; a quantized output needs one"
                raise UnsupportedError(detail)
        return self.operand


@dataclass(frozen=True, slots=True)
class OutputStage:
    """A plan from sums to stored integers, in the order of memory. `scheme` is None where there are no multipliers."""

    plan: Plan
    target: QuantizedOperand
    scheme: Scheme | None
    granularity: Granularity
    multipliers: tuple[Multiplier, ...]
    factors: tuple[float, ...]

    def of_block(self, index: int, elements: int) -> Plan:
        """Return the plan of so many sums that all have the parameters of one block of the granularity."""
        place = int(self.granularity.indices[1][index])
        whole_type = self.target.tensor.element
        assert isinstance(whole_type, UniformQuantizedType)
        scale, zero_point = whole_type.scales[place], whole_type.zero_points[place]
        element = UniformType(whole_type.storage, whole_type.expressed, scale, zero_point)
        target = quantized_operand(TensorType((elements,), element), "output", _OUTPUTS, self.plan.profile)
        if self.scheme is None:
            factor = self.factors[index if len(self.factors) > 1 else 0]
            return _scaled_sums(TensorType((elements,), _with_scales((factor,), 0)), target, self.plan.profile)
        whole = (elements,)
        granularity = common_granularity(whole, (whole, 1), (whole, 1))
        sums = integer_operand(TensorType(whole, self.plan.input_type.element), "sums")
        multipliers, factors = [self.multipliers[index]], [self.factors[index]]
        return plan_scaling(
            self.scheme, sums, target, granularity, multipliers, profile=self.plan.profile, exact=factors
        )


def _in_memory(output: TensorType, order: tuple[int, ...], shape: tuple[int, ...]) -> TensorType:
    """Return the type of the output with its dimensions in the order of memory."""
    element = output.element
    if isinstance(element, UniformPerAxisType) and element.axis < len(order):
        element = replace(element, axis=order[element.axis])
    return TensorType(shape, element)


def plan_output(
    shape: tuple[int, ...],
    accumulator: Accumulator,
    sides: tuple[Side, Side],
    output: TensorType,
    order: tuple[int, ...],
    rule: ProductRule,
    profile: str,
    scheme: str | None,
    factor: Factor | None = None,
) -> OutputStage:
    """Plan the stage of sums of `shape` in memory by `scheme` and `factor`, or the rule's.

    Raise UnsupportedError, UnknownNameError or ParameterError.
    """
    lhs, rhs = sides[0].quantized("lhs"), sides[1].quantized("rhs")
    with error_side("output"):
        target = quantized_operand(_in_memory(output, order, shape), "output", _OUTPUTS, profile)
        for side, operand in (("left side", lhs), ("right side", rhs)):
            if operand.expressed != target.expressed:
                raise UnsupportedError(
                    f"the output expresses {target.expressed.name}, and the {side} {operand.expressed.name}; they must "
                    "be the same"
                )
    whole = whole_blocks(shape)
    granularity = common_granularity(
        shape,
        (whole, 1),
        (target.blocks, len(target.scales)),
        (sides[0].blocks(shape), len(lhs.scales)),
        (sides[1].blocks(shape), len(rhs.scales)),
    )
    name = scheme or rule.scheme
    if name is None:
        return _through_real(shape, accumulator, lhs, rhs, target, granularity, profile)
    used = scheme_named(name)
    own = rule.factor if rule.factor is not None and scheme is None else used.factor
    multipliers, factors = _derive(used, factor or own, lhs, rhs, target, granularity)
    sums = integer_operand(TensorType(shape, IntegerElement(32 if accumulator is Accumulator.I32 else 64)), "sums")
    plan = plan_scaling(used, sums, target, granularity, multipliers, profile=profile, exact=factors)
    return OutputStage(plan, target, used, granularity, tuple(multipliers), tuple(factors))


def _derive(
    scheme: Scheme,
    factor: Factor,
    lhs: QuantizedOperand,
    rhs: QuantizedOperand,
    target: QuantizedOperand,
    granularity: Granularity,
) -> tuple[list[Multiplier], list[float]]:
    """Derive a multiplier, and its factor, for each block."""
    _, of_target, of_lhs, of_rhs = granularity.indices
    inputs, weights = np.array(lhs.scales)[of_lhs], np.array(rhs.scales)[of_rhs]
    return derive_each(scheme, factor, inputs, weights, np.array(target.scales)[of_target])


def _through_real(
    shape: tuple[int, ...],
    accumulator: Accumulator,
    lhs: QuantizedOperand,
    rhs: QuantizedOperand,
    target: QuantizedOperand,
    granularity: Granularity,
    profile: str,
) -> OutputStage:
    """Dequantize sums by f32(s_lhs * s_rhs) and quantize them, by the profile's two rules.

    Scales that the profile leaves out are left out of the product, each side's for itself.
    """
    if accumulator is not Accumulator.I32:
        raise UnsupportedError(f"profile {profile} dequantizes sums, and has those of i32 only")
    if len(lhs.scales) > 1:
        raise UnsupportedError(f"profile {profile} requires a single scale for the left operand")
    dequantize = profile_named(profile).rule(Operation.DEQUANTIZE)
    of_lhs, of_rhs = (rounded_scales(each.scales, each.expressed, dequantize) for each in (lhs, rhs))
    with np.errstate(over="ignore"):
        scales = (of_lhs[0] * of_rhs).astype(np.float64).tolist()
    if not all(0.0 < scale < float("inf") for scale in scales):
        raise ParameterError("the product of two scales is 0 or infinite in f32")
    axis = len(shape) - 1
    if len(scales) > 1 and shape[axis] != len(scales):
        raise TypeFitError(f"profile {profile} requires the scales of the right operand to be along its columns")
    plan = _scaled_sums(TensorType(shape, _with_scales(tuple(scales), axis)), target, profile)
    return OutputStage(plan, target, None, granularity, (), tuple(scales))


def _with_scales(scales: tuple[float, ...], axis: int) -> UniformType | UniformPerAxisType:
    """Return the type of sums with these scales: one, or several along an axis."""
    storage = StorageType.unbounded(IntegerElement(32), signed=True)
    if len(scales) == 1:
        return UniformType(storage, FLOATS["f32"], scales[0], 0)
    return UniformPerAxisType(storage, FLOATS["f32"], axis, scales, (0,) * len(scales))


def _scaled_sums(sums: TensorType, target: QuantizedOperand, profile: str) -> Plan:
    """Plan sums with scales to the output, by way of real numbers."""
    source = quantized_operand(sums, "sums", replace(DEQUANTIZE, storages=("i32",)), profile)
    return plan_through_real(profile, source, target, constant_scales=False)


Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Bias:
    """`ratios`: what each value is multiplied by, where its scale is not that of the sums: one for all, or one each."""

    tensor: TensorType
    integers: Integers
    ratios: tuple[Fraction, ...] | None
    rounding: Rounding

    def added(self, values: Array) -> Array:
        """Return what is added to the sums of each column, as int64.

        Raise PreconditionError for a value that 62 bits do not hold once it is rescaled.
        """
        if self.ratios is None:
            return values.astype(np.int64)
        numbers = []
        ratios = repeat(self.ratios[0]) if len(self.ratios) == 1 else self.ratios
        for index, (value, ratio) in enumerate(checked(zip(values.tolist(), ratios, strict=False))):
            rescaled = value * ratio
            rounded = round(rescaled)
            if self.rounding is Rounding.NEAREST_AWAY and abs(rounded - rescaled) == Fraction(1, 2):
                rounded = int(rescaled + (Fraction(1, 2) if rescaled > 0 else -Fraction(1, 2)))
            if abs(rounded) >= LARGEST_BIAS:
                raise PreconditionError(f"bias {index} is beyond 62 bits at the scale of the sums", index=index)
            numbers.append(rounded)
        return np.array(numbers, np.int64)


def plan_bias(
    tensor: TensorType, columns: int, scales: Sequence[float] | None, rule: OperationRule, profile: str
) -> Bias:
    """Take a bias apart. `scales`: of the sums, one or one for each column, None where they have none.

    Raise TypeFitError unless it has one dimension of `columns`, UnsupportedError for elements that are no integers, and
    for a quantized bias with a zero point, or for sums without a scale.
    """
    with error_side("bias"):
        shape = static_shape(tensor)
        if shape != (columns,):
            raise TypeFitError(f"a bias here has {columns} elements in one dimension; this has shape {list(shape)}")
        operand: StoredOperand
        if isinstance(tensor.element, IntegerElement):
            operand = integer_operand(tensor, "bias")
            return Bias(tensor, Integers.of_operand(operand), None, Rounding.NEAREST_EVEN)
        operand = quantized_operand(tensor, "bias", rule, profile)
        operand.check_symmetric("bias", "a bias has zero point 0")
        if scales is None:
            raise UnsupportedError(
                "the sums have no scale, or more than one to a column; give a bias of plain integers"
            )
        with np.errstate(over="ignore"):
            scales_of_bias = np.array(operand.scales, np.float32).astype(np.float64)
        own, sums = np.broadcast_arrays(scales_of_bias, np.array(scales))
        ratios = None if not columns or _are_equal(own, sums) else _ratios(own.tolist(), sums.tolist())
        away = rule.rounding is Rounding.NEAREST_AWAY
        rounding = Rounding.NEAREST_AWAY if away else Rounding.NEAREST_EVEN
        return Bias(tensor, Integers.of_operand(operand), ratios, rounding)


def _are_equal(own: Array, sums: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.all(own == sums.astype(np.float32)))


def _ratios(own: list[float], sums: list[float]) -> tuple[Fraction, ...]:
    if not all(0.0 < each < float("inf") for each in sums):
        raise UnsupportedError("the scale of the sums is 0 or infinite, so that a bias cannot be rescaled to it")
    made: dict[tuple[float, float], Fraction] = {}
    for pair in checked(zip(own, sums, strict=True)):
        if pair not in made:
            made[pair] = Fraction(pair[0]) / Fraction(pair[1])
    return tuple(made[pair] for pair in zip(own, sums, strict=True))
