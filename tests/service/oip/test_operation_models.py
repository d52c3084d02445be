"""Models of operations: what is wrong with a call, and where; tensors beyond the limits of JSON; numbered inputs."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.oip_wire import Array, Input, infer, read

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


def pairs(multipliers: list[int], shifts: list[int]) -> list[Input]:
    return [named("multiplier", np.array(multipliers)), named("shift", np.array(shifts, np.int32))]


TO_I8 = "!quant.uniform<i8:f32, 1.0:3>"
TABLE = "!quant.uniform<!quant.quantile<ui2:f32, {-1.0, 0.0, 0.5, 1.0}>:f32, 0.2>"
ONES, I32 = np.ones(2, np.float32), np.array([1, 2], np.int32)
OF_I32 = {"input_type": "!quant.uniform<i32:f32, 0.5>", "output_type": TO_I8}
ONE = pairs([1 << 30], [0])

REFUSED: list[tuple[str, list[Input], dict[str, Any], str, str | None]] = [
    ("requantize", [named("x", I32)], {"output_type": TO_I8}, "unsupported", "/inputs/0"),
    ("requantize", [named("x", I32), *ONE], {**OF_I32, "scheme": "nosuch"}, "unknown_name", "/parameters/scheme"),
    ("requantize", [named("x", I32)], {**OF_I32, "axis": 0}, "unsupported", "/parameters/axis"),
    ("requantize", [named("x", I32)], {**OF_I32, "axis": 256}, "request_invalid", "/parameters/axis"),
    ("requantize", [named("x", I32), *pairs([1, 2, 3], [0, 0, 0])],
     {**OF_I32, "axis": 0}, "type_does_not_fit", "/inputs/1"),
    ("requantize", [named("x", I32), *pairs([1 << 30, 1], [0, 0])],
     {**OF_I32, "axis": 1}, "type_does_not_fit", "/parameters/axis"),
    ("requantize", [named("x", I32), *pairs([1 << 62], [0])], OF_I32, "parameter_invalid", "/inputs/1"),
    ("requantize", [named("x", I32), named("shift", np.array([2**40])), ONE[0]],
     OF_I32, "parameter_invalid", "/inputs/1"),
    ("quantize", [named("x", ONES)], {"output_type": TO_I8, "saturate": True}, "unsupported", "/parameters/saturate"),
    ("quantize", [named("x", ONES)], {"output_type": TO_I8, "saturate": 1}, "request_invalid", "/parameters/saturate"),
    ("quantize", [named("x", ONES)],
     {"output_type": "f8E4M3FN", "profile": "ml_dtypes", "nan": "lowest"}, "unsupported", "/parameters/nan"),
    ("quantize", [named("x", ONES)],
     {"output_type": TABLE, "profile": "quantile", "rounding": "floor"}, "unsupported", "/parameters/rounding"),
    ("dequantize", [named("x", np.ones(2, np.float16)), named("scale", np.ones(1, np.float32))],
     {}, "request_invalid", "/inputs/0/datatype"),
    ("dequantize", [named("x", np.ones(2, np.float16))], {"input_type": "bf16"}, "tensor_data", "/inputs/0/datatype"),
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
    ("translate_type", [], {"type": I8, "systems": '"onnx", ' * 16 + '"tosa"'}, "limit_exceeded",
     "/parameters/systems"),
    ("translate_type", [], {"type": I8, "systems": '"onnx", "onnx"'}, "request_invalid", "/parameters"),
    ("translate_type", [], {"type": I8, "shape": "1"}, "request_invalid", "/parameters"),
    ("translate_type", [], {"type": I8, "tosa": "{}"}, "request_invalid", "/parameters"),
    ("translate_type", [], {"litert": '{"type": "INT8", "scale": [1]}', "shape": "-1"}, "request_invalid",
     "/parameters/shape"),
    ("translate_type", [], {"tosa": '{"input": "tensor<2x"}'}, "type_invalid", "/parameters/tosa"),
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
