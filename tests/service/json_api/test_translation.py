"""/v1/types/translate over HTTP: every example, both ways, to itself again, and bad input."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

PATH = "/v1/types/translate"
TYPE = "tensor<2x3x!quant.uniform<u8:f32:1, {0.5:3, 0.1, 0.25:255}>>"
SYSTEMS = ["mlir", "stablehlo", "onnx", "onednn", "litert", "torch", "tosa"]


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    assert client.post(PATH, json={"type": TYPE}).status_code == 200


def answers(client: httpx.Client, **request: Any) -> dict[str, Any]:
    reply = client.post(PATH, json=request)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_all_systems_answer_in_their_order(client: httpx.Client) -> None:
    found = answers(client, type=TYPE)
    assert [each["system"] for each in found["translations"]] == SYSTEMS
    assert [each["expressible"] for each in found["translations"]] == [True] * 6 + [False]
    assert [each["exact"] for each in found["translations"]] == [True, True, False, False, False, True, False]
    assert (found["source"], found["rounded"], found["rounded_count"]) == ("mlir", [], 0)
    onnx = found["translations"][2]
    assert onnx == {
        "system": "onnx",
        "expressible": True,
        "exact": False,
        "rounded": [{"index": 1, "scale": "0.1", "becomes": "0.10000000149011612"}],
        "rounded_count": 1,
        "losses": [],
        "operators": ["QuantizeLinear", "DequantizeLinear"],
        "opset": 13,
        "onnx": {
            "x_type": "ui8",
            "scale_type": "f32",
            "scale_shape": [3],
            "x_scale": [0.5, 0.10000000149011612, 0.25],
            "x_zero_point": [3, 0, 255],
            "axis": 1,
        },
    }
    assert "one zero point" in found["translations"][-1]["reason"]
    assert "onnx" not in found["translations"][-1]


@pytest.mark.parametrize("system", ["onnx", "onednn", "litert", "torch"])
@pytest.mark.parametrize(
    "text",
    [
        "!quant.uniform<i8:f32, 5.000000e-01:3>",
        "tensor<2x3x!quant.uniform<u8:f32:1, {5.000000e-01:3,1.250000e-01,2.500000e-01:255}>>",
    ],
)
def test_what_is_answered_can_be_sent(client: httpx.Client, system: str, text: str) -> None:
    (there,) = answers(client, type=text, systems=[system])["translations"]
    assert there["exact"]
    shape = {"shape": [2, 3]} if text.startswith("tensor") else {}
    back = answers(client, **{system: there[system]}, **shape, systems=["mlir", system])
    assert (back["type"], back["source"]) == (text, system)
    mlir, again = back["translations"]
    assert again == there
    assert (mlir["exact"], mlir["type"]) == (True, text)


def test_from_one_system_to_another(client: httpx.Client) -> None:
    """A blocked ONNX scale is a group of oneDNN; given scales that their type does not hold are told."""
    onnx = {"x_type": "i4", "scale_shape": [2, 2], "x_scale": [0.1, 0.5, 1.0, 2.0], "axis": -1, "block_size": 32}
    found = answers(client, onnx=onnx, shape=[2, 64], systems=["onednn", "litert"])
    assert found["rounded"] == [{"index": 0, "scale": "0.1", "becomes": "0.10000000149011612"}]
    onednn, litert = found["translations"]
    assert onednn["exact"]
    assert onednn["operators"] == ["DynamicDequantize"]
    assert onednn["onednn"]["group_shape"] == [1, 32]
    assert onednn["onednn"]["scales"][0] == 0.10000000149011612
    assert "not of blocks" in litert["reason"]


def test_multipliers_and_the_type_back(client: httpx.Client) -> None:
    text, to = "tensor<4x!quant.uniform<i8:f32, 0.3:3>>", "!quant.uniform<u8:f32, 0.2:7>"
    (there,) = answers(client, type=text, rescale_to=to, systems=["tosa"])["translations"]
    (rounded,) = there["rounded"]
    assert rounded["scale"].count("/") == rounded["becomes"].count("/") == 1
    assert there["tosa"]["output_unsigned"] is True
    back = answers(client, tosa={**there["tosa"], "input": text}, systems=["mlir"])
    assert back["type"].startswith("tensor<4x!quant.uniform<u8:f32, 0.19999999999")
    assert back["rounded_count"] == 1


def test_many_scales_are_counted_and_a_few_shown(client: httpx.Client) -> None:
    text = "!quant.uniform<i8:f32:0, {" + ",".join(["0.1"] * 60_000) + "}>"
    (found,) = answers(client, type=text, systems=["onnx"])["translations"]
    assert (found["rounded_count"], len(found["rounded"])) == (60_000, 16)
    assert len(found["onnx"]["x_scale"]) == 60_000


MANY = "tensor<5000x!quant.uniform<i8:f32:0, {" + ",".join(["0.5"] * 5000) + "}>>"
ONNX = {"x_type": "i8", "x_scale": [0.5]}


@pytest.mark.parametrize(
    ("request_", "status", "code", "pointer"),
    [
        ({}, 422, "request_invalid", ""),
        ({"type": TYPE, "onnx": ONNX}, 422, "request_invalid", ""),
        ({"type": TYPE, "shape": [2, 3]}, 422, "request_invalid", ""),
        ({"type": None}, 422, "request_invalid", "/type"),
        ({"type": "i8"}, 422, "unsupported", "/type"),
        ({"type": "!quant.uniform<i8:f32, 1>"}, 422, "type_invalid", "/type"),
        ({"type": "tensor<4x!quant.uniform<i8:f32:1, {0.5}>>"}, 422, "type_does_not_fit", "/type"),
        ({"type": "tensor<?x!quant.uniform<i8:f32, 0.5>>"}, 422, "type_does_not_fit", "/type"),
        ({"type": "tensor<" + "1x" * 40 + "!quant.uniform<i8:f32, 0.5>>"}, 413, "limit_exceeded", "/type"),
        ({"type": TYPE, "rescale_to": "f32"}, 422, "unsupported", "/rescale_to"),
        ({"type": TYPE, "rescale_to": "x"}, 422, "type_invalid", "/rescale_to"),
        ({"type": TYPE, "systems": ["tvm"]}, 422, "request_invalid", "/systems/0"),
        ({"type": TYPE, "systems": ["onnx"] * 17}, 413, "limit_exceeded", "/systems"),
        ({"type": TYPE, "systems": ["onnx", "onnx"]}, 422, "request_invalid", ""),
        ({"type": MANY, "rescale_to": "!quant.uniform<i8:f32, 0.5>"}, 413, "limit_exceeded", "/rescale_to"),
        ({"tosa": {"input": MANY}}, 413, "limit_exceeded", "/tosa/input"),
        ({"tosa": {"multiplier": [1] * 5000, "shift": [30]}}, 413, "limit_exceeded", "/tosa/multiplier"),
        ({"type": TYPE, "system": ["onnx"]}, 422, "request_invalid", "/system"),
        ({"onnx": {**ONNX, "operators": []}}, 422, "request_invalid", "/onnx/operators"),
        ({"onnx": {**ONNX, "x_type": "i3"}}, 422, "unsupported", "/onnx/x_type"),
        ({"onnx": {**ONNX, "x_scale": ["NaN"]}}, 422, "request_invalid", "/onnx/x_scale/0"),
        ({"onnx": {**ONNX, "x_scale": [-1]}}, 422, "parameter_invalid", "/onnx/x_scale/0"),
        ({"onnx": {**ONNX, "x_scale": [10**400]}}, 422, "request_invalid", "/onnx/x_scale/0"),
        ({"onnx": {**ONNX, "x_zero_point": [2**63]}}, 422, "request_invalid", "/onnx/x_zero_point/0"),
        ({"onnx": {**ONNX, "x_zero_point": [300]}}, 422, "parameter_invalid", "/onnx/x_zero_point/0"),
        ({"onnx": {**ONNX, "x_scale": [0.5] * 65_537}}, 413, "limit_exceeded", "/onnx/x_scale"),
        ({"onnx": {**ONNX, "scale_shape": [2**63 - 1] * 64}}, 422, "type_does_not_fit", "/onnx/scale_shape"),
        ({"onnx": ONNX, "shape": [1] * 40}, 413, "limit_exceeded", "/shape"),
        ({"onnx": ONNX, "shape": [-1]}, 422, "request_invalid", "/shape/0"),
        ({"onnx": {**ONNX, "scale_shape": [1], "axis": 0}, "shape": [2]}, 422, "type_does_not_fit", "/onnx"),
        ({"onnx": {**ONNX, "scale_shape": [1, 1], "block_size": 0}}, 422, "type_does_not_fit", "/onnx/scale_shape"),
        ({"tosa": {"input": "f32"}}, 422, "unsupported", "/tosa/input"),
        ({"tosa": {"input_zp": 3}}, 422, "unsupported", "/tosa"),
        ({"litert": {"type": "INT8"}}, 422, "request_invalid", "/litert/scale"),
        ({"torch": {"scale": [0.5]}}, 422, "unsupported", "/torch/dtype"),
    ],
)
def test_bad_requests(client: httpx.Client, request_: dict[str, Any], status: int, code: str, pointer: str) -> None:
    reply = client.post(PATH, json=request_)
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert reply.json()["errors"][0]["pointer"] == pointer
    assert len(reply.content) < 4096
