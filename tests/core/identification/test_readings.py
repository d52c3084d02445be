"""Where no rule gives the outputs, because a tensor or a parameter is read in another way, the reading is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import requant
from requant.arrays.calls import ArrayCall, call_on_arrays
from requant.description import Array
from requant.identification.identification import identify
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS

_RANDOM = np.random.default_rng(6)
_INPUT, _OUTPUT = "!quant.uniform<i8:f32, 0.05:4>", "!quant.uniform<i8:f32, 0.7:-3>"
_WEIGHTS = "!quant.uniform<i8<-127:127>:f32:3, {0.01, 0.02, 0.015, 0.03}>"
_WINDOW: Mapping[str, Any] = {"pads": (1, 1, 1, 1), "weights_layout": "HWIO"}


def _bytes(*shape: int) -> Array:
    return _RANDOM.integers(-127, 128, shape).astype(np.int8)


def _convolution(**changed: Any) -> tuple[dict[str, Any], Array]:
    """Return the arguments of a convolution, and its outputs with some of them changed."""
    arguments: dict[str, Any] = {
        "input": _bytes(1, 6, 6, 4),
        "weights": _bytes(3, 3, 4, 4),
        "bias": _RANDOM.integers(-4000, 4000, 4).astype(np.int32),
        "input_type": _INPUT,
        "weights_type": _WEIGHTS,
        "output_type": _OUTPUT,
        **_WINDOW,
    }
    made = {name: change(arguments) if callable(change) else change for name, change in changed.items()}
    return arguments, requant.conv2d(**{**arguments, **made}, profile="litert")


def _call(operation: str, arguments: Mapping[str, Any], observed: Array) -> ArrayCall:
    tensors = {each.name for each in OPERATIONS[operation].tensors}
    types = {name.removesuffix("_type"): value for name, value in arguments.items() if name.endswith("_type")}
    output = types.pop("output")
    options = {name: value for name, value in arguments.items() if name not in tensors and not name.endswith("_type")}
    arrays = {name: value for name, value in arguments.items() if name in tensors}
    call = call_on_arrays(OPERATIONS[operation], arrays, types, {**options, "output_type": output})
    return call.with_observed({"output": observed})


def _padded(arguments: Mapping[str, Any]) -> Array:
    return np.pad(arguments["input"], [(0, 0), (1, 1), (1, 1), (0, 0)])


def _unsigned(arguments: Mapping[str, Any]) -> Array:
    seen: Array = arguments["input"].view(np.uint8)
    return seen


CONVOLUTIONS: Mapping[str, Mapping[str, Any]] = {
    "weights are in the order OHWI": {
        "weights": lambda given: given["weights"].reshape(4, 3, 3, 4),
        "weights_layout": "OHWI",
        "weights_type": _WEIGHTS.replace("f32:3", "f32:0"),
    },
    "input is in the order NCHW": {
        "input": lambda given: given["input"].reshape(1, 4, 6, 6).transpose(0, 2, 3, 1).copy()
    },
    "the output is at least -3, real zero: a fused activation": {"output_type": _OUTPUT.replace("i8:", "i8<-3:127>:")},
    "the zero point of input is left out": {"input_type": _INPUT.replace(":4", "")},
    "the bias is left out": {"bias": lambda given: np.zeros_like(given["bias"])},
    "the bias is added twice": {"bias": lambda given: 2 * given["bias"]},
    "the input is padded with stored zeros": {"input": _padded, "pads": (0, 0, 0, 0)},
    "input is unsigned": {"input": _unsigned, "input_type": _INPUT.replace("i8", "u8")},
    "input is off by 128": {"input": lambda given: given["input"] ^ np.int8(-128)},
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", CONVOLUTIONS)
def test_a_convolution_that_was_read_in_another_way(text: str) -> None:
    arguments, observed = _convolution(**CONVOLUTIONS[text])
    answer = identify([_call("conv2d", arguments, observed)])
    assert not answer.consistent
    assert answer.unexplained is not None
    found = {each.text: each for each in answer.unexplained.readings}
    assert text in found
    assert any(("profile", "litert") in each for group in found[text].groups for each in group.candidates)


def test_weights_that_were_transposed() -> None:
    lhs, rhs = _bytes(9, 8), _bytes(8, 8)
    types: Mapping[str, Any] = {
        "lhs_type": _INPUT,
        "rhs_type": "!quant.uniform<i8:f32, 0.02>",
        "output_type": _OUTPUT,
    }
    observed = requant.matmul(lhs, np.ascontiguousarray(rhs.T), **types)
    answer = identify([_call("matmul", {"lhs": lhs, "rhs": rhs, **types}, observed)])
    assert answer.unexplained is not None
    assert [each.text for each in answer.unexplained.readings] == ["rhs is transposed"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("side", ["input", "output"])
def test_nibbles_in_the_other_order(side: str) -> None:
    source, target = "!quant.uniform<i4:f32, 0.3:1>", "!quant.uniform<i4:f32, 0.5:-2>"
    nibbles = _RANDOM.integers(-8, 8, 301).astype(np.int8)
    observed = requant.requantize(nibbles, source, target, profile="stablehlo")
    given = nibbles if side == "output" else _swapped(nibbles)
    observed = _swapped(observed) if side == "output" else observed
    answer = identify([_conversion(given, source, target, observed)])
    assert answer.unexplained is not None
    name = "the output" if side == "output" else side
    assert f"the nibbles of {name} are in the other order" in [each.text for each in answer.unexplained.readings]


def _swapped(nibbles: Array) -> Array:
    even = nibbles[:-1].reshape(-1, 2)[:, ::-1].reshape(-1)
    return np.append(even, nibbles[-1:])


@pytest.mark.exhaustive
def test_scales_along_another_axis() -> None:
    source = "!quant.uniform<i8:f32:0, {0.3, 0.2, 0.17, 0.23, 0.4}>"
    given = _bytes(5, 5)
    observed = requant.requantize(given, source.replace("f32:0", "f32:1"), _OUTPUT)
    answer = identify([_conversion(given, source, _OUTPUT, observed)])
    assert answer.unexplained is not None
    assert "the scales of input are those of axis 1" in [each.text for each in answer.unexplained.readings]


def _conversion(given: Array, source: str, target: str, observed: Array) -> ArrayCall:
    operation = next(each for each in CONVERSIONS.values() if each.name == "requantize")
    return call_on_arrays(operation, {"input": given}, {"input": source}, {"output_type": target}).with_observed(
        {"output": observed}
    )


@pytest.mark.exhaustive
def test_a_flipped_bit_is_no_reading() -> None:
    arguments, observed = _convolution()
    flipped = observed.copy()
    flipped.reshape(-1)[77] ^= 1
    answer = identify([_call("conv2d", arguments, flipped)])
    assert answer.unexplained is not None
    assert not answer.unexplained.readings
    synthesis = answer.unexplained.synthesis
    assert synthesis is not None
    assert [(each.call, each.index) for each in synthesis.unexplained] == [(0, 77)]
