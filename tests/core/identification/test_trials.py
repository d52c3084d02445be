"""Calls that are drawn to tell candidates apart."""

from __future__ import annotations

import numpy as np

from requant.functions import FUNCTIONS


def test_of_an_operation_that_has_no_default_scheme() -> None:
    observed = {"multiplier": [1690499128], "shift": [-6]}
    call = {"operation": "derive_multiplier", "arguments": {"factors": [0.0123]}, "observed": observed}
    found = FUNCTIONS["identify"]([call], suspects=["litert", "litert_emulate_float", "tosa"])
    assert [each["candidates"] for each in found["consistent"]] == [
        [{"scheme": "litert"}],
        [{"scheme": "litert_emulate_float"}],
    ]
    (tried,) = found["try_next"]
    assert [each["name"] for each in tried["tensors"]] == ["factors"]
    first, second = tried["outcomes"]
    assert first != second


def test_fake_quantizations_that_multiply_and_divide_are_told_apart_beside_steps() -> None:
    given = {"input": np.zeros(4, np.float32), "minimums": [-1.7], "maximums": [2.6], "num_bits": 4}
    call = {"operation": "fake_quantize", "arguments": given, "observed": {"output": np.zeros(4, np.float32)}}
    found = FUNCTIONS["identify"]([call], suspects=["tf_fake_quant", "tf_fake_quant_vars"])
    assert [len(each["candidates"]) for each in found["consistent"]] == [1, 1]
    (tried,) = found["try_next"]
    first, second = tried["outcomes"]
    assert first != second


def test_options_that_a_range_rule_has_by_default_are_the_same_rule() -> None:
    given = {"minimums": [-1.5], "maximums": [2.5], "storage": "i8"}
    rule = FUNCTIONS["derive_from_range"](**given, scheme="litert")
    observed = {name: rule[name].reshape(-1).tolist() for name in ("scales", "zero_points")}
    call = {"operation": "derive_from_range", "arguments": given, "observed": observed}
    groups = FUNCTIONS["identify"]([call])["consistent"]
    assert [each["proven"] for each in groups if {"scheme": "litert"} in each["candidates"]] == [True]
