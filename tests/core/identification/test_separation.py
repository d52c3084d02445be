"""What to try next is an input that every consistent rule takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import requant
from requant.arrays.calls import read_calls
from requant.description import CallsInput
from requant.identification.separation import separate
from requant.operations.conversions import CONVERSIONS

_CONVERSIONS = {each.name: each for each in CONVERSIONS.values()}


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


def test_a_sum_that_an_accumulator_does_not_hold_decides() -> None:
    layer: dict[str, Any] = {
        "lhs": np.array([[700]], np.int16),
        "lhs_type": "!quant.uniform<i16:f32, 0.25>",
        "rhs": np.array([[9]], np.int8),
        "rhs_type": "!quant.uniform<i8:f32, 0.0078125>",
        "output_type": "!quant.uniform<i16:f32, 0.2266836166381836>",
        "profile": "litert",
        "scheme": "litert_float",
    }
    observed = requant.matmul(**layer)
    call: dict[str, Any] = {"operation": "matmul", "arguments": layer, "observed": {"output": observed}}
    reply = requant.identify([call])
    # Sums saturate i16 long before they saturate i32.
    groups = [[tuple(each.values()) for each in group["candidates"]] for group in reply["consistent"]]
    assert groups == [[(), ("wrap",), ("saturate",)], [("i32",)], [("i32", "wrap")]]
    assert all(group["proven"] for group in reply["consistent"])
    calls = [call]
    for asked in reply["try_next"]:
        lhs, rhs = (np.array(each["values"]) for each in asked["tensors"])
        given = layer | {"lhs": lhs.reshape(-1, rhs.size).astype(np.int16), "rhs": rhs.reshape(-1, 1).astype(np.int8)}
        calls.append({"operation": "matmul", "arguments": given, "observed": {"output": requant.matmul(**given)}})
    assert len(requant.identify(calls)["consistent"]) == 1


def test_any_nan_of_a_quantized_float_is_the_same() -> None:
    arguments: dict[str, Any] = {"input": np.array([1.0], np.float32), "output_type": "!quant.uniform<f8E5M2:f32, 1.0>"}
    observed = {"output": requant.quantize(*arguments.values(), profile="onnx")}
    call = {"operation": "quantize", "arguments": arguments, "observed": observed}
    reply = requant.identify([call], suspects=["onnx", "onnx_reference"])
    assert [group["proven"] for group in reply["consistent"]] == [True]


def test_blocks_are_rules_of_single_numbers() -> None:
    output = "!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.3}, {0.25:3, 0.1}}>"
    arguments: dict[str, Any] = {"input": np.zeros((2, 4), np.float32), "output_type": output}
    observed = requant.quantize(*arguments.values(), profile="torch_decomposed")
    call: dict[str, Any] = {"operation": "quantize", "arguments": arguments, "observed": {"output": observed}}
    reply = requant.identify([call], suspects=["torch_decomposed", "onnx", "floor"])
    assert all(group["proven"] for group in reply["consistent"])
    calls = [call]
    for asked in reply["try_next"]:
        given = arguments | {"input": np.array(asked["tensors"][0]["values"], np.float32).reshape(2, 4)}
        observed = requant.quantize(*given.values(), profile="torch_decomposed")
        calls.append({"operation": "quantize", "arguments": given, "observed": {"output": observed}})
    assert len(requant.identify(calls, suspects=["torch_decomposed", "onnx", "floor"])["consistent"]) == 1


def test_parameters_along_two_axes_are_told_apart_by_trials() -> None:
    stored = np.arange(12, dtype=np.uint8).reshape(4, 3)
    types = "!quant.uniform<u8:f32:0, {0.5, 0.25, 0.3, 0.1}>", "!quant.uniform<i8:f32:1, {0.7, 0.1, 0.2}>"
    observed = requant.requantize(stored, *types, profile="litert", scheme="tosa_double_round")
    arguments = {"input": stored, "input_type": types[0], "output_type": types[1]}
    call = {"operation": "requantize", "arguments": arguments, "observed": {"output": observed}}
    reply = requant.identify([call], suspects=["tosa_double_round", "litert_xnnpack", "arm_vector", "xnnpack_cvt8"])
    assert all("step" in each for each in reply["excluded"])
    found = [each for group in reply["consistent"] for each in group["candidates"]]
    assert any(each.get("scheme", each["profile"]) == "tosa_double_round" for each in found)


def test_multipliers_are_observed_in_the_convention_of_each_scheme() -> None:
    arguments = {
        "input": np.array([585, 7984, -12], np.int32),
        "input_type": "!quant.uniform<i32:f32, 0.001>",
        "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
    }
    # The same multiplication and shift: LiteRT's shift is -7 to the left, that of Ethos-U 38 to the right.
    for scheme, shift in (("litert", -7), ("ethos_u", 38)):
        observed = {"multiplier": [1099511680], "shift": [shift]}
        call = {"operation": "requantize", "arguments": arguments, "observed": observed}
        reply = requant.identify([call])
        consistent, excluded = (
            [each.get("scheme") for group in reply[kind] for each in group["candidates"]]
            for kind in ("consistent", "excluded")
        )
        assert scheme in consistent
        assert scheme not in excluded
        for probe in reply["try_next"]:
            assert all(len(each) == len(probe["outcomes"][0]) for each in probe["outcomes"])


def test_a_budget_ends_the_search_for_thresholds() -> None:
    arguments = {"input": np.zeros(1, np.float32), "output_type": "!quant.uniform<i8:f32, 0.3:5>"}
    call = {"operation": "quantize", "arguments": arguments, "observed": {"output": np.array([5], np.int8)}}
    read = read_calls(CallsInput(name="calls", description="", operations=_CONVERSIONS, observed=True), [call])
    candidates = [(("profile", name),) for name in ("litert", "onnx_reference")]
    assert len(separate(read, candidates).classes) == 2
    in_time = iter([True])
    [left] = separate(read, candidates, lambda: not next(in_time, False)).classes
    assert not left.proven


def test_calls_of_operations_with_other_options() -> None:
    arguments = {
        "input": np.array([585], np.int32),
        "input_type": "!quant.uniform<i32:f32, 0.001>",
        "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
    }
    calls = [
        {"operation": "requantize", "arguments": arguments, "observed": {"output": np.array([1], np.int8)}},
        {
            "operation": "derive_multiplier",
            "arguments": {"factors": ["0.0123"]},
            "observed": {"multiplier": [1690499128], "shift": [-6]},
        },
    ]
    reply = requant.identify(calls, derivations=True)
    assert any(each.get("scheme") == "litert" for group in reply["consistent"] for each in group["candidates"])
    assert "derive_multiplier has no scheme" in {each["reason"] for each in reply["undefined"]}


def test_unknown_scales_of_products_are_refused() -> None:
    ones, known = np.ones((1, 1), np.int8), "!quant.uniform<i8:f32, 0.25:-1>"
    types = {"lhs_type": known, "rhs_type": "!quant.any<i8:f32>", "output_type": known}
    call = {"operation": "matmul", "arguments": {"lhs": ones, "rhs": ones, **types}, "observed": {"output": ones}}
    with pytest.raises(requant.RequantError, match="unknown scales are looked for in"):
        requant.identify([call])
