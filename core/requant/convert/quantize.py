"""Quantize: a tensor of floats to stored numbers, or to narrower floats. The formula is the profile's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from requant.convert.cast import plan_narrowing
from requant.convert.float_encoding import Encoder, encoder
from requant.convert.quantile import plan_quantize_quantile
from requant.convert.quantize_plans import (
    ROUNDINGS,
    Runs,
    native_form,
    plan_flushing,
    plan_general,
    plan_native,
    plan_small_float,
    plan_split_bytes,
)
from requant.errors import ParameterError, UnsupportedError, error_side, excerpt
from requant.errors.names import entry_named
from requant.formats.elements import FloatElement
from requant.formats.rules import Overflow
from requant.mlir.types import TensorType, Type
from requant.plan.operands import QuantizedOperand, bind, float_element, quantized_operand, static_shape
from requant.plan.plan import Plan
from requant.profiles import Operation, OperationRule, Rounding, profile_named
from requant.profiles.rule import NanResult

CHOSEN_ROUNDINGS = (*ROUNDINGS, Rounding.ODD)
"""The roundings that can replace the profile's, to integers or to floats."""


def rounding_named(name: str) -> Rounding:
    """Return the rounding of that name, or raise UnknownNameError listing those that quantize accepts."""
    return entry_named({str(rounding): rounding for rounding in CHOSEN_ROUNDINGS}, name, "rounding")


class NanPolicy(StrEnum):
    """The result of NaN."""

    PROFILE = "profile"
    ERROR = "error"
    LOWEST = "lowest"
    ZERO_POINT = "zero_point"


_HALF_BYTE = 4
_NAN_RESULTS = {
    NanPolicy.ERROR: NanResult.ERROR,
    NanPolicy.LOWEST: NanResult.LOWEST,
    NanPolicy.ZERO_POINT: NanResult.ZERO_POINT,
}


def _overridden(rule: OperationRule, rounding: Rounding | None, nan: NanPolicy) -> OperationRule:
    if rounding is not None:
        if rounding not in ROUNDINGS:
            detail = f"quantize does not round by {rounding}; it rounds by {', '.join(ROUNDINGS)}"
            raise UnsupportedError(detail, pointer="/rounding")
        rule = replace(rule, rounding=rounding)
    return rule if nan is NanPolicy.PROFILE else replace(rule, nan_result=_NAN_RESULTS[nan])


def _refuses_nan(nan: NanPolicy, storage: str) -> bool:
    if nan not in (NanPolicy.PROFILE, NanPolicy.ERROR):
        raise UnsupportedError(f"NaN to {storage} is the profile's, or an error; not {nan}", pointer="/nan")
    return nan is NanPolicy.ERROR


@dataclass(frozen=True, slots=True)
class QuantizeRule:
    """What decides a conversion to the stored numbers of `operand`: the profile's rule, with what replaces parts of it.

    `encoder` is there for small floats. `alone` is the rule of the 4-bit elements that share their byte with none of
    the same run of one scale (`requant.convert.quantize_plans`), where it is not that of the others.
    """

    rule: OperationRule
    operand: QuantizedOperand
    encoder: Encoder | None = None
    alone: OperationRule | None = None


def quantize_rule(
    input_type: TensorType,
    output_type: TensorType,
    profile: str,
    *,
    rounding: Rounding | None = None,
    nan: NanPolicy = NanPolicy.PROFILE,
    saturate: bool | None = None,
    zero_point_given: bool = True,
    more_expressed: tuple[str, ...] = (),
    block_axis: int | None = None,
    constant_scales: bool = True,
) -> QuantizeRule:
    """Return the rule of `plan_quantize`, whose arguments these are, for a bound type that is uniformly quantized."""
    stated = profile_named(profile)
    rule = stated.rule(Operation.QUANTIZE)
    rule = replace(rule, expressed=rule.expressed + more_expressed)
    with error_side("output"):
        operand = quantized_operand(output_type, "output", rule, profile)
        operand.check_expressed(input_type, rule.expressed)
    rule = rule.for_type(operand.layout_along(block_axis), operand.storage, operand.expressed.name)
    if not constant_scales:
        rule = replace(rule, unit_tolerance=None)
    if operand.is_float:
        rule = rule if zero_point_given else replace(rule, float_zero_point=False)
        chosen = encoder(
            stated.cast_rule(),
            operand.storage,
            rounding=rounding,
            saturate=saturate,
            refuses_nan=_refuses_nan(nan, operand.storage),
        )
        assert isinstance(chosen, Encoder), operand.storage
        return QuantizeRule(rule, operand, encoder=chosen)
    if saturate is not None:
        raise UnsupportedError(f"saturate is a choice for small floats; this is {operand.storage}", pointer="/saturate")
    if operand.quantile is not None:
        if rounding is not None:
            raise UnsupportedError("tables have no other rounding than to the nearest value", pointer="/rounding")
        return QuantizeRule(_overridden(rule, None, nan), operand)
    rule = _overridden(rule, rounding, nan)
    if not (rule.split_bytes and operand.width == _HALF_BYTE and operand.elements):
        return QuantizeRule(rule, operand)
    nan_result = NanResult.INDEFINITE if nan is NanPolicy.PROFILE else rule.nan_result
    alone = replace(rule, overflow=Overflow.INDEFINITE, nan_result=nan_result)
    runs = Runs.of(operand)
    if runs.length == 1:
        return QuantizeRule(alone, operand)
    return QuantizeRule(rule, operand, alone=alone if runs.split_bytes else None)


def plan_quantize(
    input_type: TensorType,
    output_type: Type,
    profile: str = "stablehlo",
    *,
    rounding: Rounding | None = None,
    nan: NanPolicy = NanPolicy.PROFILE,
    seed: int = 0,
    random_bits: int | None = None,
    saturate: bool | None = None,
    zero_point_given: bool = True,
    more_expressed: tuple[str, ...] = (),
    block_axis: int | None = None,
    constant_scales: bool = True,
) -> Plan:
    """Plan x -> q. `input_type`: a static tensor of floats. `output_type`: a uniform type, or a float of at most 16
    bits, bare or of the same shape.

    `rounding`, `nan` and `saturate` replace the profile's; `seed` is that of stochastic rounding. In a cast,
    `random_bits` of the 32 bits that it draws for an element count. Without `zero_point_given` a rule that adds the
    zero point of small floats, 0, does not. `more_expressed` are taken besides those of the profile's rule, for
    integers. `block_axis` is the axis that blocks lie along, which the type does not say where all of them have one
    element; by default then the last one.
    Scales that are not `constant_scales` are known to the real system at run time only, so that it leaves none out.

    Raise UnknownNameError, UnsupportedError or TypeFitError, as `requant.plan.operands` says, and ParameterError for a
    seed below 0 or of more than 63 bits.
    """
    if not 0 <= seed < 1 << 63:
        raise ParameterError(f"seed is {excerpt(str(seed))}; expected 0 to 2^63 - 1", pointer="/seed")
    profile_named(profile)
    bound = bound_output(input_type, output_type)
    if isinstance(bound.element, FloatElement):
        refuses_nan = _refuses_nan(nan, bound.element.name)
        return plan_narrowing(
            input_type,
            bound,
            profile,
            rounding=rounding,
            saturate=saturate,
            seed=seed,
            random_bits=random_bits,
            refuses_nan=refuses_nan,
        )
    if random_bits is not None:
        raise UnsupportedError("random_bits are for casts to floats; integers take all 32", pointer="/random_bits")
    resolved = quantize_rule(
        input_type,
        bound,
        profile,
        rounding=rounding,
        nan=nan,
        saturate=saturate,
        zero_point_given=zero_point_given,
        more_expressed=more_expressed,
        block_axis=block_axis,
        constant_scales=constant_scales,
    )
    rule, operand = resolved.rule, resolved.operand
    if resolved.encoder is not None:
        return plan_small_float(profile, rule, resolved.encoder, input_type, operand)
    if operand.quantile is not None:
        return plan_quantize_quantile(profile, rule, operand.quantile, input_type, operand)
    form = native_form(rule, operand)
    whole: Plan
    if form is None:
        whole = plan_general(profile, rule, input_type, operand, seed)
    else:
        whole = plan_native(profile, rule, input_type, operand, form)
    if rule.flushes:
        return plan_flushing(whole, rule, operand)
    if resolved.alone is None:
        return whole
    return plan_split_bytes(whole, rule, operand, keeps_nan=nan is not NanPolicy.PROFILE)


def bound_output(input_type: TensorType, output_type: Type) -> TensorType:
    """Return the output type of a quantization of the shape of its input, which has to be a static tensor of floats."""
    with error_side("input"):
        shape = static_shape(input_type)
        float_element(input_type, "input")
    with error_side("output"):
        return bind(output_type, shape)
