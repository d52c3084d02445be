"""Dequantize: a tensor of stored numbers, or of small floats, to floats. The formula is the profile's.

The specialised kernels compute f32(f32(q - z) * s), and f64 products for 32-bit storage; the general one every rule,
every width, every expressed type. Small floats are decoded, then multiplied in f32; their only zero point, 0, may be
added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from requant.convert.cast import plan_widening
from requant.convert.quantile import plan_dequantize_quantile
from requant.convert.small_floats import Decoder, decoder
from requant.errors import error_side
from requant.formats.elements import BYTE, FLOATS, FloatElement
from requant.formats.rules import Difference
from requant.kernels.convert.dequantize.general import DEQUANTIZE_ANY
from requant.kernels.convert.dequantize.native import DEQUANTIZE, Choice
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.integer_lanes import storage_of
from requant.kernels.simd.widen import FloatKind
from requant.mlir.types import TensorType, Type
from requant.plan.compute_dtype import rounded_scales, step_precision
from requant.plan.float_arrays import COMPUTE_DTYPES, narrowed
from requant.plan.operands import QuantizedOperand, bind, float_element, quantized_operand, static_shape
from requant.plan.plan import Array, Plan, dequantizing, pieces
from requant.profiles import Operation, OperationRule, profile_named
from requant.profiles.rule import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralPlan(Plan):
    """Plan of `requant.kernels.convert.dequantize.general`."""

    tallies: ClassVar[bool] = False

    layout: tuple[int, int, int, int]
    scales: Array
    zero_points: Array
    difference: int
    steps: Precision
    result: Precision

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. Nothing saturates, and integers have no NaN: `counts` stays as it is."""
        element = float_element(self.output_type, "output")
        run = DEQUANTIZE_ANY[COMPUTE_DTYPES[element.name]]
        for piece in pieces(source.size):
            reals = np.empty(source[piece].size, COMPUTE_DTYPES[element.name])
            run(
                source[piece].astype(np.int64),
                reals,
                start + piece.start,
                *self.layout,
                self.scales,
                self.zero_points,
                self.difference,
                int(self.steps),
                int(self.result),
            )
            target[piece] = narrowed(reals, element)


def plan_general(profile: str, rule: OperationRule, operand: QuantizedOperand, target: TensorType) -> GeneralPlan:
    """Plan any conversion from integers."""
    dtype = COMPUTE_DTYPES[operand.expressed.name]
    channels = operand.channels.as_runs()
    return GeneralPlan(
        **dequantizing(profile, rule, operand, target),
        layout=channels.scalars,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), dtype),
        zero_points=channels.lay_out(operand.zero_points, "<i8"),
        difference=rule.difference.code,
        steps=step_precision(rule.steps, operand.expressed.name),
        result=step_precision(Steps.EXPRESSED, operand.expressed.name),
    )


_OF_FLOATS = (Difference.FLOATS, Difference.FLOATS_OF_F32)
_LARGEST_EXACT = 1 << 24


def is_native(rule: OperationRule, operand: QuantizedOperand) -> bool:
    """Return whether a specialised kernel computes this rule for this type.

    Up to 16 bits q is exact in f32, and where z is too, all ways to form the difference are one with steps in f32.
    With 32 bits they differ; of differences in f64 there is none with a product in f32.
    """
    if COMPUTE_DTYPES[operand.expressed.name] != "<f4":
        return False
    in_f32 = step_precision(rule.steps, operand.expressed.name) is Precision.NATIVE
    if operand.dtype.itemsize < 4:
        return in_f32 or rule.difference in (Difference.INTEGER, *_OF_FLOATS)
    return in_f32 and operand.storage == "i32" and rule.difference is not Difference.DOUBLE_OF_F32


def _is_exact(operand: QuantizedOperand, precision: Precision) -> bool:
    """Return whether q and z are exact in f32, so that q - z is the same however it is formed."""
    return (
        precision is Precision.NATIVE
        and operand.dtype.itemsize < 4
        and all(abs(zero_point) <= _LARGEST_EXACT for zero_point in operand.zero_points)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan(Plan):
    """Plan of `requant.kernels.convert.dequantize.native`."""

    tallies: ClassVar[bool] = False

    kernel: Callable[..., None]
    numbers: Array
    scales: Array
    zero_points: Array

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. Nothing saturates, and integers have no NaN: `counts` stays as it is."""
        self.kernel(
            # A view of a small tensor takes as long as its arithmetic, and to the kernel bytes of any type are bytes.
            source if source.itemsize == 1 else source.view(BYTE),
            target,
            start,
            self.numbers,
            self.scales,
            self.zero_points,
        )


def plan_native(profile: str, rule: OperationRule, operand: QuantizedOperand, target: TensorType) -> NativePlan:
    """Plan a conversion for which `is_native` holds."""
    channels, expressed = operand.channels, operand.expressed
    precision = step_precision(rule.steps, expressed.name)
    double = rule.difference is Difference.DOUBLE and operand.dtype.itemsize == 4
    choices = {
        Choice.SOURCE: storage_of(operand.dtype),
        Choice.TARGET: FloatKind[expressed.name.upper()],
        Choice.PRECISION: precision,
        Choice.OF_FLOATS: rule.difference in _OF_FLOATS and not _is_exact(operand, precision),
    }
    return NativePlan(
        **dequantizing(profile, rule, operand, target),
        kernel=DEQUANTIZE[double, expressed.width // 8].compiled(),
        numbers=np.array([*channels.layout, *(int(choices[choice]) for choice in Choice)], np.int64),
        scales=channels.lay_out(rounded_scales(operand.scales, expressed, rule), "<f4"),
        zero_points=channels.lay_out(operand.zero_points, "<i4"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloatPlan(Plan):
    """Plan of `requant.convert.small_floats`."""

    decoder: Decoder
    layout: Array
    scales: Array
    adds_zero: bool

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step. NaN codes are counted."""
        self.decoder.decode(source, target, counts, start, self.layout, self.scales)
        if self.adds_zero:
            np.add(target, 0, out=target)


def plan_small_float(
    profile: str, rule: OperationRule, operand: QuantizedOperand, target: TensorType
) -> SmallFloatPlan:
    """Plan E(f32(decode(q) * s)), or that plus 0."""
    channels = operand.channels
    return SmallFloatPlan(
        **dequantizing(profile, rule, operand, target),
        decoder=decoder(operand.storage, float_element(target, "output").name),
        layout=channels.layout,
        scales=channels.lay_out(rounded_scales(operand.scales, operand.expressed, rule), "<f4"),
        adds_zero=rule.float_zero_point,
    )


@dataclass(frozen=True, slots=True)
class DequantizeRule:
    """What decides a conversion of the stored numbers of `operand` to floats of `target`."""

    rule: OperationRule
    operand: QuantizedOperand
    target: TensorType


def dequantize_rule(
    input_type: TensorType,
    output_type: Type | None,
    profile: str,
    *,
    more_storages: tuple[str, ...] = (),
    more_granularities: tuple[str, ...] = (),
    constant_scales: bool = True,
) -> DequantizeRule:
    """Return the rule of `plan_dequantize`, whose arguments these are, for a static tensor that is quantized."""
    stated = profile_named(profile).rule(Operation.DEQUANTIZE)
    stated = replace(
        stated,
        storages=stated.storages + more_storages,
        granularities=stated.granularities + more_granularities,
    )
    with error_side("input"):
        operand = quantized_operand(input_type, "input", stated, profile)
    with error_side("output"):
        target = bind(operand.expressed if output_type is None else output_type, static_shape(input_type))
        float_element(target, "output")
        operand.check_expressed(target, stated.expressed)
    rule = stated.for_type(operand.layout_along(), operand.storage, operand.expressed.name)
    if not constant_scales:
        rule = replace(rule, unit_tolerance=None)
    return DequantizeRule(rule, operand, target)


def plan_dequantize(
    input_type: TensorType,
    output_type: Type | None = None,
    profile: str = "stablehlo",
    *,
    more_storages: tuple[str, ...] = (),
    more_granularities: tuple[str, ...] = (),
    constant_scales: bool = True,
) -> Plan:
    """Plan q -> x. `input_type`: a static tensor of a uniform type, or of floats of at most 16 bits. `output_type`: its
    expressed type, if given at all; for floats a wider one, f32 if none is given.

    `more_storages` and `more_granularities` are taken besides those of the profile's rule. Scales that are not
    `constant_scales` are known to the real system at run time only, so that it leaves none out. Raise UnknownNameError,
    UnsupportedError or TypeFitError, as `requant.plan.operands` says.
    """
    profile_named(profile)
    with error_side("input"):
        shape = static_shape(input_type)
    if isinstance(input_type.element, FloatElement):
        with error_side("output"):
            target = bind(FLOATS["f32"] if output_type is None else output_type, shape)
        return plan_widening(input_type, target, profile)
    resolved = dequantize_rule(
        input_type,
        output_type,
        profile,
        more_storages=more_storages,
        more_granularities=more_granularities,
        constant_scales=constant_scales,
    )
    rule, operand, target = resolved.rule, resolved.operand, resolved.target
    if operand.is_float:
        return plan_small_float(profile, rule, operand, target)
    if operand.quantile is not None:
        return plan_dequantize_quantile(profile, rule, operand.quantile, operand, target)
    if operand.storage in rule.symmetric:
        operand.check_symmetric("input", f"profile {profile} dequantizes {operand.storage} only with zero point 0")
    if is_native(rule, operand):
        return plan_native(profile, rule, operand, target)
    return plan_general(profile, rule, operand, target)
