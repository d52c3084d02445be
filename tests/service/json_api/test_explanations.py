"""The explained conversions over HTTP: the same answers as the conversions, the limit, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.load.case import tensor

QUANTIZED = "!quant.uniform<i8:f32, 0.5:3>"
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("quantize", {"input": {"type": "tensor<4xf32>", "values": [0.25, 0.75, "NaN", 1e9]}, "output_type": QUANTIZED}),
    (
        "quantize",
        {
            "input": tensor("tensor<3xf16>", np.array([0.5, 1.5, -7], np.float16)),
            "output_type": "!quant.uniform<i4:f16, 0.5>",
            "packing": "dense",
            "error": True,
        },
    ),
    ("quantize", {"input": {"type": "tensor<2xf32>", "values": [0.25, 3]}, "output_type": "!quant.any<i8:f32>"}),
    (
        "quantize",
        {"input": {"type": "tensor<2xbf16>", "values": [0.5, 3]}, "output_type": "f8E4M3FN", "profile": "onnx"},
    ),
    ("dequantize", {"input": {"type": f"tensor<2x{QUANTIZED}>", "values": [0, -128]}, "profile": "litert"}),
    (
        "dequantize",
        {"input": {"type": "tensor<3x!quant.uniform<u2:f32, 0.5>>", "data": "Gw=="}, "packing": "dense"},
    ),
    (
        "requantize",
        {
            "input": {"type": "tensor<2xi32>", "values": [100, 101]},
            "output_type": "i8",
            "scheme": "gemmlowp",
            "multipliers": [{"multiplier": 1 << 30, "shift": -1}],
        },
    ),
]


@pytest.mark.parametrize(("operation", "request_"), REQUESTS)
def test_the_answer_is_that_of_the_conversion(client: httpx.Client, operation: str, request_: dict[str, Any]) -> None:
    plain = client.post(f"/v1/{operation}", json=request_)
    explained = client.post(f"/v1/explain/{operation}", json=request_)
    assert (plain.status_code, explained.status_code) == (200, 200), explained.text
    found = explained.json()
    elements, formula = found.pop("elements"), found.pop("formula")
    assert found == plain.json()
    assert formula == [f"{step['symbol']} = {step['formula']}" for step in elements[0]["steps"]]
    if "values" in found["output"]:
        assert [float(each["result"]) for each in elements] == [float(each) for each in found["output"]["values"]]
    report = found["report"]
    ends = [each.get("saturated") for each in elements]
    assert (ends.count("low"), ends.count("high")) == (report["saturated_low"], report["saturated_high"])


def test_at_most_256_elements(client: httpx.Client) -> None:
    request = {"input": tensor("tensor<256xf32>", np.ones(256, np.float32)), "output_type": QUANTIZED}
    assert len(client.post("/v1/explain/quantize", json=request).json()["elements"]) == 256
    request["input"] = tensor("tensor<257xf32>", np.ones(257, np.float32))
    reply = client.post("/v1/explain/quantize", json=request)
    assert (reply.status_code, reply.json()["code"]) == (413, "limit_exceeded")
    assert reply.json()["errors"][0]["pointer"] == "/input/type"


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
