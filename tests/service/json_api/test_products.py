"""matmul, conv2d and add over HTTP: bounds on the work, and bad input."""

from __future__ import annotations

import base64
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.replies import encoded, refused

MATMUL, CONV2D, ADD = "/v1/matmul", "/v1/conv2d", "/v1/add"
I8 = "!quant.uniform<i8:f32, 0.5>"
REQUESTS: dict[str, dict[str, Any]] = {
    MATMUL: {
        "lhs": {"type": "tensor<1x2x!quant.uniform<i8:f32, 0.5:1>>", "values": [3, -5]},
        "rhs": {"type": f"tensor<2x1x{I8}>", "values": [7, 2]},
        "output_type": "!quant.uniform<i8:f32, 0.5:-1>",
    },
    CONV2D: {
        "input": {"type": "tensor<1x1x2x1xi8>", "values": [3, 4]},
        "weights": {"type": "tensor<1x1x2x1xi8>", "values": [5, -1]},
        "output_type": "i32",
    },
    ADD: {
        "lhs": {"type": f"tensor<1x{I8}>", "values": [3]},
        "rhs": {"type": f"tensor<1x{I8}>", "values": [4]},
        "output_type": I8,
    },
}


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    # ((3 - 1) * 7 + (-5 - 1) * 2) / 4 is 1 at scale 0.5; 3 * 5 - 4; and 3 + 4.
    outputs = [client.post(path, json=body).json()["output"]["values"] for path, body in REQUESTS.items()]
    assert outputs == [[0], [11], [7]]


def test_the_first_sum_that_overflows_is_named(client: httpx.Client) -> None:
    depth = 70000
    request = {
        "lhs": {"type": f"tensor<2x{depth}xui8>", "data": encoded(np.repeat(np.array([0, 255], np.uint8), depth))},
        "rhs": {"type": f"tensor<{depth}x1xui8>", "data": encoded(np.full(depth, 255, np.uint8))},
        "output_type": "i32",
    }
    found = refused(client.post(MATMUL, json=request), 422, "precondition_failed")
    assert (found["index"], str(depth * 255 * 255) in found["detail"]) == (1, True)
    for overflow, sum_ in (("wrap", depth * 255 * 255 - 2**32), ("saturate", 2**31 - 1)):
        output = client.post(MATMUL, json=request | {"overflow": overflow}).json()["output"]["data"]
        assert base64.b64decode(output) == np.array([0, sum_], np.int32).tobytes()


class TestBounds:
    """Small requests for much work are refused at once."""

    @pytest.mark.parametrize(
        ("lhs", "rhs", "limit"),
        [
            ("tensor<4097x1xi8>", "tensor<1x4097xi8>", 1 << 24),
            ("tensor<2x2147483648x0xi8>", "tensor<0x2147483648xi8>", 1 << 24),
            ("tensor<4096x600xi8>", "tensor<600x4096xi8>", 1 << 33),
            ("tensor<70000x1x1xi8>", "tensor<70000x1x1xi8>", 1 << 33),
            ("tensor<4000000000x1x0xi8>", "tensor<4000000000x0x1xi8>", 1 << 24),
        ],
    )
    def test_too_much_of_a_product(self, client: httpx.Client, lhs: str, rhs: str, limit: int) -> None:
        request = {"lhs": {"type": lhs, "data": ""}, "rhs": {"type": rhs, "data": ""}, "output_type": "i32"}
        begun = time.monotonic()
        assert refused(client.post(MATMUL, json=request), 413, "limit_exceeded")["limit"] == limit
        assert time.monotonic() - begun < 5

    def test_too_much_of_a_sum(self, client: httpx.Client) -> None:
        zeros = encoded(np.zeros(5000, np.int8))
        request = {
            "lhs": {"type": f"tensor<5000x1x{I8}>", "data": zeros},
            "rhs": {"type": f"tensor<5000x{I8}>", "data": zeros},
            "output_type": I8,
        }
        assert refused(client.post(ADD, json=request), 413, "limit_exceeded")["limit"] == 1 << 24

    def test_too_much_to_trace(self, client: httpx.Client) -> None:
        request = {
            "lhs": {"type": "tensor<300x0xi8>", "data": ""},
            "rhs": {"type": "tensor<0x300xi8>", "data": ""},
            "output_type": "i32",
        }
        assert client.post(MATMUL, json=request).status_code == 200
        refused(client.post(MATMUL, json=request | {"trace": True}), 413, "limit_exceeded", "/trace")

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
        reply = client.post(CONV2D, json=REQUESTS[CONV2D] | change)
        assert reply.status_code == status, reply.text
        assert time.monotonic() - begun < 10
        assert len(reply.content) < 4096

    def test_others_are_served_meanwhile(self, client: httpx.Client) -> None:
        """Half a billion multiplications, of 16 by 16 bits in 64, do not hold the event loop."""
        square = {"type": "tensor<800x800xi16>", "data": encoded(np.zeros((800, 800), np.int16))}
        request = {"lhs": square, "rhs": square, "output_type": "i64"}
        with ThreadPoolExecutor(1) as pool:
            heavy = pool.submit(client.post, MATMUL, json=request, timeout=120)
            while not heavy.done():
                assert client.get("/healthz").status_code == 200
            assert heavy.result().status_code == 200


def one(type_: str, *values: int) -> dict[str, Any]:
    return {"type": type_, "values": list(values)}


REFUSED: list[tuple[str, dict[str, Any], str, str | None]] = [
    (MATMUL, {"lhs": one("tensor<1x3xi8>", 1, 2, 3)}, "type_does_not_fit", "/rhs/type"),
    (MATMUL, {"lhs": one("tensor<2xi8>", 1, 2)}, "type_does_not_fit", "/lhs/type"),
    (MATMUL, {"lhs": one("tensor<1x2xf32>", 1, 2)}, "unsupported", "/lhs/type"),
    (MATMUL, {"rhs": one("tensor<2x1xi32>", 1, 2)}, "unsupported", "/rhs/type"),
    (MATMUL, {"output_type": "i8"}, "unsupported", "/output_type"),
    (MATMUL, {"output_type": "f32"}, "unsupported", "/output_type"),
    (MATMUL, {"output_type": "tensor<2x2xi32>"}, "type_does_not_fit", "/output_type"),
    (MATMUL, {"output_type": "i32", "accumulator": "i64"}, "unsupported", "/output_type"),
    (MATMUL, {"output_type": "!quant.uniform<i8:f64, 1.0>"}, "unsupported", "/output_type"),
    (MATMUL, {"profile": "tosa", "output_type": "!quant.uniform<i8:f32, 1.0e-30>"}, "parameter_invalid", None),
    (MATMUL, {"profile": "mlir"}, "unsupported", "/profile"),
    (MATMUL, {"profile": "nobody"}, "unknown_name", "/profile"),
    (MATMUL, {"scheme": "nobody"}, "unknown_name", "/scheme"),
    (MATMUL, {"accumulator": "i16"}, "request_invalid", "/accumulator"),
    (MATMUL, {"overflow": None}, "request_invalid", "/overflow"),
    (MATMUL, {"bias": None}, "request_invalid", "/bias"),
    (MATMUL, {"bias": one("tensor<2xi32>", 1, 2)}, "type_does_not_fit", "/bias/type"),
    (MATMUL, {"bias": one("tensor<1xf32>", 1)}, "unsupported", "/bias/type"),
    (MATMUL, {"bias": one("tensor<1x!quant.uniform<i32:f32, 1.0:3>>", 1)}, "unsupported", "/bias/type"),
    (MATMUL, {"bias": one("tensor<1xi64>", 2**62)}, "precondition_failed", None),
    (MATMUL, {"unknown": 1}, "request_invalid", "/unknown"),
    (MATMUL, {"rhs": one("tensor<2x1xi4>", 7, 8), "output_type": "i32"}, "tensor_data", "/rhs"),
    (MATMUL, {"bias": one("tensor<1xi4>", 8), "output_type": "i32"}, "tensor_data", "/bias"),
    (MATMUL, {"rhs": {"type": "tensor<2x1xi8>", "data": "AA=="}, "output_type": "i32"}, "tensor_data", "/rhs/data"),
    (CONV2D, {"input": one("tensor<1x2x1xi8>", 3, 4)}, "type_does_not_fit", "/input/type"),
    (CONV2D, {"weights": one("tensor<1x1x1x2xi8>", 3, 4)}, "type_does_not_fit", "/weights/type"),
    (CONV2D, {"weights": one("tensor<1x1x3x1xi8>", 3, 4, 5)}, "type_does_not_fit", "/input/type"),
    (CONV2D, {"layout": "NWHC"}, "request_invalid", "/layout"),
    (CONV2D, {"padding": "same"}, "request_invalid", "/padding"),
    (CONV2D, {"padding": "valid", "pads": [1, 0, 0, 0]}, "parameter_invalid", "/pads"),
    (CONV2D, {"bias": one("tensor<2xi32>", 1, 2)}, "type_does_not_fit", "/bias/type"),
    (CONV2D, {"output_type": "tensor<1x1x1x2xi32>"}, "type_does_not_fit", "/output_type"),
    (CONV2D, {"profile": "torch_decomposed"}, "unsupported", "/profile"),
    (ADD, {"lhs": one("tensor<1xi8>", 1)}, "unsupported", "/lhs/type"),
    (ADD, {"rhs": one(f"tensor<2x{I8}>", 1)}, "tensor_data", "/rhs/values"),
    (ADD, {"rhs": one("tensor<1x!quant.uniform<i4:f32, 1.0>>", 9)}, "tensor_data", "/rhs"),
    (ADD, {"output_type": "i8"}, "unsupported", "/output_type"),
    (ADD, {"output_type": "!quant.uniform<i8:f32, 1.0e-9>"}, "parameter_invalid", None),
    (ADD, {"profile": "torch"}, "unsupported", "/profile"),
    (ADD, {"bias": 1}, "request_invalid", "/bias"),
]


@pytest.mark.parametrize(("path", "change", "code", "pointer"), REFUSED)
def test_bad_input(client: httpx.Client, path: str, change: dict[str, Any], code: str, pointer: str | None) -> None:
    reply = client.post(path, json=REQUESTS[path] | change)
    refused(reply, 400 if code == "tensor_data" else 422, code, pointer)
