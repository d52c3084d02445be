"""/v1/types/translate over HTTP: many scales, and bad input."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.service.replies import refused

PATH = "/v1/types/translate"
TYPE = "tensor<2x3x!quant.uniform<u8:f32:1, {0.5:3, 0.1, 0.25:255}>>"


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    assert client.post(PATH, json={"type": TYPE}).status_code == 200


def answers(client: httpx.Client, **request: Any) -> dict[str, Any]:
    reply = client.post(PATH, json=request)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


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
    refused(client.post(PATH, json=request_), status, code, pointer)
