"""Requantize: stored integers, or accumulators, to integers of another scale.

How is the scheme's (`requant.schemes`); which scheme, and for which types, the profile's (`requant.profiles`). Systems
that have none quantize(dequantize(q)), by the profile's own two rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.scaling import Granularity, common_granularity, plan_scaling
from requant.errors import TypeFitError, UnsupportedError, error_side
from requant.formats.elements import IntegerElement
from requant.mlir.types import TensorType, Type
from requant.plan.channels import whole_blocks
from requant.plan.operands import (
    QuantizedOperand,
    StoredOperand,
    bind,
    check_type_rules,
    integer_operand,
    quantized_operand,
    static_shape,
)
from requant.plan.plan import Array, Plan, pieces, requantizing
from requant.plan.table import TablePlan, table_for
from requant.profiles import Operation, OperationRule, profile_named
from requant.profiles.rule import INTEGERS, ZeroPointRange, scheme_rule
from requant.schemes import Multiplier, Scheme, scheme_named
from requant.schemes.multipliers import derive_each

_WIDE = ("i32", "i48")
_UINT16_ZERO_POINTS = (0, 32768)


@dataclass(frozen=True, slots=True)
class RescaleSide:
    """The "input" or the "output": its element type, i8, i16, i32 or i48, and whether its bits are unsigned numbers."""

    name: str
    element: str
    unsigned: bool

    @property
    def text(self) -> str:
        """The element type in words."""
        return f"unsigned {self.element}" if self.unsigned else self.element

    def check_zero_point(self, zero_point: int) -> None:
        """Raise UnsupportedError unless the side may have this zero point, a number: ERROR_IF 1 to 3."""
        if self.element == "i8":
            return
        allowed = _UINT16_ZERO_POINTS if self.element == "i16" and self.unsigned else (0,)
        if zero_point not in allowed:
            listed = " or ".join(map(str, allowed))
            raise UnsupportedError(
                f"RESCALE takes {self.text} only with zero point {listed}; the {self.name} has {zero_point}"
            )


def check_signs(source: RescaleSide, target: RescaleSide) -> None:
    """Raise UnsupportedError, about the side that may not be unsigned, if there is one: ERROR_IF 6 to 8."""
    if source.unsigned and target.unsigned:
        with error_side("output"):
            raise UnsupportedError(
                "RESCALE takes at most one unsigned side, and both the input and the output are unsigned"
            )
    for side, other in ((source, target), (target, source)):
        if side.unsigned and (side.element in _WIDE or other.element in _WIDE):
            with error_side(side.name):
                raise UnsupportedError(
                    "RESCALE takes unsigned numbers only between i8 and i16; the input is "
                    f"{source.text} and the output {target.text}"
                )


def check_rescale(source: QuantizedOperand, target: QuantizedOperand) -> None:
    """Raise UnsupportedError where one of the conditions holds for a conversion between quantized types."""
    sides = _side(source, "input"), _side(target, "output")
    for side, operand in zip(sides, (source, target), strict=True):
        with error_side(side.name):
            for zero_point in operand.zero_points:
                side.check_zero_point(zero_point)
    check_signs(*sides)


def _side(operand: QuantizedOperand, name: str) -> RescaleSide:
    return RescaleSide(name, operand.storage.replace("u", "i"), operand.storage.startswith("u"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughRealPlan(TablePlan):
    """Two plans, one after the other on each piece."""

    dequantize: Plan
    quantize: Plan

    def compute(self, source: Array, target: Array, start: int, counts: Array) -> None:
        for piece in pieces(source.size):
            real = np.empty(source[piece].size, self.quantize.input_dtype)
            self.dequantize.step(source[piece], real, start + piece.start, self.dequantize.new_counts())
            self.quantize.step(real, target[piece], start + piece.start, counts)

    def explain_undefined(self, counts: Array) -> str:
        return self.quantize.explain_undefined(counts)


def plan_through_real(
    profile: str, source: QuantizedOperand, target: QuantizedOperand, *, constant_scales: bool = True
) -> ThroughRealPlan:
    """Plan q -> x -> q'. Accumulators of 32 bits are taken whether or not the profile dequantizes them otherwise.

    `constant_scales` of the source, as in `plan_dequantize`.
    """
    dequantize = plan_dequantize(source.tensor, None, profile, more_storages=("i32",), constant_scales=constant_scales)
    quantize = plan_quantize(dequantize.output_type, target.tensor, profile)
    return ThroughRealPlan(
        **requantizing(profile, quantize.rounding, source, target),
        dequantize=dequantize,
        quantize=quantize,
        table=table_for(source.dtype, target.dtype, max(len(source.scales), len(target.scales))),
    )


def _stated(profile: str, scheme: str | None) -> OperationRule:
    """Return the profile's rule; or a scheme's, which by itself is no whole system: it takes all types of integers."""
    named = profile_named(profile)
    if scheme is None:
        return named.rule(Operation.REQUANTIZE)
    return scheme_rule(
        scheme_named(scheme),
        storages=INTEGERS,
        expressed=("f16", "bf16", "f32", "f64"),
        granularities=("per_tensor", "per_axis", "sub_channel"),
        zero_points=ZeroPointRange.INT32,
    )


def _operand(tensor: TensorType, side: str, rule: OperationRule, profile: str) -> StoredOperand:
    """Take one side apart: uniformly quantized, or plain integers, whose zero point is 0."""
    if isinstance(tensor.element, IntegerElement):
        return integer_operand(tensor, side)
    return quantized_operand(tensor, side, rule, profile)


def _pair_rule(rule: OperationRule, source: StoredOperand, target: StoredOperand, profile: str) -> OperationRule:
    """Return the rule for a pair of sides, or raise UnsupportedError where the profile's system refuses it."""
    if isinstance(source, QuantizedOperand) and isinstance(target, QuantizedOperand):
        source.check_same_expressed(target)
        if rule.rescale:
            check_rescale(source, target)
        rule = rule.for_pair(source.storage, target.storage)
        for name, quantized in (("input", source), ("output", target)):
            with error_side(name):
                check_type_rules(quantized.tensor, name, rule)
    for side, operand in (("input", source), ("output", target)):
        if isinstance(operand, QuantizedOperand) and operand.granularity not in rule.granularities:
            taken = ", ".join(rule.granularities)
            detail = f"the {side} has {operand.granularity} parameters; profile {profile} takes {taken} for this pair"
            raise UnsupportedError(detail)
    pair = f"{source.storage} to {target.storage}"
    if pair in rule.symmetric_pairs:
        source.check_symmetric("input", f"profile {profile} converts {pair} only with zero points 0")
        target.check_symmetric("output", f"profile {profile} converts {pair} only with zero points 0")
    return rule


def _derive(
    scheme: Scheme, source: QuantizedOperand, target: QuantizedOperand, granularity: Granularity
) -> tuple[list[Multiplier], list[float]]:
    """Derive a multiplier, and its factor, for each block from the ratio of the scales."""
    of_source, of_target = granularity.indices
    inputs, outputs = np.array(source.scales)[of_source], np.array(target.scales)[of_target]
    return derive_each(scheme, scheme.factor, inputs, None, outputs)


def _multiplier_blocks(shape: tuple[int, ...], axis: int | None, count: int) -> tuple[tuple[int, ...], int]:
    """Return the blocks of the caller's multipliers: of one index along `axis`, or of the whole tensor."""
    whole = whole_blocks(shape)
    if axis is None or count == 1:
        return whole, 1
    if not 0 <= axis < len(shape):
        raise TypeFitError(f"the tensor has {len(shape)} dimensions, and the axis is {axis}", pointer="/axis")
    if count != shape[axis]:
        detail = f"{count} multipliers are given for dimension {axis} of {shape[axis]}; give one, or one for each index"
        raise TypeFitError(detail, pointer="/multipliers")
    return tuple(1 if i == axis else size for i, size in enumerate(whole)), count


def _multipliers_of_blocks(
    multipliers: Sequence[Multiplier], axis: int | None, granularity: Granularity
) -> Sequence[Multiplier]:
    """Return the caller's multipliers for the blocks of the common granularity."""
    if axis is not None and len(multipliers) > 1:
        return [multipliers[index] for index in granularity.indices[2].tolist()]
    if len(multipliers) not in (1, granularity.count):
        detail = f"{len(multipliers)} multipliers are given for {granularity.count} channels; give one, or one for each"
        raise TypeFitError(detail, pointer="/multipliers")
    return multipliers


def plan_requantize(
    input_type: TensorType,
    output_type: Type,
    profile: str = "litert",
    multipliers: Sequence[Multiplier] | None = None,
    *,
    scheme: str | None = None,
    axis: int | None = None,
) -> Plan:
    """Plan q -> q'. Both types are uniform, or plain integers, whose zero point is 0; accumulators are i32 to i64.

    `scheme` replaces the profile's, and takes all types of integers. `multipliers` (one, or one per channel, in the
    scheme's convention) replace those derived from the scales, which plain integers lack; `axis` is the dimension that
    several go along, where the types do not say. Raise UnknownNameError, UnsupportedError or TypeFitError, and
    ParameterError when a multiplier or shift is outside what the scheme is defined for.
    """
    stated = _stated(profile, scheme)
    with error_side("input"):
        shape = static_shape(input_type)
        source = _operand(input_type, "input", stated, profile)
    with error_side("output"):
        target = _operand(bind(output_type, shape), "output", stated, profile)
        rule = _pair_rule(stated, source, target, profile)
    sides = [(each.blocks, len(each.zero_points)) for each in (source, target)]
    if multipliers is not None:
        if rule.scheme is None:
            raise UnsupportedError(f"profile {profile} multiplies by two scales; name a scheme to give multipliers")
        granularity = common_granularity(shape, *sides, _multiplier_blocks(shape, axis, len(multipliers)))
        each = _multipliers_of_blocks(multipliers, axis, granularity)
        return plan_scaling(scheme_named(rule.scheme), source, target, granularity, each, profile=profile)
    if axis is not None:
        raise UnsupportedError("an axis is that of given multipliers, and none are given", pointer="/axis")
    for side, operand in (("input", source), ("output", target)):
        if not isinstance(operand, QuantizedOperand):
            with error_side(side):
                detail = f"the {side} has plain integers, without a scale to derive a multiplier from; give multipliers"
                raise UnsupportedError(detail)
    assert isinstance(source, QuantizedOperand)
    assert isinstance(target, QuantizedOperand)
    if rule.scheme is None:
        return plan_through_real(profile, source, target)
    used = scheme_named(rule.scheme)
    granularity = common_granularity(shape, *sides)
    derived, factors = _derive(used, source, target, granularity)
    return plan_scaling(used, source, target, granularity, derived, profile=profile, exact=factors)
