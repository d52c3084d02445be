"""Models of operations: what is wrong with a call, and where; tensors beyond the limits of JSON; numbered inputs."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.oracles.ranges import onnxruntime
from tests.support.oip_wire import LENGTH, Array, Input, infer, read

I8 = "!quant.uniform<i8:f32, 0.5:3>"
A, B = Input("lhs", np.ones((2, 3), np.int8)), Input("rhs", np.ones((3, 2), np.int8))
MATMUL = {"output_type": "i32"}
X = Input("x", np.ones((2, 4), np.float32))
IMAGE, KERNEL = Input("x", np.ones((1, 3, 3, 1), np.int8)), Input("weights", np.ones((1, 2, 2, 1), np.int8))
LOW, HIGH = Input("minimum", np.array([-1.0])), Input("maximum", np.array([1.0]))
RANGE = {"storage": "i8", "scheme": "litert"}
HALF = Input("input_scale", np.array([0.5]))
IDENTITY = "func.func @main(%x: tensor<2xi8>) -> tensor<2xi8> {\n  return %x : tensor<2xi8>\n}\n"
PAIR = "func.func @main(%x: tensor<2xi8>, %y: tensor<2xf32>) -> tensor<2xi8> {\n  return %x : tensor<2xi8>\n}\n"


def named(name: str, array: Array) -> Input:
    return Input(name, array)


REFUSED: list[tuple[str, list[Input], dict[str, Any], str, str | None]] = [
    ("matmul", [A, named("rhs", np.ones((4, 2), np.int8))], MATMUL, "type_does_not_fit", "/inputs/1"),
    ("matmul", [A, B], {"output_type": "f32"}, "unsupported", "/inputs/0"),
    ("matmul", [A, B], {**MATMUL, "profile": "nope"}, "unknown_name", "/parameters/profile"),
    ("matmul", [A, B], {**MATMUL, "scheme": "nope"}, "unknown_name", "/parameters/scheme"),
    ("matmul", [A, B], {**MATMUL, "overflow": "nope"}, "request_invalid", "/parameters/overflow"),
    ("matmul", [A, B], {**MATMUL, "rhs_type": "tensor<9xi8>"}, "type_does_not_fit", "/parameters/rhs_type"),
    ("matmul", [A, B], {**MATMUL, "lhs_type": "i16"}, "tensor_data", "/inputs/0/datatype"),
    ("matmul", [named("lhs", np.full((2, 3), 9, np.int8)), B],
     {"output_type": I8, "lhs_type": "!quant.uniform<i4:f32, 0.5>", "rhs_type": I8}, "tensor_data", "/inputs/0"),
    ("matmul", [named("lhs", np.ones(3, np.uint8)), B],
     {**MATMUL, "lhs_type": "i4", "packing": "dense"}, "type_does_not_fit", "/parameters/lhs_type"),
    ("matmul", [named("lhs", np.ones(9, np.uint8)), B],
     {**MATMUL, "lhs_type": "tensor<2x3xi4>", "packing": "dense"}, "tensor_data", "/inputs/0"),
    ("conv2d", [IMAGE, KERNEL], {**MATMUL, "strides": "[1]"}, "request_invalid", "/parameters/strides"),
    ("conv2d", [IMAGE, KERNEL], {**MATMUL, "strides": "[1, 0]"}, "request_invalid", "/parameters/strides"),
    ("conv2d", [IMAGE, KERNEL], {**MATMUL, "pads": "[1, 1, 1, 1.5]"}, "request_invalid", "/parameters/pads"),
    ("conv2d", [IMAGE, KERNEL], {**MATMUL, "groups": 0}, "request_invalid", "/parameters/groups"),
    ("conv2d", [IMAGE, KERNEL], {**MATMUL, "trace": 1}, "request_invalid", "/parameters/trace"),
    ("add", [A, A], {"output_type": I8}, "request_invalid", "/inputs/1/name"),
    ("fake_quantize", [X, LOW, HIGH], {"num_bits": 1}, "request_invalid", "/parameters/num_bits"),
    ("fake_quantize", [X, HIGH, LOW], {"axis": 0}, "unsupported", "/inputs/0"),
    ("fake_quantize", [X, named("minimum", np.array([2.0])), HIGH], {}, "parameter_invalid", "/inputs/1"),
    ("fake_quantize", [X, named("minimum", np.array([np.nan])), HIGH], {}, "parameter_invalid", "/inputs/1"),
    ("derive_from_range", [LOW, named("maximum", np.ones(2))], RANGE, "request_invalid", "/inputs/1"),
    ("derive_from_range", [named("minimum", np.zeros(0)), named("maximum", np.zeros(0))], RANGE,
     "parameter_invalid", "/inputs/0"),
    ("derive_from_range", [named("minimum", np.zeros(65537)), HIGH], RANGE, "limit_exceeded", "/inputs/0"),
    ("derive_from_range", [LOW, HIGH], {**RANGE, "storage": "i9x"}, "type_invalid", "/parameters/storage"),
    ("derive_from_range", [LOW, HIGH], {**RANGE, "epsilon": 1e-3}, "unsupported", "/parameters/epsilon"),
    ("derive_from_range", [LOW, HIGH], {**RANGE, "epsilon": "1e-3x"}, "request_invalid", "/parameters/epsilon"),
    ("derive_from_range", [LOW, HIGH], {**RANGE, "shape": "4", "block_sizes": "0"}, "request_invalid",
     "/parameters/block_sizes"),
    ("derive_from_range", [LOW, HIGH], {**RANGE, "shape": "[4", "block_sizes": "2"}, "request_invalid",
     "/parameters/shape"),
    ("derive_bias", [named("input_scale", np.ones(2)), named("weight_scale", np.ones(2))], {"scheme": "litert"},
     "type_does_not_fit", "/inputs/0"),
    ("derive_bias", [HALF, named("weight_scale", np.array([1.0, -1.0]))], {"scheme": "litert"}, "parameter_invalid",
     "/inputs/1"),
    ("derive_bias", [HALF, named("weight_scale", np.ones(2)), named("bias", np.ones(3, np.float32))],
     {"scheme": "litert"}, "type_does_not_fit", "/inputs/2"),
    ("derive_multiplier", [], {"scheme": "litert"}, "request_invalid", "/inputs"),
    ("derive_multiplier", [HALF], {"scheme": "litert"}, "request_invalid", "/inputs"),
    ("derive_multiplier", [HALF, named("output_scale", np.array([1.0, 0.0]))], {"scheme": "litert"},
     "parameter_invalid", "/inputs/1"),
    ("derive_multiplier", [named("factor", np.ones(4097))], {"scheme": "litert"}, "limit_exceeded", "/inputs/0"),
    ("derive_multiplier", [named("factor", np.array([np.inf]))], {"scheme": "litert"}, "parameter_invalid",
     "/inputs/0"),
    ("derive_multiplier", [named("factor", np.ones(1))], {"scheme": "nope"}, "unknown_name", "/parameters/scheme"),
    ("derive_from_tensor", [], {"storage": "i8"}, "request_invalid", "/inputs"),
    ("derive_from_tensor", [named("x_0", np.ones(2)), named("x_2", np.ones(2))], {"storage": "i8"}, "request_invalid",
     "/inputs"),
    ("derive_from_tensor", [named("x_1", np.ones(3)), named("x_0", np.ones(2))], {"storage": "i8"},
     "type_does_not_fit", "/inputs/0"),
    ("derive_from_tensor", [named("x_1", np.array([np.nan])), named("x_0", np.ones(1))], {"storage": "i8"},
     "precondition_failed", "/inputs/0"),
    ("derive_from_tensor", [X], {"storage": "i8", "axis": 5}, "type_does_not_fit", "/parameters/axis"),
    ("derive_from_tensor", [X], {"storage": "i8", "bins": 8}, "unsupported", "/parameters/bins"),
    ("derive_from_tensor", [X], {"storage": "i8", "granularity": "per_row"}, "request_invalid",
     "/parameters/granularity"),
    ("derive_from_tensor", [X], {"storage": "i8", "granularity": "sub_channel", "block_sizes": "[1]"},
     "type_does_not_fit", "/parameters/block_sizes"),
    ("parse_type", [], {"text": "tensor<2x"}, "type_invalid", "/parameters/text"),
    ("parse_type", [X], {"text": "f32"}, "request_invalid", "/inputs/0/name"),
    ("translate_type", [], {}, "request_invalid", ""),
    ("translate_type", [], {"type": "f32"}, "unsupported", "/parameters/type"),
    ("translate_type", [], {"type": I8, "systems": '["nope"]'}, "request_invalid", "/parameters/systems"),
    ("translate_type", [], {"onnx": "{"}, "request_invalid", "/parameters/onnx"),
    ("translate_type", [], {"onnx": '{"x_type": "i8", "x_scale": [1], "x_zero": 1}'}, "request_invalid",
     "/parameters/onnx"),
    ("translate_type", [], {"litert": "[" * 2_000_000}, "limit_exceeded", "/parameters/litert"),
    ("lower", [], {"module": "nonsense"}, "module_invalid", "/parameters/module"),
    ("lower", [], {"module": " " * 200_000}, "limit_exceeded", "/parameters/module"),
    ("lower", [], {"module": IDENTITY, "passes": '["nope"]'}, "unknown_name", "/parameters/passes"),
    ("lower", [], {"module": IDENTITY, "passes": "nope"}, "request_invalid", "/parameters/passes"),
    ("evaluate", [], {"module": IDENTITY}, "parameter_invalid", None),
    ("evaluate", [named("input", np.ones(2, np.float32))], {"module": IDENTITY}, "tensor_data", "/inputs/0"),
    ("evaluate", [named("input", np.ones(3, np.int8))], {"module": IDENTITY}, "type_does_not_fit", "/inputs/0"),
    ("evaluate", [named("input_1", np.ones(2, np.int8)), named("input_0", np.ones(2, np.int8))], {"module": PAIR},
     "tensor_data", "/inputs/0"),
    ("evaluate", [named("input", np.ones(2, np.int8))], {"module": IDENTITY, "function": "nope"}, "unknown_name",
     "/parameters/function"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "inputs", "parameters", "code", "pointer"), REFUSED, ids=lambda each: str(each)[:40])
def test_errors_point_at_what_is_wrong(
    client: httpx.Client, model: str, inputs: list[Input], parameters: dict[str, Any], code: str, pointer: str | None
) -> None:
    reply = infer(client, model, inputs, parameters=parameters)
    problem = reply.json()
    assert (problem["code"], problem["error"]) == (code, problem["detail"]), problem
    assert [fault["pointer"] for fault in problem.get("errors", ())] == ([] if pointer is None else [pointer]), problem


def test_an_embedding_is_calibrated_in_one_call(client: httpx.Client) -> None:
    """46.9 MB, six times what JSON takes."""
    x = np.random.default_rng(1).standard_normal((30522, 384), np.float32)
    parameters = {"storage": "i8", "axis": 0, "binary_data_output": True}
    outputs = read(infer(client, "derive_from_tensor", [Input("x", x)], parameters=parameters)).outputs
    assert outputs["minimum"].tolist() == x.min(1).tolist()
    assert outputs["maximum"].tolist() == x.max(1).tolist()
    for row in range(0, 30522, 613):
        low, high = float(x[row].min()), float(x[row].max())
        expected = onnxruntime(low, high, -128, 127, symmetric=False, least_width=None, blocked=False)
        assert (outputs["scale"][row], outputs["zero_point"][row]) == expected


def test_what_is_derived_is_what_quantize_takes(client: httpx.Client) -> None:
    x = np.array([[-1.0, 0.5], [0.25, 3.0]], np.float32)
    found = read(infer(client, "derive_from_tensor", [Input("x", x)], parameters={"storage": "u8", "axis": 1}))
    given = [Input("x", x), *(Input(name, found.outputs[name]) for name in ("scale", "zero_point"))]
    by_tensors = read(infer(client, "quantize", given, parameters={"storage_type": "u8", "axis": 1}))
    by_type = read(infer(client, "quantize", [given[0]], parameters={"output_type": found.head["parameters"]["type"]}))
    assert by_tensors.outputs["y"].tolist() == by_type.outputs["y"].tolist() == [[0, 42], [255, 255]]


def test_a_tensor_alone_is_calibrated(client: httpx.Client) -> None:
    x = np.array([-1.0, 2.0], np.float32)
    url, headers = "/v2/models/derive_from_tensor/infer", {LENGTH: "0"}
    query = {"storage": "i8", "averaging_constant": "0.5", "method": "moving_average"}
    found = read(client.post(url, content=x.tobytes(), params=query, headers=headers))
    assert [found.outputs[name].item() for name in ("minimum", "maximum")] == [-1.0, 2.0]
    assert client.post("/v2/models/lower/infer", params={"module": IDENTITY}, headers=headers).status_code == 400


def test_packed_operands_and_output(client: httpx.Client) -> None:
    lhs, rhs = np.array([[1, -2, 3], [-8, 7, 0]], np.int8), np.array([[1, 2], [-3, 4], [5, -6]], np.int8)
    four, types = "!quant.uniform<i4:f32, 0.5>", {"profile": "stablehlo", "output_type": "!quant.uniform<i4:f32, 8.0>"}
    plain = [Input("lhs", lhs), Input("rhs", rhs)]
    expected = read(infer(client, "matmul", plain, parameters={**types, "lhs_type": four, "rhs_type": four}))
    packed = [Input(each.name, pack(each.array)) for each in plain]
    of_tensors = {"lhs_type": f"tensor<2x3x{four}>", "rhs_type": f"tensor<3x2x{four}>"}
    found = read(infer(client, "matmul", packed, parameters={**types, **of_tensors, "packing": "dense"}))
    assert found.head["parameters"] == expected.head["parameters"]
    assert found.outputs["y"].tobytes() == pack(expected.outputs["y"]).tobytes()
    assert np.any(expected.outputs["y"])


def pack(numbers: Array) -> Array:
    """Numbers of 4 bits, two to a byte, the first in the low half."""
    codes = numbers.ravel().astype(np.uint8) & 15
    return codes[::2] | np.append(codes[1::2], np.zeros(codes.size % 2, np.uint8)) << 4


def test_one_scale_is_that_of_all_factors(client: httpx.Client) -> None:
    given = {"input_scale": [0.5], "weight_scale": [0.25, 0.125, 3.0], "output_scale": [2.0]}
    inputs = [Input(name, np.array(scales)) for name, scales in given.items()]
    found = read(infer(client, "derive_multiplier", inputs, parameters={"scheme": "litert"})).outputs
    assert found["factor"].tolist() == [0.0625, 0.03125, 0.75]
    assert found["multiplier"].tolist() == [1 << 30, 1 << 30, 3 << 29]
    assert found["shift"].tolist() == [-3, -4, 0]
    assert found["represented"].tolist() == found["factor"].tolist()


@pytest.mark.parametrize("written", [0.001, 1.0000000596046448, 3, -0.0, 1e-46, 10**30])
def test_a_parameter_is_a_number_or_its_text(client: httpx.Client, written: float) -> None:
    x = Input("x", np.linspace(-2, 2, 32, dtype=np.float32).reshape(1, 32))
    ranges, parameters = [LOW, HIGH], {**RANGE, "scheme": "torch"}
    for model, inputs, name, given in (
        ("quantize_blocks", [x], "global_scale", {"format": "nvfp4"}),
        ("derive_from_range", ranges, "epsilon", parameters),
        ("onednn.Quantize", [x], "scales", {"zps": 0}),
    ):
        number, text = (
            infer(client, model, inputs, parameters={**given, name: value}) for value in (written, str(written))
        )
        assert number.content == text.content or number.json()["detail"] == text.json()["detail"], (model, number.text)


def test_outputs_of_an_evaluation_are_chosen_by_number(client: httpx.Client) -> None:
    two = (
        "func.func @main(%x: tensor<2xi8>, %y: tensor<i1>) -> (tensor<i1>, tensor<2xi8>) {\n"
        "  return %y, %x : tensor<i1>, tensor<2xi8>\n}\n"
    )
    inputs = [Input("input_1", np.array(True)), Input("input_0", np.array([1, -2], np.int8))]
    members = {"parameters": {"module": two}, "outputs": [{"name": "output_1", "parameters": {"binary_data": True}}]}
    found = read(infer(client, "evaluate", inputs, **members))
    assert {name: array.tolist() for name, array in found.outputs.items()} == {"output_1": [1, -2]}
    members["outputs"] = [{"name": "output_2"}]
    refused = infer(client, "evaluate", inputs, **members).json()
    assert "it has output_0, output_1" in refused["detail"]
    bad = Input("input_1", np.array(2, np.uint8), "BOOL")
    assert infer(client, "evaluate", [bad, inputs[1]], parameters={"module": two}).json()["code"] == "tensor_data"
