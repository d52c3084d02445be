"""Addition of real numbers: dequantize, add in the expressed type, quantize, by the profile's own two rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.errors import RequantError, UnsupportedError
from requant.integer.add.arithmetic import PlannedArithmetic
from requant.mlir.types import TensorType
from requant.plan.operands import QuantizedOperand

Array = NDArray[Any]

_FLOATS = ("f16", "f32", "f64")


@dataclass(frozen=True, slots=True, kw_only=True)
class RealAddition(PlannedArithmetic):
    """`plans` dequantize both sides, `last` quantizes their sum."""

    def step(self, lhs: Array, rhs: Array, target: Array, start: int, counts: Array) -> dict[str, Array]:
        found = {}
        for side, numbers, plan in zip(("lhs", "rhs"), (lhs, rhs), self.plans, strict=True):
            real = np.empty(numbers.size, plan.output_dtype)
            plan.step(numbers, real, start, plan.new_counts())
            found[f"{side}_real"] = real
        with np.errstate(over="ignore", invalid="ignore"):
            found["real_sum"] = found["lhs_real"] + found["rhs_real"]
        self.last.step(found["real_sum"], target, start, counts)
        return found


def plan_add_through_real(
    lhs: QuantizedOperand, rhs: QuantizedOperand, output: QuantizedOperand, profile: str
) -> RealAddition:
    """Plan three conversions of the output's shape. Raise UnsupportedError for types that the rules refuse."""
    if output.expressed.name not in _FLOATS:
        raise UnsupportedError(f"sums are formed in {', '.join(_FLOATS)}; these types express {output.expressed.name}")
    plans = []
    for name, side in (("lhs", lhs), ("rhs", rhs)):
        with _about_operand(name):
            plans.append(plan_dequantize(TensorType(output.tensor.shape, side.tensor.element), None, profile))
    with _about_operand("output"):
        last = plan_quantize(plans[0].output_type, output.tensor, profile)
    return RealAddition(rounding=last.rounding, plans=(plans[0], plans[1]), last=last)


@contextmanager
def _about_operand(name: str) -> Iterator[None]:
    """Say of an error about the input or the output of a conversion which operand's type it is about."""
    try:
        yield
    except RequantError as error:
        error.side = name
        raise
