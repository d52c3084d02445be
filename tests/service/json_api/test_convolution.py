"""conv2d over HTTP: the documented example, both layouts, bounds on the work, and bad input."""

from __future__ import annotations

import base64
import time
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.json_api.test_matmul import encoded, refused

PATH = "/v1/conv2d"
ONE: dict[str, Any] = {
    "input": {"type": "tensor<1x1x2x1xi8>", "values": [3, 4]},
    "weights": {"type": "tensor<1x1x2x1xi8>", "values": [5, -1]},
    "output_type": "i32",
}


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    assert client.post(PATH, json=ONE).json()["output"] == {"type": "tensor<1x1x1x1xi32>", "values": [11]}


def test_the_documented_example(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()["paths"][PATH]["post"]["requestBody"]["content"]
    reply = client.post(PATH, json=described["application/json"]["example"])
    assert reply.status_code == 200, reply.text
    found = reply.json()
    # x + 1 is 1 to 9; what lies below and to the right of it is 0; w is 1, 2, -3, 4.
    grid = np.zeros((4, 4), int)
    grid[:3, :3] = np.arange(1, 10).reshape(3, 3)
    corrected = grid[:3, :3] + 2 * grid[:3, 1:] - 3 * grid[1:, :3] + 4 * grid[1:, 1:]
    trace = found["trace"]
    assert trace["corrected"] == {"type": "tensor<1x3x3x1xi32>", "values": corrected.ravel().tolist()}
    assert trace["biased"]["values"] == (corrected + 10).ravel().tolist()
    assert trace["lhs_zero_point_correction"]["values"] == [4] * 9
    # A factor of 1/4, ties up and then away from zero.
    assert trace["multipliers"] == [{"multiplier": 1 << 30, "shift": -1}]
    assert found["report"]["scheme"] == "litert"
    expected = [
        min(max((lambda y: (y + 1) // 2 if y >= 0 else -((1 - y) // 2))((acc + 1) // 2) + 3, -128), 127)
        for acc in trace["biased"]["values"]
    ]
    assert found["output"]["values"] == trace["after_clamp"]["values"] == expected


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_large_convolution(client: httpx.Client, layout: str) -> None:
    """A 3 by 3 window over 64 channels, against one matrix product for each tap."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 256, (2, 40, 40, 64)).astype(np.uint8)
    w = rng.integers(-127, 128, (64, 3, 3, 64)).astype(np.int8)
    expected = np.zeros((2, 40, 40, 64), np.int64)
    padded = np.pad(x.astype(np.int64) - 100, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for i in range(3):
        for j in range(3):
            expected += padded[:, i : i + 40, j : j + 40] @ w[:, i, j].astype(np.int64).T
    order = ["NHWC".index(each) for each in layout]
    arrays = x.transpose(order), w if layout == "NHWC" else w.transpose(0, 3, 1, 2)
    shapes = ["x".join(map(str, each.shape)) for each in arrays]
    request = {
        "input": {"type": f"tensor<{shapes[0]}x!quant.uniform<u8:f32, 1.0:100>>", "data": encoded(arrays[0])},
        "weights": {"type": f"tensor<{shapes[1]}xi8>", "data": encoded(arrays[1])},
        "output_type": "i32",
        "layout": layout,
        "pads": [1, 1, 1, 1],
    }
    reply = client.post(PATH, json=request)
    assert reply.status_code == 200, reply.text
    assert base64.b64decode(reply.json()["output"]["data"]) == expected.transpose(order).astype(np.int32).tobytes()


def test_depthwise_with_a_stride(client: httpx.Client) -> None:
    request = {
        "input": {"type": "tensor<1x3x1x2xi8>", "values": [1, 10, 2, 20, 3, 30]},
        "weights": {"type": "tensor<1x2x1x2xi8>", "values": [1, 1, 1, -1]},
        "output_type": "i32",
        "weights_layout": "IHWO",
        "groups": 2,
        "strides": [2, 1],
        "padding": "same_upper",
    }
    # Rows 0 and 1, then 2 and the padded one.
    assert client.post(PATH, json=request).json()["output"]["values"] == [3, -10, 3, 30]


class TestBounds:
    """Small requests for much work are refused at once."""

    @pytest.mark.parametrize(
        ("change", "status"),
        [
            ({"pads": [2**31 - 1] * 4}, 413),
            ({"pads": [4096, 4096, 0, 0]}, 413),
            ({"pads": [2**31] * 4}, 422),
            ({"pads": [-1, 0, 0, 0]}, 422),
            ({"strides": [0, 1]}, 422),
            ({"strides": [2**63, 1]}, 422),
            ({"dilations": [1, 2**31 - 1]}, 422),
            ({"dilations": [1, 2**31 - 1], "pads": [0, 0, 0, 2**31 - 1]}, 200),
            ({"strides": [1]}, 422),
            ({"strides": [1, 1, 1]}, 413),
            ({"groups": 2**31 - 1}, 422),
            ({"groups": 2}, 422),
        ],
    )
    def test_hostile_windows(self, client: httpx.Client, change: dict[str, Any], status: int) -> None:
        begun = time.monotonic()
        reply = client.post(PATH, json=ONE | change)
        assert reply.status_code == status, reply.text
        assert time.monotonic() - begun < 10
        assert len(reply.content) < 4096


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"input": {"type": "tensor<1x2x1xi8>", "values": [3, 4]}}, "type_does_not_fit", "/input/type"),
        ({"weights": {"type": "tensor<1x1x1x2xi8>", "values": [3, 4]}}, "type_does_not_fit", "/weights/type"),
        ({"weights": {"type": "tensor<1x1x3x1xi8>", "values": [3, 4, 5]}}, "type_does_not_fit", "/input/type"),
        ({"layout": "NWHC"}, "request_invalid", "/layout"),
        ({"padding": "same"}, "request_invalid", "/padding"),
        ({"padding": "valid", "pads": [1, 0, 0, 0]}, "parameter_invalid", "/pads"),
        ({"bias": {"type": "tensor<2xi32>", "values": [1, 2]}}, "type_does_not_fit", "/bias/type"),
        ({"output_type": "tensor<1x1x1x2xi32>"}, "type_does_not_fit", "/output_type"),
        ({"profile": "torch_decomposed"}, "unsupported", "/profile"),
    ],
)
def test_bad_input(client: httpx.Client, change: dict[str, Any], code: str, pointer: str) -> None:
    refused(client.post(PATH, json=ONE | change), 422, code, pointer)
