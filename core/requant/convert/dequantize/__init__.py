"""Dequantize: a tensor of stored numbers, or of small floats, to floats. The formula is the profile's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from requant.convert.cast import plan_widening
from requant.convert.dequantize.general import plan_general
from requant.convert.dequantize.native import is_native, plan_native
from requant.convert.dequantize.small_float import plan_small_float
from requant.convert.quantile import plan_dequantize_quantile
from requant.errors import about
from requant.formats.elements import FLOATS, FloatElement
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, bind, float_element, quantized_operand, static_shape
from requant.plan.plan import Plan
from requant.profiles import Operation, OperationRule, profile_named

__all__ = ["DequantizeRule", "dequantize_rule", "plan_dequantize"]


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
    with about("input"):
        operand = quantized_operand(input_type, "input", stated, profile)
    with about("output"):
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
    with about("input"):
        shape = static_shape(input_type)
    if isinstance(input_type.element, FloatElement):
        with about("output"):
            target = bind(FLOATS["f32"] if output_type is None else output_type, shape)
        return plan_widening(input_type, target, profile)
    found = dequantize_rule(
        input_type,
        output_type,
        profile,
        more_storages=more_storages,
        more_granularities=more_granularities,
        constant_scales=constant_scales,
    )
    rule, operand, target = found.rule, found.operand, found.target
    if operand.is_float:
        return plan_small_float(profile, rule, operand, target)
    if operand.quantile is not None:
        return plan_dequantize_quantile(profile, rule, operand.quantile, operand, target)
    if operand.storage in rule.symmetric:
        operand.check_symmetric("input", f"profile {profile} dequantizes {operand.storage} only with zero point 0")
    if is_native(rule, operand):
        return plan_native(profile, rule, operand, target)
    return plan_general(profile, rule, operand, target)
