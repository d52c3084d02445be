"""matmul over HTTP: the documented example in full, every form of tensor, bounds on the work, and bad input."""

from __future__ import annotations

import base64
import time
from typing import Any

import httpx
import numpy as np
import pytest

PATH = "/v1/matmul"
ONE: dict[str, Any] = {
    "lhs": {"type": "tensor<1x2x!quant.uniform<i8:f32, 0.5:1>>", "values": [3, -5]},
    "rhs": {"type": "tensor<2x1x!quant.uniform<i8:f32, 0.5>>", "values": [7, 2]},
    "output_type": "!quant.uniform<i8:f32, 0.5:-1>",
}


def refused(reply: httpx.Response, status: int, code: str, pointer: str | None) -> dict[str, Any]:
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert len(reply.content) < 4096
    found: dict[str, Any] = reply.json()
    if pointer is not None:
        assert found["errors"][0]["pointer"] == pointer
    return found


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    # (3 - 1) * 7 + (-5 - 1) * 2 = 2 at scale 0.25, which is 1 at scale 0.5.
    assert client.post(PATH, json=ONE).json()["output"]["values"] == [0]


def test_the_documented_example(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()["paths"][PATH]["post"]["requestBody"]["content"]
    reply = client.post(PATH, json=described["application/json"]["example"])
    assert reply.status_code == 200, reply.text

    def sums(*values: int) -> dict[str, Any]:
        return {"type": "tensor<2x2xi32>", "values": list(values)}

    output = {"type": "tensor<2x2x!quant.uniform<i8:f32, 5.000000e-01:3>>", "values": [6, 31, 127, -10]}
    assert reply.json() == {
        "output": output,
        "report": {
            "profile": "litert", "rounding": "nearest_away", "elements": 4, "saturated_low": 0, "saturated_high": 1,
            "nan": 0, "scheme": "litert_float", "accumulator": "i32", "overflow": "error",
        },
        "trace": {
            "multipliers": [{"multiplier": 2**52, "shift": 54}, {"multiplier": 2**52, "shift": 55}],
            # 1*10 + 2*30 - 3*50 = -80
            "accumulator": sums(-80, 240, 410, -80),
            # -za * sum b = 10 + 30 - 50
            "lhs_zero_point_correction": sums(-10, 80, -10, 80),
            "rhs_zero_point_correction": sums(0, 0, 0, 0),
            "zero_points_correction": sums(0, 0, 0, 0),
            "corrected": sums(-90, 320, 400, 0),
            "bias": sums(100, -100, 100, -100),
            "biased": sums(10, 220, 500, -100),
            # 0.5 * 0.25 / 0.5 = 1/4 and 1/8: 2.5, 27.5, 125, -12.5, ties away from zero.
            "scaled": sums(3, 28, 125, -13),
            "after_zero_point": sums(6, 31, 128, -10),
            "after_clamp": output,
        },
    }  # fmt: skip


@pytest.mark.parametrize("profile", ["litert", "onnx", "onednn", "stablehlo", "tosa"])
def test_a_large_product_in_base64(client: httpx.Client, profile: str) -> None:
    """512 x 700 x 300 in the service's threads, against numpy: with powers of two as scales, only ties differ."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, (512, 700)).astype(np.int8), rng.integers(-127, 128, (700, 300)).astype(np.int8)
    exponents = rng.integers(-3, 3, 300)
    scales = ", ".join(repr(2.0 ** int(each)) for each in exponents)
    request = {
        "lhs": {"type": "tensor<512x700x!quant.uniform<i8:f32, 1.0:5>>", "data": encoded(a)},
        "rhs": {"type": f"tensor<700x300x!quant.uniform<i8:f32:1, {{{scales}}}>>", "data": encoded(b)},
        "output_type": "!quant.uniform<i8:f32, 1024.0:-3>",
        "profile": profile,
    }
    reply = client.post(PATH, json=request)
    assert reply.status_code == 200, reply.text
    real = ((a.astype(np.int64) - 5) @ b.astype(np.int64)) * 2.0**exponents / 1024
    if profile == "litert":
        rounded = np.sign(real) * np.floor(np.abs(real) + 0.5) - 3
    elif profile == "onnx":
        rounded = np.rint(real) - 3
    elif profile == "tosa":
        rounded = np.floor(real + 0.5) - 3
    else:
        rounded = np.rint(real - 3)
    expected = np.clip(rounded, -128, 127).astype(np.int8)
    assert base64.b64decode(reply.json()["output"]["data"]) == expected.tobytes()
    report = reply.json()["report"]
    assert report["saturated_low"] == np.count_nonzero(rounded < -128)
    assert report["saturated_high"] == np.count_nonzero(rounded > 127)


def encoded(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def test_packed_operands(client: httpx.Client) -> None:
    """i4 by u4, two to a byte, the first in the low half; the sums are not packed."""
    request = {
        "lhs": {"type": "tensor<1x2xi4>", "data": encoded(np.array([0x7F], np.uint8))},
        "rhs": {"type": "tensor<2x1x!quant.uniform<u4:f32, 1.0:1>>", "data": encoded(np.array([0x3F], np.uint8))},
        "output_type": "i32",
        "packing": "dense",
    }
    reply = client.post(PATH, json=request)
    assert base64.b64decode(reply.json()["output"]["data"]) == np.array([-1 * 14 + 7 * 2], np.int32).tobytes()


def test_sums_as_they_are(client: httpx.Client) -> None:
    reply = client.post(PATH, json=ONE | {"output_type": "i64", "trace": True})
    assert reply.json()["output"] == {"type": "tensor<1x1xi64>", "values": [2]}
    assert reply.json()["report"]["accumulator"] == "i64"
    assert reply.json()["trace"]["multipliers"] == []


def test_the_first_sum_that_overflows_is_named(client: httpx.Client) -> None:
    depth = 70000
    request = {
        "lhs": {"type": f"tensor<2x{depth}xui8>", "data": encoded(np.repeat(np.array([0, 255], np.uint8), depth))},
        "rhs": {"type": f"tensor<{depth}x1xui8>", "data": encoded(np.full(depth, 255, np.uint8))},
        "output_type": "i32",
    }
    found = refused(client.post(PATH, json=request), 422, "precondition_failed", None)
    assert (found["index"], str(depth * 255 * 255) in found["detail"]) == (1, True)
    wrapped = client.post(PATH, json=request | {"overflow": "wrap"}).json()["output"]["data"]
    assert base64.b64decode(wrapped) == np.array([0, depth * 255 * 255 - 2**32], np.int32).tobytes()
    saturated = client.post(PATH, json=request | {"overflow": "saturate"}).json()["output"]["data"]
    assert base64.b64decode(saturated) == np.array([0, 2**31 - 1], np.int32).tobytes()


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
    def test_too_much(self, client: httpx.Client, lhs: str, rhs: str, limit: int) -> None:
        request = {"lhs": {"type": lhs, "data": ""}, "rhs": {"type": rhs, "data": ""}, "output_type": "i32"}
        begun = time.monotonic()
        assert refused(client.post(PATH, json=request), 413, "limit_exceeded", None)["limit"] == limit
        assert time.monotonic() - begun < 5

    def test_too_much_to_trace(self, client: httpx.Client) -> None:
        request = {
            "lhs": {"type": "tensor<300x0xi8>", "data": ""},
            "rhs": {"type": "tensor<0x300xi8>", "data": ""},
            "output_type": "i32",
        }
        assert client.post(PATH, json=request).status_code == 200
        refused(client.post(PATH, json=request | {"trace": True}), 413, "limit_exceeded", "/trace")

    def test_others_are_served_meanwhile(self, client: httpx.Client) -> None:
        """Half a billion multiplications, of 16 by 16 bits in 64, do not hold the event loop."""
        from concurrent.futures import ThreadPoolExecutor

        zeros = encoded(np.zeros((800, 800), np.int16))
        request = {
            "lhs": {"type": "tensor<800x800xi16>", "data": zeros},
            "rhs": {"type": "tensor<800x800xi16>", "data": zeros},
            "output_type": "i64",
        }
        with ThreadPoolExecutor(1) as pool:
            heavy = pool.submit(client.post, PATH, json=request, timeout=120)
            while not heavy.done():
                assert client.get("/healthz").status_code == 200
            assert heavy.result().status_code == 200


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"lhs": {"type": "tensor<1x3xi8>", "values": [1, 2, 3]}}, "type_does_not_fit", "/rhs/type"),
        ({"lhs": {"type": "tensor<2xi8>", "values": [1, 2]}}, "type_does_not_fit", "/lhs/type"),
        ({"lhs": {"type": "tensor<1x2xf32>", "values": [1, 2]}}, "unsupported", "/lhs/type"),
        ({"rhs": {"type": "tensor<2x1xi32>", "values": [1, 2]}}, "unsupported", "/rhs/type"),
        ({"output_type": "i8"}, "unsupported", "/output_type"),
        ({"output_type": "f32"}, "unsupported", "/output_type"),
        ({"output_type": "tensor<2x2xi32>"}, "type_does_not_fit", "/output_type"),
        ({"output_type": "i32", "accumulator": "i64"}, "unsupported", "/output_type"),
        ({"profile": "mlir"}, "unsupported", "/profile"),
        ({"profile": "nobody"}, "unknown_name", "/profile"),
        ({"scheme": "nobody"}, "unknown_name", "/scheme"),
        ({"accumulator": "i16"}, "request_invalid", "/accumulator"),
        ({"overflow": None}, "request_invalid", "/overflow"),
        ({"bias": None}, "request_invalid", "/bias"),
        ({"bias": {"type": "tensor<2xi32>", "values": [1, 2]}}, "type_does_not_fit", "/bias/type"),
        ({"bias": {"type": "tensor<1xf32>", "values": [1]}}, "unsupported", "/bias/type"),
        (
            {"bias": {"type": "tensor<1x!quant.uniform<i32:f32, 1.0:3>>", "values": [1]}},
            "unsupported",
            "/bias/type",
        ),
        ({"bias": {"type": "tensor<1xi64>", "values": [2**62]}}, "precondition_failed", None),
        ({"unknown": 1}, "request_invalid", "/unknown"),
        ({"output_type": "!quant.uniform<i8:f64, 1.0>"}, "unsupported", "/output_type"),
        ({"profile": "tosa", "output_type": "!quant.uniform<i8:f32, 1.0e-30>"}, "parameter_invalid", None),
    ],
)
def test_bad_input(client: httpx.Client, change: dict[str, Any], code: str, pointer: str | None) -> None:
    refused(client.post(PATH, json=ONE | change), 422, code, pointer)


def test_values_that_the_type_does_not_hold(client: httpx.Client) -> None:
    change = {"rhs": {"type": "tensor<2x1xi4>", "values": [7, 8]}, "output_type": "i32"}
    refused(client.post(PATH, json=ONE | change), 400, "tensor_data", "/rhs")
    change = {"bias": {"type": "tensor<1xi4>", "values": [8]}, "output_type": "i32"}
    refused(client.post(PATH, json=ONE | change), 400, "tensor_data", "/bias")
    change = {"rhs": {"type": "tensor<2x1xi8>", "data": "AA=="}, "output_type": "i32"}
    refused(client.post(PATH, json=ONE | change), 400, "tensor_data", "/rhs/data")
