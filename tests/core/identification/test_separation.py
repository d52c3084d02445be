"""What to try next is an input that every consistent rule takes."""

from __future__ import annotations

from typing import Any

import numpy as np

import requant


def test_an_input_that_a_rule_refuses_tells_it_from_others() -> None:
    # By a shift of 16 to the left, two roundings are defined for 16-bit numbers only; one rounding takes 32 bits.
    accumulators = np.array([5523], np.int32)
    call: dict[str, Any] = {
        "operation": "requantize",
        "arguments": {
            "input": accumulators,
            "input_type": "i32",
            "output_type": "ui8",
            "multipliers": [966],
            "shifts": [16],
        },
        "observed": {"output": [163]},
    }
    reply = requant.identify([call], suspects=["cmsis_nn", "cmsis_nn_single_rounding"])
    assert [len(group["candidates"]) for group in reply["consistent"]] == [1, 1]
    [tried] = reply["try_next"]
    assert [len(each) for each in tried["outcomes"]] == [0, 1]


def test_a_sum_that_decides_is_made_of_inputs_and_weights() -> None:
    layer: dict[str, Any] = {
        "lhs": np.array([[10, -20, 30, 7]], np.int8),
        "lhs_type": "!quant.uniform<i8:f32, 0.5:3>",
        "rhs": np.array([[1], [4], [7], [-10]], np.int8),
        "rhs_type": "!quant.uniform<i8:f32, 0.123>",
        "output_type": "!quant.uniform<i8:f32, 1.0:-5>",
    }
    observed = requant.matmul(**layer, profile="litert_xnnpack")
    call = {"operation": "matmul", "arguments": layer, "observed": {"output": observed}}
    reply = requant.identify([call], suspects=["litert_xnnpack", "arm_vector"])
    assert len(reply["consistent"]) == 2
    (asked,) = reply["try_next"]
    lhs, rhs = (np.array(each["values"], np.int8) for each in asked["tensors"])
    given = layer | {"lhs": lhs.reshape(-1, rhs.size), "rhs": rhs.reshape(-1, 1)}
    for group, outcomes in zip(reply["consistent"], asked["outcomes"], strict=True):
        assert requant.matmul(**given, **group["candidates"][0]).ravel().tolist() == outcomes
