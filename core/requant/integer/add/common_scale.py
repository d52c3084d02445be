"""Addition as XNNPACK's qs8-vadd and qu8-vadd do it: two integer multipliers with one shift, and one rounding.

    r_a = f32(s_a / s_y), r_b = f32(s_b / s_y);  shift = 20 - floor(log2(max(r_a, r_b)))
    m_a = RNE(r_a * 2^shift), m_b likewise
    y = clamp(((a - z_a) * m_a + (b - z_b) * m_b + 2^(shift-1)) >> shift) + z_y

Both ratios lie in [2^-10, 2^8). Source: XNNPACK xnn_init_qs8_add_minmax_params, run through ai-edge-litert.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import ParameterError, UnsupportedError, error_side
from requant.formats.rounding import Rounding
from requant.integer.add.arithmetic import Arithmetic, clamp
from requant.plan.operands import QuantizedOperand
from requant.profiles.integer_rule import AddRule
from requant.schemes import Multiplier

Array = NDArray[Any]

_SMALLEST, _LARGEST = 2.0**-10, 2.0**8


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonScaleAddition(Arithmetic):
    """`multipliers` has those of lhs and rhs, with the same shift."""

    zeros: tuple[int, int]
    output: QuantizedOperand

    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        found = {}
        for side, numbers, zero, used in zip(("lhs", "rhs"), (lhs, rhs), self.zeros, self.multipliers, strict=True):
            found[f"{side}_scaled"] = (numbers.astype(np.int64) - zero) * used.multiplier
        found["sum"] = found["lhs_scaled"] + found["rhs_scaled"]
        shift = self.multipliers[0].shift
        found["scaled"] = (found["sum"] + (1 << (shift - 1))) >> shift
        found["after_zero_point"] = found["scaled"] + self.output.zero_points[0]
        clamp(found["after_zero_point"], self.output, target, counts)
        return found


def plan_common_scale(
    rule: AddRule, lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> CommonScaleAddition:
    """Derive the two multipliers.

    Raise ParameterError for ratios of scales that XNNPACK does not take, UnsupportedError for more than 8 bits.
    """
    for name, side in (("lhs", lhs), ("rhs", rhs), ("output", output)):
        if side.width > 8:
            with error_side(name):
                raise UnsupportedError(f"profile {profile} adds numbers of at most 8 bits; {name} has {side.storage}")
    ratios = []
    for name, side in (("lhs", lhs), ("rhs", rhs)):
        with np.errstate(all="ignore"):
            ratio = float(np.float32(side.scales[0]) / np.float32(output.scales[0]))
        if not _SMALLEST <= ratio < _LARGEST:
            raise ParameterError(
                f"the scale of {name} is {ratio!r} times the output's; XNNPACK takes {_SMALLEST!r} up to {_LARGEST!r}"
            )
        ratios.append(ratio)
    shift = 20 - (math.frexp(max(ratios))[1] - 1)
    # Python rounds to the nearest, ties to even, and the product is exact.
    multipliers = tuple(Multiplier(round(math.ldexp(ratio, shift)), shift) for ratio in ratios)
    return CommonScaleAddition(
        rounding=Rounding.SINGLE,
        multipliers=multipliers,
        zeros=(lhs.zero_points[0], rhs.zero_points[0]),
        output=output,
    )
