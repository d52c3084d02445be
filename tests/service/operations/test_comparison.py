"""Comparisons, blocks and explanations over HTTP: forms and limits of a request, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.replies import encoded, refused


def test_the_number_of_listed_mismatches(client: httpx.Client) -> None:
    a, b = ({"type": "tensor<5000xi8>", "data": encoded(np.full(5000, each, np.int8))} for each in (0, 1))
    for asked, listed in (({}, 10), ({"max_reported": 0}, 0), ({"max_reported": 1000}, 1000)):
        found = client.post("/v1/compare", json={"a": a, "b": b, **asked}).json()
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
    assert words in refused(reply, 422, code, pointer)["detail"]


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
def test_comparisons_that_are_wrong(
    client: httpx.Client, change: dict[str, Any], status: int, code: str, pointer: str
) -> None:
    good = {"type": "tensor<2xi8>", "values": [1, 2]}
    refused(client.post("/v1/compare", json={"a": good, "b": good, **change}), status, code, pointer)


def test_a_code_that_no_small_float_has(client: httpx.Client) -> None:
    small = {"type": "tensor<2xf4E2M1FN>", "data": "ABA="}
    reply = client.post("/v1/compare", json={"a": {"type": "tensor<2xf4E2M1FN>", "data": "AAA="}, "b": small})
    assert "element 1 of b is 16" in refused(reply, 400, "tensor_data")["detail"]


@pytest.mark.parametrize("in_values", [("elements",), ("scales",), ("elements", "scales"), ()])
def test_any_part_in_values_asks_for_values(client: httpx.Client, in_values: tuple[str, ...]) -> None:
    parts = {"elements": ("1x32xf4E2M1FN", [1] * 32), "scales": ("1x1xf8E8M0FNU", [127])}
    body = {
        name: {"type": f"tensor<{type_}>"}
        | ({"values": codes} if name in in_values else {"data": encoded(bytes(codes))})
        for name, (type_, codes) in parts.items()
    }
    options = {"format": "mxfp4_e2m1", "output_type": "tensor<1x32xf32>"}
    output = client.post("/v1/blocks/dequantize", json={**body, **options}).json()["output"]
    assert ("values" in output) == bool(in_values)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format": "mxfp9"}, "request_invalid"),
        ({"input": {"type": "tensor<1x31xf32>", "values": [0.0] * 31}}, "type_does_not_fit"),
        ({"input": {"type": "tensor<1x32xf64>", "values": [0.0] * 32}}, "unsupported"),
        ({"input": {"type": "tensor<1x32xi8>", "values": [0] * 32}}, "unsupported"),
        ({"format": "nvfp4", "global_scale": "one"}, "parameter_invalid"),
        ({"format": "nvfp4", "global_scale": "0"}, "parameter_invalid"),
        ({"format": "Q8_0", "input": {"type": "tensor<32xf32>", "values": ["NaN"] * 32}}, "precondition_failed"),
    ],
)
def test_what_is_not_quantized_to_blocks(client: httpx.Client, change: dict[str, Any], code: str) -> None:
    body = {"input": {"type": "tensor<1x32xf32>", "values": [1.0] * 32}, "format": "mxfp8_e4m3", **change}
    refused(client.post("/v1/blocks/quantize", json=body), 422, code)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"scales": {"type": "tensor<1x2xf8E8M0FNU>", "values": [1, 2]}}, "type_does_not_fit"),
        ({"blocks": {"type": "tensor<1xui8>", "values": [1]}}, "request_invalid"),
        ({"global_scale": "1.0"}, "unsupported"),
        ({"format": "Q8_0"}, "request_invalid"),
    ],
)
def test_parts_that_are_not_the_formats(client: httpx.Client, change: dict[str, Any], code: str) -> None:
    body = {
        "format": "mxfp4_e2m1",
        "output_type": "tensor<1x32xf32>",
        "elements": {"type": "tensor<1x32xf4E2M1FN>", "values": [1] * 32},
        "scales": {"type": "tensor<1x1xf8E8M0FNU>", "values": [127]},
        **change,
    }
    refused(client.post("/v1/blocks/dequantize", json=body), 422, code)


QUANTIZED = "!quant.uniform<i8:f32, 0.5:3>"


def test_at_most_256_elements_are_explained(client: httpx.Client) -> None:
    request: dict[str, Any] = {
        "input": {"type": "tensor<256xf32>", "data": encoded(np.ones(256, np.float32))},
        "output_type": QUANTIZED,
    }
    assert len(client.post("/v1/explain/quantize", json=request).json()["elements"]) == 256
    request["input"] = {"type": "tensor<257xf32>", "data": encoded(np.ones(257, np.float32))}
    refused(client.post("/v1/explain/quantize", json=request), 413, "limit_exceeded", "/input/type")


def test_what_the_profile_does_not_define_is_refused_likewise(client: httpx.Client) -> None:
    request = {
        "input": {"type": "tensor<2xf32>", "values": [1, 1e9]},
        "output_type": "!quant.uniform<i8:f32, 0.5>",
        "profile": "mlir",
    }
    plain, explained = (client.post(f"/v1{path}/quantize", json=request) for path in ("", "/explain"))
    assert plain.status_code == explained.status_code == 422
    assert {**plain.json(), "request_id": ""} == {**explained.json(), "request_id": ""}


def test_an_empty_tensor_has_nothing_to_explain(client: httpx.Client) -> None:
    request = {"input": {"type": "tensor<0x3xf32>", "values": []}, "output_type": QUANTIZED}
    reply = client.post("/v1/explain/quantize", json=request)
    assert reply.status_code == 200, reply.text
    assert (reply.json()["formula"], reply.json()["elements"]) == ([], [])
