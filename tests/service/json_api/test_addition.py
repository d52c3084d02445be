"""add over HTTP: the documented example in full, bounds, and bad input."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.json_api.test_matmul import encoded, refused

PATH = "/v1/add"
ONE: dict[str, Any] = {
    "lhs": {"type": "tensor<1x!quant.uniform<i8:f32, 0.5>>", "values": [3]},
    "rhs": {"type": "tensor<1x!quant.uniform<i8:f32, 0.5>>", "values": [4]},
    "output_type": "!quant.uniform<i8:f32, 0.5>",
}


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    assert client.post(PATH, json=ONE).json()["output"]["values"] == [7]


def test_the_documented_example(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()["paths"][PATH]["post"]["requestBody"]["content"]
    reply = client.post(PATH, json=described["application/json"]["example"])
    assert reply.status_code == 200, reply.text

    def numbers(*values: int) -> dict[str, Any]:
        return {"type": "tensor<4xi32>", "values": list(values)}

    # Both to the scale 2 * 0.5 / 2^20: 0.5 and 0.25 of what is shifted. 2.25, -2.25, 95.25, 1.25 in all.
    output = {"type": "tensor<4x!quant.uniform<i8:f32, 5.000000e-01:3>>", "values": [8, -2, 127, 6]}
    lhs, rhs = (4 << 20, -4 << 20, 128 << 20, 1 << 20), (1 << 20, -1 << 20, 125 << 20, 3 << 20)
    sides = [value // 2 for value in lhs], [value // 4 for value in rhs]
    assert reply.json() == {
        "output": output,
        "report": {
            "profile": "litert", "rounding": "double", "elements": 4, "saturated_low": 0, "saturated_high": 1, "nan": 0,
            "scheme": "litert",
        },
        "trace": {
            # 0.5, 0.25, and 2 * 0.5 / (2^20 * 0.5) = 2^-19.
            "multipliers": [{"multiplier": 1 << 30, "shift": shift} for shift in (0, -1, -18)],
            "lhs_shifted": numbers(*lhs),
            "rhs_shifted": numbers(*rhs),
            "lhs_scaled": numbers(*sides[0]),
            "rhs_scaled": numbers(*sides[1]),
            "sum": numbers(*(a + b for a, b in zip(*sides, strict=True))),
            "after_clamp": output,
        },
    }  # fmt: skip


def test_broadcast_and_packed(client: httpx.Client) -> None:
    request = {
        "lhs": {"type": "tensor<2x1x!quant.uniform<u4:f32, 1.0>>", "data": encoded(np.array([0x21], np.uint8))},
        "rhs": {"type": "tensor<2x!quant.uniform<u4:f32, 1.0>>", "data": encoded(np.array([0x43], np.uint8))},
        "output_type": "!quant.uniform<u4:f32, 1.0>",
        "packing": "dense",
    }
    for profile in ("litert", "stablehlo", "onnx"):
        reply = client.post(PATH, json=request | {"profile": profile})
        assert base64.b64decode(reply.json()["output"]["data"]) == bytes([0x54, 0x65]), reply.text


def test_large(client: httpx.Client) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-128, 128, (2, 300_000)).astype(np.int8)
    i8 = "tensor<300000x!quant.uniform<i8:f32, 1.0>>"
    request = {"lhs": {"type": i8, "data": encoded(a)}, "rhs": {"type": i8, "data": encoded(b)}}
    reply = client.post(PATH, json=request | {"output_type": "!quant.uniform<i8:f32, 1.0>"})
    expected = np.clip(a.astype(np.int32) + b, -128, 127).astype(np.int8)
    assert base64.b64decode(reply.json()["output"]["data"]) == expected.tobytes()


def test_a_small_request_for_a_large_output(client: httpx.Client) -> None:
    i8 = "!quant.uniform<i8:f32, 1.0>"
    request = {
        "lhs": {"type": f"tensor<5000x1x{i8}>", "data": encoded(np.zeros(5000, np.int8))},
        "rhs": {"type": f"tensor<5000x{i8}>", "data": encoded(np.zeros(5000, np.int8))},
        "output_type": i8,
    }
    assert refused(client.post(PATH, json=request), 413, "limit_exceeded", None)["limit"] == 1 << 24


@pytest.mark.parametrize(
    ("change", "status", "code", "pointer"),
    [
        ({"lhs": {"type": "tensor<1xi8>", "values": [1]}}, 422, "unsupported", "/lhs/type"),
        ({"rhs": {"type": "tensor<2x!Q>", "values": [1]}}, 400, "tensor_data", "/rhs/values"),
        ({"rhs": {"type": "tensor<1x!quant.uniform<i4:f32, 1.0>>", "values": [9]}}, 400, "tensor_data", "/rhs"),
        ({"output_type": "i8"}, 422, "unsupported", "/output_type"),
        ({"output_type": "!quant.uniform<i8:f32, 1.0e-9>"}, 422, "parameter_invalid", None),
        ({"profile": "torch"}, 422, "unsupported", "/profile"),
        ({"bias": 1}, 422, "request_invalid", "/bias"),
    ],
)
def test_bad_input(client: httpx.Client, change: dict[str, Any], status: int, code: str, pointer: str | None) -> None:
    if isinstance(change.get("rhs"), dict):
        change["rhs"]["type"] = change["rhs"]["type"].replace("!Q", "!quant.uniform<i8:f32, 1.0>")
    refused(client.post(PATH, json=ONE | change), status, code, pointer)
