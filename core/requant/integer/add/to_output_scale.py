"""Addition as stablehlo-legalize-quant-to-math lowers it: both sides at the output's parameters, then integers.

    y = clamp(requantize(a) + requantize(b) - z_y), requantize to i32 without a clamp (`requant.schemes`)

Source: StableHLO's pass stablehlo-legalize-quant-to-math.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.scaling import common_granularity, plan_scaling
from requant.errors import ParameterError
from requant.formats.elements import IntegerElement
from requant.integer.add.arithmetic import Arithmetic, clamp
from requant.mlir.types import TensorType
from requant.plan.operands import QuantizedOperand, integer_operand, static_shape
from requant.plan.plan import Plan
from requant.profiles.integer_rule import AddRule
from requant.schemes import scheme_named

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputScaleAddition(Arithmetic):
    """`plans` bring both sides to the scale and zero point of the output."""

    plans: tuple[Plan, Plan]
    output: QuantizedOperand

    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        found = {}
        for side, numbers, plan in zip(("lhs", "rhs"), (lhs, rhs), self.plans, strict=True):
            scaled = np.empty(numbers.size, np.int32)
            plan.step(numbers, scaled, start, plan.new_counts())
            found[f"{side}_scaled"] = scaled
        # i32, modulo 2^32, as the module's.
        found["sum"] = found["lhs_scaled"] + found["rhs_scaled"]
        found["after_zero_point"] = found["sum"] - np.int32(self.output.zero_points[0])
        clamp(found["after_zero_point"], self.output, target, counts)
        return found


def plan_to_output_scale(
    rule: AddRule, lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> OutputScaleAddition:
    """Plan the two requantizations. Raise ParameterError where a ratio of scales is no f32."""
    assert rule.scheme is not None
    scheme = scheme_named(rule.scheme)
    tensor = TensorType(output.tensor.shape, IntegerElement(32))
    target = integer_operand(tensor, "sum", output.zero_points[0])
    granularity = common_granularity(static_shape(tensor), (target.blocks, 1), (target.blocks, 1))
    plans, multipliers = [], []
    for name, side in (("lhs", lhs), ("rhs", rhs)):
        ratio = scheme.factor.of(side.scales[0], None, output.scales[0])
        try:
            multiplier = scheme.derive_checked(ratio)
        except ParameterError as error:
            raise ParameterError(f"the scale of {name} to the output's: {error.detail}") from None
        source = replace(side, tensor=tensor, blocks=target.blocks)
        plans.append(plan_scaling(scheme, source, target, granularity, [multiplier], profile=profile, exact=[ratio]))
        multipliers.append(multiplier)
    return OutputScaleAddition(
        rounding=scheme.rounding,
        scheme=scheme.name,
        multipliers=tuple(multipliers),
        plans=(plans[0], plans[1]),
        output=output,
    )
