"""Scaling of plain integers by given multipliers: the vectors of RESCALE, in all of its modes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from requant.convert.scaling import common_granularity, plan_scaling
from requant.errors import ParameterError, PreconditionError
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.operands import StoredOperand, integer_operand
from requant.schemes import Multiplier, scheme_named
from tests.vector_cases import load

SCHEMES = {
    (True, "SINGLE_ROUND"): "tosa",
    (True, "DOUBLE_ROUND"): "tosa_double_round",
    (True, "INEXACT_ROUND"): "tosa_inexact_round",
    (False, "SINGLE_ROUND"): "tosa_scale16",
    (False, "INEXACT_ROUND"): "tosa_scale16_inexact_round",
}
DEMANDS = {"value range": "-2^(shift-1)", "result not int32": "scaled value", "zp add overflow": "addition"}
CASES = [
    case
    for case in load("tosa_rescale")["cases"]
    if case["status"] != "error" and "u32" not in (case["in_t"], case["out_t"])
]


def side(case: Any, name: str) -> StoredOperand:
    sign = "u" if case[f"{name}put_unsigned"] else ""
    tensor = parse_type(f"tensor<{''.join(f'{size}x' for size in case['shape'])}{sign}{case[f'{name}_t']}>")
    assert isinstance(tensor, TensorType)
    return integer_operand(tensor, name, case[f"{name}put_zp"])


def run(case: Any) -> list[int]:
    source, target = side(case, "in"), side(case, "out")
    shape = case["shape"]
    per_channel = tuple(
        1 if case["per_channel"] and axis == len(shape) - 1 else size for axis, size in enumerate(shape)
    )
    granularity = common_granularity(
        shape, (source.blocks, 1), (target.blocks, 1), (per_channel, len(case["multiplier"]))
    )
    plan = plan_scaling(
        scheme_named(SCHEMES[case["scale32"], case["rounding_mode"]]),
        source,
        target,
        granularity,
        [Multiplier(*pair) for pair in zip(case["multiplier"], case["shift"], strict=True)],
        profile="tosa",
    )
    stored = np.empty(plan.elements, plan.output_dtype)
    plan.run(np.array(case["values"], plan.input_dtype), stored)
    listed: list[int] = stored.tolist()
    return listed


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case["id"])) for case in CASES])
def test_rescale(case: Any) -> None:
    if case["status"] == "valid":
        assert run(case) == case.get("reference_model_output", case["output"])
        return
    (reason,) = case["reasons"]
    if reason in DEMANDS:
        with pytest.raises(PreconditionError, match=re.escape(DEMANDS[reason])):
            run(case)
        return
    with pytest.raises(ParameterError):
        run(case)
