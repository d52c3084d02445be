"""Plans of the requantization kernels: stored integers scaled by multipliers, with the scheme's demands checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from requant.convert.requantize.application import Application, Sides
from requant.convert.requantize.fixed_point import apply_fixed_point
from requant.convert.requantize.granularity import Granularity
from requant.convert.requantize.real_factor import apply_float
from requant.errors import ParameterError
from requant.kernels.convert.requantize.rules import Requirement
from requant.plan.operands import StoredOperand
from requant.plan.plan import Array, requantizing
from requant.plan.table import TablePlan, table_for
from requant.schemes import FixedPoint, Multiplier, Scheme

_NO_COUNTS = np.array([0, 0, 0, -1, -1], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan(TablePlan):
    """Plan of `requant.kernels.convert.requantize.fixed_point`, `requant.kernels.convert.requantize.real_factor` and
    `requant.kernels.convert.requantize.general`.

    `multipliers` are one, or one for each block of `granularity`, which the zero points of `sides` have one for.
    """

    scheme: Scheme
    granularity: Granularity
    sides: Sides
    kernel: Callable[..., None]
    arguments: tuple[Array, ...]

    def new_counts(self) -> Array:
        """See Plan.new_counts. The last of these is the requirement that the first undefined element fails."""
        return _NO_COUNTS.copy()

    def compute(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """See TablePlan.compute."""
        # A view of a small tensor takes as long as its arithmetic, and to the kernel bytes of any type are bytes.
        as_bytes = source if source.itemsize == 1 else source.view(np.uint8)
        into = target if target.itemsize == 1 else target.view(np.uint8)
        self.kernel(as_bytes, into, start, source.size, *self.arguments, counts)

    def explain_undefined(self, counts: Array) -> str:
        demand = self.scheme.stage.demands[Requirement(int(counts[4]))]
        return f"profile {self.profile}, scheme {self.scheme.name}, is not defined for this element: {demand}"


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
    `exact` are the factors that the multipliers were derived from, which has checked them; default: what they
    represent. Raise ParameterError, pointing into `multipliers`, for one that is outside what the scheme is defined
    for.
    """
    for index, each in enumerate(multipliers if exact is None else ()):
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
    return _plan(scheme, sides, granularity, multipliers, application, profile)


def _plan(
    scheme: Scheme,
    sides: Sides,
    granularity: Granularity,
    multipliers: Sequence[Multiplier],
    application: Application,
    profile: str,
) -> ScalingPlan:
    source, target, channels = sides.source, sides.target, granularity.channels
    return ScalingPlan(
        **requantizing(profile, scheme.rounding, source, target),
        multipliers=tuple(multipliers),
        scheme=scheme,
        granularity=granularity,
        sides=sides,
        kernel=application.kernel.compiled(),
        arguments=application.arguments(channels),
        table=table_for(source.dtype, target.dtype, granularity.count),
    )
