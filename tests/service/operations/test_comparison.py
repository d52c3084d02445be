"""Two tensors compared through the real server."""

from __future__ import annotations

import base64
import math
from typing import Any

import httpx
import numpy as np
import pytest

QUANTIZED = "tensor<2x3x!quant.uniform<i8:f32, 0.5:3>>"


def tensor(type_text: str, array: np.ndarray[Any, Any]) -> dict[str, str]:
    return {"type": type_text, "data": base64.b64encode(array.tobytes()).decode()}


def compared(client: httpx.Client, a: dict[str, Any], b: dict[str, Any], **more: Any) -> dict[str, Any]:
    reply = client.post("/v1/compare", json={"a": a, "b": b, **more})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_stored_integers_of_one_type(client: httpx.Client) -> None:
    a = {"type": QUANTIZED, "values": [3, 4, 0, 127, -128, 7]}
    b = {"type": QUANTIZED, "values": [3, 5, 0, 100, -128, 7]}
    assert compared(client, a, b) == {
        "equal": False,
        "elements": 6,
        "mismatches": 2,
        "bit_mismatches": 2,
        "first": [
            {"index": 1, "position": [0, 1], "a": "4", "b": "5", "real_a": "0.5", "real_b": "1.0"},
            {"index": 3, "position": [1, 0], "a": "127", "b": "100", "real_a": "62.0", "real_b": "48.5"},
        ],
        "histogram": {
            "unit": "steps",
            "buckets": [
                {"low": -31, "high": -17, "count": 1},
                *({"low": step, "high": step, "count": 0} for step in range(-16, 0)),
                {"low": 0, "high": 0, "count": 4},
                {"low": 1, "high": 1, "count": 1},
            ],
            "undefined": 0,
        },
        "left_out": 0,
        "max_absolute_error": 13.5,
        "mean_absolute_error": 14 / 6,
        "sqnr_db": pytest.approx(10 * math.log10((0.25 + 2.25 + 62**2 + 65.5**2 + 4) / (0.25 + 13.5**2)), rel=1e-14),
    }


def test_a_tensor_is_equal_to_itself(client: httpx.Client) -> None:
    floats = {"type": "tensor<3xf32>", "values": [0.5, "NaN", "Infinity"]}
    assert compared(client, floats, floats) == {
        "equal": True,
        "elements": 3,
        "mismatches": 0,
        "bit_mismatches": 0,
        "first": [],
        "histogram": {"unit": "ulps", "buckets": [{"low": 0, "high": 0, "count": 3}], "undefined": 0},
        "left_out": 2,
        "max_absolute_error": 0.0,
        "mean_absolute_error": 0.0,
    }


def test_a_quantization_and_its_input(client: httpx.Client) -> None:
    floats = {"type": "tensor<4xf32>", "values": [0.5, 0.75, "NaN", 1e9]}
    output = client.post(
        "/v1/quantize", json={"input": floats, "output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"}
    ).json()["output"]
    found = compared(client, output, floats)
    assert "bit_mismatches" not in found
    assert (found["mismatches"], found["left_out"]) == (3, 1)
    assert found["first"][0] == {"index": 1, "position": [1], "a": "5", "b": "0.75", "real_a": "1.0"}
    assert found["first"][1]["b"] == "NaN"
    assert found["histogram"]["undefined"] == 1
    assert found["histogram"]["unit"] == "steps"
    assert found["max_absolute_error"] == 1e9 - 62


def test_the_number_of_listed_mismatches(client: httpx.Client) -> None:
    a, b = tensor("tensor<5000xi8>", np.zeros(5000, np.int8)), tensor("tensor<5000xi8>", np.ones(5000, np.int8))
    for asked, listed in (({}, 10), ({"max_reported": 0}, 0), ({"max_reported": 1000}, 1000)):
        found = compared(client, a, b, **asked)
        assert found["mismatches"] == 5000
        assert [each["index"] for each in found["first"]] == list(range(listed))


def test_a_decimal_is_rounded_once_on_either_side(client: httpx.Client) -> None:
    """2^-24 above 1 is a tie in f32, and the literal lies just above it, which binary64 cannot tell."""
    above = "1.0000000596046447753906250000000000000001"
    for a, b, low in ((above, "1.0", -1), ("1.0", above, 1)):
        one, other = (f'{{"type":"tensor<1xf32>","values":[{literal}]}}' for literal in (a, b))
        reply = client.post(
            "/v1/compare",
            content=f'{{"a":{one},"b":{other}}}',
            headers={"content-type": "application/json"},
        ).json()
        assert {"low": low, "high": low, "count": 1} in reply["histogram"]["buckets"]


def test_large_tensors_by_the_thread_pool(client: httpx.Client) -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(size=700_000).astype(np.float32)
    b = a.copy()
    b[[7, 650_000]] = np.nextafter(b[[7, 650_000]], np.float32(np.inf))
    found = compared(client, tensor("tensor<700x1000xf32>", a), tensor("tensor<700x1000xf32>", b))
    assert [each["position"] for each in found["first"]] == [[0, 7], [650, 0]]
    assert sum(bucket["count"] for bucket in found["histogram"]["buckets"]) == 700_000
    assert found["max_absolute_error"] == float(np.abs(b.astype(float) - a).max())


@pytest.mark.parametrize(
    ("a", "b", "code", "pointer", "words"),
    [
        ("tensor<2x3xi8>", "tensor<3x2xi8>", "type_does_not_fit", "/b/type", "a has shape 2x3, and b 3x2"),
        ("tensor<?xi8>", "tensor<2xi8>", "type_does_not_fit", "/a/type", "dynamic"),
        ("tensor<6xi8>", "tensor<6xf32>", "unsupported", "/b/type", "i8 and f32"),
        ("tensor<6xtf32>", "tensor<6xf32>", "unsupported", "/a/type", "a has elements of tf32"),
        ("tensor<6xi8>", "tensor<6x!quant.any<i8:f32>>", "unsupported", "/b/type", "b has elements"),
        ("tensor<6xi8", "tensor<6xi8>", "type_invalid", "/a/type", "expected"),
        ("tensor<6xi8>", "i8", "type_does_not_fit", "/b/type", "element type"),
    ],
)
def test_types_that_cannot_be_compared(
    client: httpx.Client, a: str, b: str, code: str, pointer: str, words: str
) -> None:
    numbers = [0] * 6
    reply = client.post("/v1/compare", json={"a": {"type": a, "values": numbers}, "b": {"type": b, "values": numbers}})
    assert (reply.status_code, reply.json()["code"]) == (422, code), reply.text
    (fault,) = reply.json()["errors"]
    assert fault["pointer"] == pointer
    assert words in reply.json()["detail"]


@pytest.mark.parametrize(
    ("change", "status", "code", "pointer"),
    [
        ({"max_reported": 1001}, 422, "request_invalid", "/max_reported"),
        ({"max_reported": -1}, 422, "request_invalid", "/max_reported"),
        ({"bits": True}, 422, "request_invalid", "/bits"),
        ({"b": {"type": "tensor<2xi8>", "values": [1]}}, 400, "tensor_data", "/b/values"),
        ({"a": {"type": "tensor<2xi8>", "values": [1, 128]}}, 400, "tensor_data", "/a/values/1"),
        ({"a": {"type": "tensor<2xi8>", "data": "AA=="}}, 400, "tensor_data", "/a/data"),
        ({"b": {"type": "tensor<2xi8>", "data": "!!!!"}}, 400, "base64", "/b/data"),
    ],
)
def test_requests_that_are_wrong(
    client: httpx.Client, change: dict[str, Any], status: int, code: str, pointer: str
) -> None:
    good = {"type": "tensor<2xi8>", "values": [1, 2]}
    reply = client.post("/v1/compare", json={"a": good, "b": good, **change})
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert reply.json()["errors"][0]["pointer"] == pointer
    small = {"type": "tensor<2xf4E2M1FN>", "data": "ABA="}
    reply = client.post("/v1/compare", json={"a": {"type": "tensor<2xf4E2M1FN>", "data": "AAA="}, "b": small})
    assert (reply.status_code, reply.json()["code"]) == (400, "tensor_data")
    assert "element 1 of b is 16" in reply.json()["detail"]
