"""Requantize: stored integers, or accumulators, to integers of another scale.

How is the scheme's (`core.parameters.schemes`); which scheme, and for which types, the profile's (`core.profiles`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.errors import ParameterError, TypeFitError, about
from core.mlir.types import TensorType, Type
from core.operands import QuantizedOperand, StoredOperand, bind, quantized_operand, static_shape
from core.operators.tosa_rescale import check_rescale
from core.parameters.schemes import FixedPoint, Multiplier, Scheme, scheme_named
from core.profiles import Operation, OperationRule, profile_named
from core.requantize.fixed_point import apply_fixed_point
from core.requantize.granularity import Granularity, common_granularity
from core.requantize.real_factor import apply_float
from core.requantize.scaling import Application, ScalingPlan, Sides

__all__ = ["plan_requantize", "plan_scaling"]


def plan_scaling(
    scheme: Scheme,
    source: StoredOperand,
    target: StoredOperand,
    granularity: Granularity,
    multipliers: Sequence[Multiplier],
    *,
    profile: str,
    exact: Sequence[float] | None = None,
) -> ScalingPlan:
    """Plan q -> q' by multipliers: one, or one for each block of `granularity`.

    The first two sides of the granularity are source and target.
    `exact` are the factors that the multipliers were derived from; default: what they represent. Raise ParameterError,
    pointing into `multipliers`, for one that is outside of what the scheme is defined for.
    """
    for index, each in enumerate(multipliers):
        try:
            scheme.check(each)
        except ParameterError as error:
            raise ParameterError(error.detail, pointer=f"/multipliers/{index}{error.pointer}") from None
    of_source, of_target = granularity.indices[:2]
    sides = Sides(
        source,
        target,
        np.array(source.zero_points, np.int64)[of_source],
        np.array(target.zero_points, np.int64)[of_target],
    )
    stage = scheme.stage
    if isinstance(stage, FixedPoint):
        application = apply_fixed_point(stage, multipliers, sides)
    else:
        factors = [float(scheme.represented(each)) for each in multipliers] if exact is None else exact
        application = apply_float(stage, multipliers, factors, sides)
    return _plan(scheme, source, target, granularity, multipliers, application, profile)


def _plan(
    scheme: Scheme,
    source: StoredOperand,
    target: StoredOperand,
    granularity: Granularity,
    multipliers: Sequence[Multiplier],
    application: Application,
    profile: str,
) -> ScalingPlan:
    channels = granularity.channels
    if len(application.kernels) == 1:
        channels = channels.as_runs()
    return ScalingPlan(
        profile=profile,
        rounding=scheme.rounding,
        input_type=source.tensor,
        output_type=target.tensor,
        input_dtype=source.dtype,
        output_dtype=target.dtype,
        elements=source.elements,
        input_bounds=source.input_bounds,
        multipliers=tuple(multipliers),
        scheme=scheme,
        kernel=application.kernels[channels.cycle],
        lanes=application.lanes,
        narrow=application.narrow,
        layout=channels.scalars,
        parameters=tuple(channels.lay_out(each, each.dtype.str) for each in application.parameters),
        limits=application.limits,
    )


def _derive(
    scheme: Scheme, source: QuantizedOperand, target: QuantizedOperand, granularity: Granularity
) -> tuple[list[Multiplier], list[float]]:
    """Derive a multiplier, and its factor, for each block from the ratio of the scales.

    Raise ParameterError naming the channel and its scales where the scheme has no multiplier for their ratio.
    """
    derived, factors = [], []
    pairs = zip(*(indices.tolist() for indices in granularity.indices), strict=True)
    for channel, (of_source, of_target) in enumerate(pairs):
        scale_in, scale_out = source.scales[of_source], target.scales[of_target]
        factor = scheme.factor.of(scale_in, None, scale_out)
        try:
            multiplier = scheme.derive(factor)
            scheme.check(multiplier)
        except ParameterError as error:
            raise ParameterError(f"channel {channel}, scales {scale_in!r} to {scale_out!r}: {error.detail}") from error
        derived.append(multiplier)
        factors.append(factor)
    return derived, factors


def _check_pair(rule: OperationRule, source: QuantizedOperand, target: QuantizedOperand, profile: str) -> None:
    """Refuse what the profile's system refuses of this pair of types."""
    source.check_expressed(TensorType((), target.expressed))
    if rule.scheme is not None and rule.scheme.startswith("tosa"):
        check_rescale(source, target)
    if (source.storage, target.storage) in rule.symmetric_pairs:
        reason = f"profile {profile} converts {source.storage} to {target.storage} only with zero points 0"
        source.check_symmetric("input", reason)
        target.check_symmetric("output", reason)


def plan_requantize(
    input_type: TensorType,
    output_type: Type,
    profile: str = "litert",
    multipliers: Sequence[Multiplier] | None = None,
) -> ScalingPlan:
    """Plan q -> q'. Both types are uniform; accumulators are i32 with their scale.

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
    granularity = common_granularity(
        shape, (source.blocks, len(source.zero_points)), (target.blocks, len(target.zero_points))
    )
    if multipliers is None:
        derived, factors = _derive(scheme, source, target, granularity)
        return plan_scaling(scheme, source, target, granularity, derived, profile=profile, exact=factors)
    if len(multipliers) not in (1, granularity.count):
        detail = f"{len(multipliers)} multipliers are given for {granularity.count} channels; give one, or one for each"
        raise TypeFitError(detail, pointer="/multipliers")
    return plan_scaling(scheme, source, target, granularity, multipliers, profile=profile)
