"""Addition at a scale of its own, by three integer multipliers: LiteRT's ADD, and TOSA's RESCALE, ADD, RESCALE.

    m = 2 * max(s_a, s_b),  L = 20, or 15 where a side has more than 8 bits
    LiteRT:  y = scale((scale((a - z_a) << L, s_a / m) + scale((b - z_b) << L, s_b / m)), m / (2^L * s_y)) + z_y
    TOSA:    y = scale((scale(a - z_a, 2^L * s_a / m) + scale(b - z_b, 2^L * s_b / m)), m / (2^L * s_y)) + z_y

scale is the scheme's. Scales are f32 in LiteRT, f64 in TOSA's lowering. Source: LiteRT add.cc, reference_integer_ops
Add, run; StableHLO's pass stablehlo-quant-legalize-to-tosa-rescale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.scaling import common_granularity, plan_scaling
from requant.errors import ParameterError
from requant.formats.elements import IntegerElement
from requant.integer.add.arithmetic import PlannedArithmetic
from requant.mlir.types import TensorType
from requant.plan.channels import whole_blocks
from requant.plan.operands import QuantizedOperand, StoredOperand, integer_operand, static_shape
from requant.plan.plan import Plan
from requant.profiles.integer_rule import Addition, AddRule
from requant.schemes import Multiplier, Scheme, scheme_named

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPointAddition(PlannedArithmetic):
    """`left_shift` is LiteRT's, None in TOSA. `zeros` are those of both sides, where the shift comes first."""

    left_shift: int | None
    zeros: tuple[int, int]

    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        found: dict[str, Array] = {}
        scaled = []
        for side, numbers, zero, plan in zip(("lhs", "rhs"), (lhs, rhs), self.zeros, self.plans, strict=True):
            if self.left_shift is not None:
                numbers = (numbers.astype(np.int32) - np.int32(zero)) << np.int32(self.left_shift)
                found[f"{side}_shifted"] = numbers
            at_common_scale = np.empty(numbers.size, np.int32)
            of_side = plan.new_counts()
            plan.step(numbers, at_common_scale, start, of_side)
            if of_side[3] >= 0 > counts[3]:
                counts[3:5] = of_side[3:5]
            found[f"{side}_scaled"] = at_common_scale
            scaled.append(at_common_scale)
        # The sides are below 2^29 each: see `_check`.
        found["sum"] = scaled[0] + scaled[1]
        self.last.step(found["sum"], target, start, counts)
        return found


def _stage(
    scheme: Scheme, source: StoredOperand, target: StoredOperand, factor: float, profile: str, what: str
) -> tuple[Plan, Multiplier]:
    shape = static_shape(source.tensor)
    whole = whole_blocks(shape)
    try:
        multiplier = scheme.derive_checked(factor)
    except ParameterError as error:
        raise ParameterError(f"the factor of {what}, {factor!r}: {error.detail}") from None
    granularity = common_granularity(shape, (whole, 1), (whole, 1))
    plan = plan_scaling(scheme, source, target, granularity, [multiplier], profile=profile, exact=[factor])
    return plan, multiplier


def plan_fixed_point(
    rule: AddRule, lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> FixedPointAddition:
    """Plan the three stages.

    Raise ParameterError for scales that have no multipliers, UnsupportedError for 16 bits with zero points, which
    neither system takes.
    """
    assert rule.scheme is not None
    scheme = scheme_named(rule.scheme)
    of_litert = rule.addition is Addition.FIXED_POINT
    wide = max(lhs.width, rhs.width, output.width) > 8
    if wide:
        for name, side in (("lhs", lhs), ("rhs", rhs), ("output", output)):
            side.check_symmetric(name, f"profile {profile} adds 16-bit numbers with zero points 0")
    left = 15 if wide else 20
    kind = np.float32 if of_litert else np.float64
    with np.errstate(over="ignore", under="ignore"):
        scales = [float(kind(side.scales[0])) for side in (lhs, rhs, output)]
    twice = 2 * max(scales[:2])
    if not all(0.0 < scale < float("inf") for scale in scales):
        raise ParameterError("a scale is 0 or infinite in f32")
    shape = output.tensor.shape
    wide_type = integer_operand(TensorType(shape, IntegerElement(32)), "sum")
    plans, multipliers = [], []
    for name, side, scale in (("lhs", lhs, scales[0]), ("rhs", rhs, scales[1])):
        factor = scale / twice if of_litert else scale / twice * 2.0**left
        source = wide_type if of_litert else replace(side, tensor=wide_type.tensor, blocks=wide_type.blocks)
        plan, multiplier = _stage(scheme, source, wide_type, factor, profile, name)
        plans.append(plan)
        multipliers.append(multiplier)
    factor = twice / (2.0**left * scales[2])
    if of_litert and not factor < 1.0:
        raise ParameterError(f"the factor of the sum, {factor!r}, must be below 1 in LiteRT: the output scale is small")
    last, multiplier = _stage(scheme, wide_type, output, factor, profile, "the sum")
    if of_litert and scheme.represented(multiplier) >= 1:
        raise ParameterError(f"the factor of the sum, {factor!r}, is not below 1 in 31 bits, as LiteRT needs it")
    return FixedPointAddition(
        rounding=scheme.rounding,
        scheme=scheme.name,
        multipliers=(*multipliers, multiplier),
        left_shift=left if of_litert else None,
        zeros=(lhs.zero_points[0], rhs.zero_points[0]),
        plans=(plans[0], plans[1]),
        last=last,
    )
