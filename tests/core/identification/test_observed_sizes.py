"""Outputs of another size than the input, and none, of calls of which everything or not all is known."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import requant
from requant.errors import ParameterError, TypeFitError, UnsupportedError

OPEN = "!quant.any<i8:f32>"
SUMS, REALS = np.array([1000, -2000, 3000, 70000], np.int32), np.array([0.5, -1, 2, 3], np.float32)
CALLS: dict[str, tuple[str, dict[str, Any], type]] = {
    "multiplier": ("requantize", {"input": SUMS, "output_type": "!quant.uniform<i8:f32, 0.25:-1>"}, np.int8),
    "output scale": (
        "requantize",
        {"input": SUMS, "input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": OPEN},
        np.int8,
    ),
    "input scale": (
        "requantize",
        {"input": SUMS, "input_type": "!quant.any<i32:f32>", "output_type": "!quant.uniform<i8:f32, 0.25:-1>"},
        np.int8,
    ),
    "quantize": ("quantize", {"input": REALS, "output_type": OPEN}, np.int8),
    "dequantize": ("dequantize", {"input": SUMS.astype(np.int8), "input_type": OPEN}, np.float32),
}
UNKNOWN: tuple[dict[str, Any], ...] = ({}, {"unknown_axis": 0}, {"unknown_block_sizes": [2]})


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("size", [0, 1, 3, 5])
def test_outputs_of_another_size_are_refused(what: str, size: int) -> None:
    operation, arguments, dtype = CALLS[what]
    call = {"operation": operation, "arguments": arguments, "observed": {"output": np.ones(size, dtype)}}
    refusal = f"{size} elements of output were observed; it has 4"
    for unknown in UNKNOWN:
        with pytest.raises(TypeFitError, match=refusal):
            requant.identify([call], suspects=["litert", "onnx"], **unknown)


@pytest.mark.parametrize(("what", "unknown"), list(product(("multiplier", "output scale"), UNKNOWN)))
def test_a_multiplier_alone_does_not_tell_a_scale(what: str, unknown: dict[str, Any]) -> None:
    operation, arguments, _ = CALLS[what]
    call = {"operation": operation, "arguments": arguments, "observed": {"multiplier": np.ones(1, np.int64)}}
    with pytest.raises((UnsupportedError, ParameterError)):
        requant.identify([call], suspects=["litert"], **unknown)


def test_of_a_known_call_no_candidate_has_an_output_of_that_size() -> None:
    types = {"input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": "!quant.uniform<i8:f32, 0.25:-1>"}
    call = {
        "operation": "requantize",
        "arguments": {"input": SUMS, **types},
        "observed": {"output": np.ones(3, np.int8)},
    }
    (found,) = requant.identify([call], suspects=["onnx"])["undefined"]
    assert found["reason"] == "3 elements of output were observed; it has 4"
