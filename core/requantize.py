"""Requantize: quantized integers, or int32 accumulators, to integers of another scale, by multiplier and shift.

The formula is the profile's (`core.profiles`); the derivation of multiplier and shift is its scheme's
(`core.parameters.multipliers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.errors import ParameterError, TypeFitError, UnsupportedError, about
from core.kernels._jit import Kernel
from core.kernels.requantize import REQUANTIZE, RequantizeRule
from core.mlir.types import TensorType, Type
from core.operands import QuantizedOperand, bind, quantized_operand, static_shape
from core.operators.tosa import check_rescale
from core.parameters.multipliers import INT32_MAX, INT32_MIN, Multiplier, Scheme, scheme_named
from core.plan import Array, Plan, pieces
from core.profiles import Operation, OperationRule, Rounding, profile_named

_KERNEL_RULES: Mapping[tuple[str, Rounding], RequantizeRule] = {
    ("litert", Rounding.DOUBLE): RequantizeRule.DOUBLE,
    ("litert_single_rounding", Rounding.SINGLE): RequantizeRule.SINGLE,
    ("tosa", Rounding.SINGLE): RequantizeRule.TOSA_SINGLE,
    ("tosa", Rounding.DOUBLE): RequantizeRule.TOSA_DOUBLE,
}


@dataclass(frozen=True, slots=True)
class _Domain:
    """What a scheme's multiplication takes: bounds of the multiplier and shift, and what it demands of each element."""

    lowest_multiplier: int
    lowest_shift: int
    highest_shift: int
    demand: str

    def check(self, given: Multiplier) -> None:
        """Raise ParameterError for a multiplier or shift outside of the domain."""
        bounds = {
            "multiplier": (given.multiplier, self.lowest_multiplier, INT32_MAX),
            "shift": (given.shift, self.lowest_shift, self.highest_shift),
        }
        for name, (value, lowest, highest) in bounds.items():
            if not lowest <= value <= highest:
                raise ParameterError(f"{name} {value} is outside of {lowest} to {highest}", pointer=f"/{name}")


_FITS_INT32 = "the input minus its zero point must fit int32"
_TOSA_DOMAIN = _Domain(0, 2, 62, "RESCALE requires -2^(shift-1) <= input - input zero point < 2^(shift-1)")
_DOMAINS: Mapping[RequantizeRule, _Domain] = {
    RequantizeRule.DOUBLE: _Domain(INT32_MIN, -31, 31, _FITS_INT32),
    RequantizeRule.SINGLE: _Domain(0, -31, 30, f"{_FITS_INT32}, and so must the scaled value"),
    RequantizeRule.TOSA_SINGLE: _TOSA_DOMAIN,
    RequantizeRule.TOSA_DOUBLE: _TOSA_DOMAIN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequantizePlan(Plan):
    """Plan of `core.kernels.requantize`."""

    kernel: Kernel
    demand: str
    layout: tuple[int, int, int, int]
    kernel_multipliers: Array
    kernel_shifts: Array
    input_zero_points: Array
    output_zero_points: Array
    minimum: int
    maximum: int

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See Plan.step."""
        if source.dtype == np.int32:
            self._step_int32(source, target, start, counts)
            return
        for piece in pieces(source.size):
            self._step_int32(source[piece].astype(np.int32), target[piece], start + piece.start, counts)

    def _step_int32(self, source: Array, target: Array, start: int, counts: Array) -> None:
        self.kernel(
            source,
            target,
            start,
            *self.layout,
            self.kernel_multipliers,
            self.kernel_shifts,
            self.input_zero_points,
            self.output_zero_points,
            self.minimum,
            self.maximum,
            counts,
        )

    def explain_undefined(self) -> str:
        """See Plan.explain_undefined."""
        return f"profile {self.profile} is not defined for this element: {self.demand}"


def _derive(
    scheme: Scheme, domain: _Domain, source: QuantizedOperand, target: QuantizedOperand
) -> tuple[Multiplier, ...]:
    """Derive one multiplier for each channel, from the ratio of the scales.

    LiteRT keeps scales as f32 and divides them in f64; MLIR, which derives TOSA's, keeps them as f64. Raise
    ParameterError naming the channel and its scales where the scheme has no multiplier for their ratio.
    """
    inputs, outputs = (
        [float(np.float32(scale)) if scheme.scales_in_f32 else scale for scale in operand.scales]
        for operand in (source, target)
    )
    derived = []
    for channel in range(max(len(inputs), len(outputs))):
        scale_in, scale_out = inputs[channel % len(inputs)], outputs[channel % len(outputs)]
        try:
            multiplier = scheme.derive(scale_in / scale_out)
            domain.check(multiplier)
        except ParameterError as error:
            raise ParameterError(f"channel {channel}, scales {scale_in!r} to {scale_out!r}: {error.detail}") from error
        derived.append(multiplier)
    return tuple(derived)


def _given(multipliers: Sequence[Multiplier], channels: int, domain: _Domain) -> tuple[Multiplier, ...]:
    """Check the caller's multipliers: one, or one for each channel, all within the scheme's domain."""
    if len(multipliers) not in (1, channels):
        detail = f"{len(multipliers)} multipliers are given for {channels} channels; give one, or one for each channel"
        raise TypeFitError(detail, pointer="/multipliers")
    for index, each in enumerate(multipliers):
        try:
            domain.check(each)
        except ParameterError as error:
            raise ParameterError(error.detail, pointer=f"/multipliers/{index}{error.pointer}") from None
    return tuple(multipliers)


def _check_pair(rule: OperationRule, source: QuantizedOperand, target: QuantizedOperand, profile: str) -> None:
    """Refuse what the profile's system refuses of this pair of types."""
    source.check_expressed(TensorType((), target.expressed))
    if source.axis is not None and target.axis is not None and source.axis != target.axis:
        raise UnsupportedError(
            f"the input is quantized along axis {source.axis} and the output along axis {target.axis}; "
            "requantize takes one axis"
        )
    if rule.scheme == "tosa":
        check_rescale(source, target)
    if (source.storage, target.storage) in rule.symmetric_pairs:
        reason = f"profile {profile} converts {source.storage} to {target.storage} only with zero points 0"
        source.check_symmetric("input", reason)
        target.check_symmetric("output", reason)


def _each(values: tuple[int, ...], channels: int) -> tuple[int, ...]:
    return values * channels if len(values) == 1 else values


def plan_requantize(
    input_type: TensorType,
    output_type: Type,
    profile: str = "litert",
    multipliers: Sequence[Multiplier] | None = None,
) -> RequantizePlan:
    """Plan q -> q'. Both types are uniform, per tensor or along one axis; accumulators are i32 with their scale.

    `multipliers` (one, or one per channel, in the scheme's convention) replace those derived from the scales. Raise
    UnknownNameError, UnsupportedError or TypeFitError, and ParameterError when a multiplier or shift is outside of what
    the scheme is defined for.
    """
    rule = profile_named(profile).rule(Operation.REQUANTIZE)
    scheme = scheme_named(rule.scheme or profile)
    with about("input"):
        shape = static_shape(input_type)
        source = quantized_operand(input_type, "input", rule, profile)
    with about("output"):
        target = quantized_operand(bind(output_type, shape), "output", rule, profile)
        _check_pair(rule, source, target, profile)
    count = max(len(source.scales), len(target.scales))
    kernel_rule = _KERNEL_RULES[scheme.name, rule.rounding]
    domain = _DOMAINS[kernel_rule]
    used = _derive(scheme, domain, source, target) if multipliers is None else _given(multipliers, count, domain)
    channels = source.channels if source.axis is not None else target.channels
    return RequantizePlan(
        profile=profile,
        rounding=rule.rounding,
        input_type=input_type,
        output_type=target.tensor,
        input_dtype=source.dtype,
        output_dtype=target.dtype,
        elements=source.elements,
        multipliers=used,
        kernel=REQUANTIZE[kernel_rule, channels.cycle],
        demand=domain.demand,
        input_bounds=source.input_bounds,
        layout=channels.scalars,
        kernel_multipliers=channels.lay_out(_each(tuple(each.multiplier for each in used), count), "<i4"),
        kernel_shifts=channels.lay_out(_each(tuple(scheme.right_shift(each.shift) for each in used), count), "<i4"),
        input_zero_points=channels.lay_out(_each(source.zero_points, count), "<i4"),
        output_zero_points=channels.lay_out(_each(target.zero_points, count), "<i4"),
        minimum=target.minimum,
        maximum=target.maximum,
    )
