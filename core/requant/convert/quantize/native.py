"""Quantization by the fast kernels: f32, f16 and bf16 to integers of 8, 16 and 32 bits, by the roundings to nearest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from requant.convert.quantize.general import plan_general, reciprocals, stored_nans
from requant.formats.rules import Overflow, Quotient
from requant.kernels.convert.quantize.form import WINDOW, Field, Form
from requant.kernels.convert.quantize.native import QUANTIZE
from requant.kernels.jit.processor import HAS_FMA
from requant.kernels.scalar.reciprocal import reciprocals_agree
from requant.mlir.types import TensorType
from requant.plan.lanes import LANES, rounded_scales
from requant.plan.operands import QuantizedOperand
from requant.plan.plan import Array, DeferredPlan, Plan, quantizing
from requant.profiles import OperationRule, Rounding, ZeroPoint
from requant.profiles.rule import Missing, Steps

# Scales for which subnormals give the same as zeros: quotients and products stay far below 1/2.
_SMALLEST_FLUSHED = np.float32(2.0**-60)
_LARGEST_FLUSHED = np.float32(2.0**60)
_REST = 16384


def native_form(rule: OperationRule, operand: QuantizedOperand) -> Form | None:
    """Return the kernel that computes this rule for this type, or None if there is none."""
    expressed = operand.expressed.name
    in_f32 = LANES[expressed] == "<f4" and (rule.steps is Steps.F32 or expressed == "f32")
    if not in_f32 or (rule.quotient is Quotient.FUSED and operand.channels.cycle):
        return None
    if operand.width > 16:
        # Beyond the bounds of i32 the rules differ where they do not for less; the general kernel knows how.
        exact = rule.overflow is Overflow.SATURATE and rule.zero_point is ZeroPoint.AFTER_ROUNDING
        whole = (operand.minimum, operand.maximum) == (operand.lowest, operand.highest)
        symmetric = not any(operand.zero_points)
        indefinite = rule.overflow is Overflow.INDEFINITE and symmetric
        if operand.storage != "i32" or not (exact or indefinite or (whole and rule.overflow is Overflow.SATURATE)):
            return None
    form = Form(
        multiplied=rule.quotient is not Quotient.DIVISION,
        before=rule.zero_point is ZeroPoint.BEFORE_ROUNDING and rule.quotient is not Quotient.FUSED,
        away=rule.rounding is Rounding.NEAREST_AWAY,
        source=expressed,
        bits=operand.dtype.itemsize * 8,
    )
    return form if rule.rounding in (Rounding.NEAREST_EVEN, Rounding.NEAREST_AWAY) and form in QUANTIZE else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan(Plan):
    """Plan of `requant.kernels.convert.quantize.native`. `general` converts what that kernel stops at: few tensors have
    any of it, so that plan is made when the first one comes.
    """

    kernel: Callable[..., int]
    numbers: Array
    factors: Array
    zeros: Array
    general: DeferredPlan

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        done = self.kernel(source, target, start, self.numbers, self.factors, self.zeros, counts)
        while done < source.size:
            rest = slice(done, done + _REST)
            self.general().step(source[rest], target[rest], start + done, counts)
            done += _REST
            if done < source.size:
                rest = slice(done, None)
                done += self.kernel(
                    source[rest], target[rest], start + done, self.numbers, self.factors, self.zeros, counts
                )

    def explain_undefined(self, counts: Array) -> str:
        return self.general().explain_undefined(counts)


def plan_native(
    profile: str, rule: OperationRule, input_type: TensorType, operand: QuantizedOperand, form: Form
) -> NativePlan:
    """Plan a conversion for which `native_form` gives a form."""
    channels = operand.channels
    layout = channels.layout
    scales = rounded_scales(operand.scales, operand.expressed, rule)
    factors, corrections = scales, np.zeros_like(scales)
    if form.multiplied:
        factors = reciprocals(rule, operand, scales)
    elif form.bits < 32 and HAS_FMA and not channels.cycle:
        # The proof is for integers of 16 bits.
        points = np.array(operand.zero_points, np.float32)
        found, small = np.empty_like(scales), np.empty_like(scales)
        if reciprocals_agree(scales, points, form.before, form.away, found, small):
            form, factors, corrections = form._replace(multiplied=True), found, small
    fused = rule.quotient is Quotient.FUSED
    window = WINDOW[form.bits]
    lowest, highest = -window, window
    if rule.overflow is Overflow.UNDEFINED or (form.bits == 32 and rule.overflow is Overflow.INDEFINITE):
        lowest, highest = operand.lowest, operand.highest
    integer = "<i8" if form.bits == 32 else "<i4"
    flushing = bool(scales.min() >= _SMALLEST_FLUSHED and scales.max() <= _LARGEST_FLUSHED)
    zero_points = np.array(operand.zero_points, np.int64)
    nans = stored_nans(rule, operand)
    rows = (factors, corrections, zero_points.astype(np.float32) * fused)
    laid_out = np.concatenate([channels.lay_out(each, "<f4") for each in rows])
    zeros = channels.lay_out(zero_points * (not fused), integer)
    zeros_and_nans = np.concatenate([zeros, channels.lay_out(nans, integer)])
    saturating = rule.overflow in (Overflow.SATURATE, Overflow.FLOAT_CLAMP) and rule.missing is not Missing.ERROR
    numbers = {
        Field.PARAMETERS: zeros.size,
        # The kernel's way from f16 to f32 has subnormals in between.
        Field.FLUSHING: flushing and form.source != "f16",
        Field.SATURATING: saturating,
        Field.WORDS_SUFFICE: saturating and bool(np.all((nans >= operand.minimum) & (nans <= operand.maximum))),
        Field.MINIMUM: operand.minimum,
        Field.MAXIMUM: operand.maximum,
        Field.LOWEST: lowest,
        Field.HIGHEST: highest,
    }
    return NativePlan(
        **quantizing(profile, rule, input_type, operand),
        kernel=QUANTIZE[form].compiled(),
        numbers=np.array([*layout, *(int(numbers[field]) for field in Field)], np.int64),
        factors=laid_out,
        zeros=zeros_and_nans,
        general=DeferredPlan(
            # No native form draws at random, so that there is no seed.
            partial(plan_general, profile, rule, input_type, operand, 0),
            # It has as many rows of as wide numbers, less one.
            laid_out.nbytes + zeros_and_nans.nbytes,
        ),
    )
