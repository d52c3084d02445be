"""Quantize: a tensor of floats to stored numbers, or to narrower floats. The formula is the profile's."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from core.convert.cast import plan_narrowing
from core.convert.float_encoding import Encoder, encoder
from core.convert.quantile import plan_quantize_quantile
from core.convert.quantize.flushing import plan_flushing
from core.convert.quantize.general import ROUNDINGS, plan_general
from core.convert.quantize.native import native_form, plan_native
from core.convert.quantize.small_float import plan_small_float
from core.convert.quantize.split_bytes import Runs, plan_split_bytes
from core.errors import UnsupportedError, about
from core.errors.names import entry_named
from core.formats.elements import FloatElement
from core.formats.rules import Overflow
from core.mlir.types import TensorType, Type
from core.plan.operands import bind, float_element, quantized_operand, static_shape
from core.plan.plan import Plan
from core.profiles import Operation, OperationRule, Rounding, profile_named
from core.profiles.rule import Missing

__all__ = ["ROUNDINGS", "NanPolicy", "plan_quantize", "rounding_named"]
"""The roundings that can replace the profile's."""


def rounding_named(name: str) -> Rounding:
    """Return the rounding of that name, or raise UnknownNameError listing those that quantize can be told to use."""
    return entry_named({str(rounding): rounding for rounding in ROUNDINGS}, name, "rounding")


class NanPolicy(StrEnum):
    """The result of NaN."""

    PROFILE = "profile"
    ERROR = "error"
    LOWEST = "lowest"
    ZERO_POINT = "zero_point"


_HALF_BYTE = 4
_MISSING = {
    NanPolicy.ERROR: Missing.ERROR,
    NanPolicy.LOWEST: Missing.LOWEST,
    NanPolicy.ZERO_POINT: Missing.ZERO_POINT,
}


def _overridden(rule: OperationRule, rounding: Rounding | None, nan: NanPolicy) -> OperationRule:
    if rounding is not None:
        if rounding not in ROUNDINGS:
            detail = f"quantize does not round by {rounding}; it rounds by {', '.join(ROUNDINGS)}"
            raise UnsupportedError(detail, pointer="/rounding")
        rule = replace(rule, rounding=rounding)
    return rule if nan is NanPolicy.PROFILE else replace(rule, missing=_MISSING[nan])


def _refuses_nan(nan: NanPolicy, storage: str) -> bool:
    if nan not in (NanPolicy.PROFILE, NanPolicy.ERROR):
        raise UnsupportedError(f"NaN to {storage} is the profile's, or an error; not {nan}", pointer="/nan")
    return nan is NanPolicy.ERROR


def plan_quantize(
    input_type: TensorType,
    output_type: Type,
    profile: str = "stablehlo",
    *,
    rounding: Rounding | None = None,
    nan: NanPolicy = NanPolicy.PROFILE,
    seed: int = 0,
    saturate: bool | None = None,
    zero_point_given: bool = True,
    more_expressed: tuple[str, ...] = (),
    block_axis: int | None = None,
    constant_scales: bool = True,
) -> Plan:
    """Plan x -> q. `input_type`: a static tensor of floats. `output_type`: a uniform type, or a float of at most 16
    bits, bare or of the same shape.

    `rounding`, `nan` and `saturate` replace the profile's; `seed` is that of stochastic rounding. Without
    `zero_point_given` a rule that adds the zero point of small floats, 0, does not. `more_expressed` are taken besides
    those of the profile's rule, for integers. `block_axis` is the axis that blocks lie along, which the type does not
    say where all of them have one element; by default then the last one.
    Scales that are not `constant_scales` are known to the real system at run time only, so that it leaves none out.

    Raise UnknownNameError, UnsupportedError or TypeFitError, as `core.plan.operands` says.
    """
    stated = profile_named(profile)
    with about("input"):
        shape = static_shape(input_type)
        float_element(input_type, "input")
    with about("output"):
        bound = bind(output_type, shape)
    if isinstance(bound.element, FloatElement):
        refuses_nan = _refuses_nan(nan, bound.element.name)
        return plan_narrowing(input_type, bound, profile, rounding=rounding, saturate=saturate, refuses_nan=refuses_nan)
    rule = stated.rule(Operation.QUANTIZE)
    rule = replace(rule, expressed=rule.expressed + more_expressed)
    with about("output"):
        operand = quantized_operand(bound, "output", rule, profile)
        operand.check_expressed(input_type)
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
        return plan_small_float(profile, rule, chosen, input_type, operand)
    if saturate is not None:
        raise UnsupportedError(f"saturate is a choice for small floats; this is {operand.storage}", pointer="/saturate")
    if operand.quantile is not None:
        if rounding is not None:
            raise UnsupportedError("tables have no other rounding than to the nearest value", pointer="/rounding")
        return plan_quantize_quantile(profile, _overridden(rule, None, nan), operand.quantile, input_type, operand)
    rule = _overridden(rule, rounding, nan)
    splits = rule.split_bytes and operand.width == _HALF_BYTE
    if splits and operand.elements and Runs.of(operand).length == 1:
        missing = Missing.INDEFINITE if nan is NanPolicy.PROFILE else rule.missing
        rule, splits = replace(rule, overflow=Overflow.INDEFINITE, missing=missing), False
    form = native_form(rule, operand)
    whole: Plan
    if form is None:
        whole = plan_general(profile, rule, input_type, operand, seed)
    else:
        whole = plan_native(profile, rule, input_type, operand, form)
    if rule.flushes:
        return plan_flushing(whole, operand)
    return plan_split_bytes(whole, rule, operand, keeps_nan=nan is not NanPolicy.PROFILE) if splits else whole
