"""The first step at which an excluded candidate goes another way is a step of the explanation."""

from __future__ import annotations

from typing import Any

import numpy as np

import requant
from requant.functions import FUNCTIONS


def identified(operation: str, arguments: dict[str, Any], observed: Any, *suspects: str) -> dict[str, Any]:
    call = {"operation": operation, "arguments": arguments, "observed": {"output": observed}}
    found: dict[str, Any] = FUNCTIONS["identify"]([call], suspects=list(suspects))
    return found


def test_with_given_multipliers_it_is_a_step_of_the_explanation() -> None:
    arguments: dict[str, Any] = {
        "input": np.arange(-2048, 2048, dtype=np.int32).reshape(-1, 2),
        "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
        "multipliers": [1099511680, 1299511681],
        "shifts": [-7, -7],
        "axis": 1,
    }
    explained = {}
    for scheme in ("litert", "litert_single_rounding"):
        given = dict(arguments, scheme=scheme)
        explained[scheme] = FUNCTIONS["explain_requantize"](**given, return_report=True)[1]["elements"]
    pairs = list(zip(arguments["multipliers"], arguments["shifts"], strict=True))
    observed = requant.requantize(
        arguments["input"], None, arguments["output_type"], multipliers=pairs, axis=1, scheme="litert"
    )
    answer = identified("requantize", arguments, observed, *explained)
    [excluded] = answer["excluded"]
    steps = explained["litert_single_rounding"][excluded["first"]["index"]]["steps"]
    others = explained["litert"][excluded["first"]["index"]]["steps"]
    assert excluded["step"] in steps
    assert excluded["consistent_step"] in others


def test_a_sum_diverges_at_a_stage_of_its_trace() -> None:
    lhs, rhs = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128, 7))
    types = {"lhs_type": "!quant.uniform<i8:f32, 0.5:-1>", "rhs_type": "!quant.uniform<i8:f32, 0.27:2>"}
    arguments = {"lhs": lhs.astype(np.int8), "rhs": rhs.astype(np.int8), **types}
    arguments["output_type"] = "!quant.uniform<i8:f32, 0.53:3>"
    output, report = FUNCTIONS["add"](**arguments, profile="litert", trace=True, return_report=True)
    answer = identified("add", arguments, output, "litert", "litert_xnnpack", "stablehlo")
    assert {"profile": "litert"} in answer["consistent"][0]["candidates"]
    for excluded in answer["excluded"]:
        step, other = excluded["step"], excluded["consistent_step"]
        stage = report["trace"][other["symbol"]].reshape(-1)[excluded["first"]["index"]]
        assert int(other["value"]) == stage
        assert (step["symbol"], step["value"]) != (other["symbol"], other["value"])
    assert answer["excluded"]
