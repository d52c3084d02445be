"""Casts between floats over HTTP: both faces, the options that an authority leaves, and what a profile's page says."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest

from tests.oracles import casts as cast_oracle

X = np.array([1.0, 0.3, -500.0, 490.0, np.inf, -np.inf, np.nan, -np.nan, -0.0], np.float32)


def quantize(client: httpx.Client, output_type: str, profile: str = "onnx", **options: Any) -> dict[str, Any]:
    tensor = {"type": f"tensor<{X.size}xf32>", "data": base64.b64encode(X.tobytes()).decode()}
    body = {"input": tensor, "output_type": output_type, "profile": profile, **options}
    reply = client.post("/v1/quantize", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def codes(reply: dict[str, Any]) -> list[int]:
    return list(base64.b64decode(reply["output"]["data"]))


def test_saturate(client: httpx.Client) -> None:
    report = {"profile": "onnx", "rounding": "nearest_even", "elements": 9}
    counts = {"saturated_low": 2, "saturated_high": 2, "nan": 2}
    default = quantize(client, "f8E4M3FN")
    assert default == quantize(client, "tensor<9xf8E4M3FN>", saturate=True)
    assert default["output"]["type"] == "tensor<9xf8E4M3FN>"
    assert codes(default) == [0x38, 0x2A, 0xFE, 0x7E, 0x7E, 0xFE, 0x7F, 0xFF, 0x80]
    assert default["report"] == report | counts
    # onnxruntime gives 448 for 490, and NaN on both sides of that.
    assert codes(quantize(client, "f8E4M3FN", saturate=False)) == [0x38, 0x2A, 0xFF, 0x7E, 0x7F, 0xFF, 0x7F, 0xFF, 0x80]
    assert codes(quantize(client, "f8E4M3FN", "ml_dtypes")) == [0x38, 0x2A, 0xFF, 0x7F, 0x7F, 0xFF, 0x7F, 0xFF, 0x80]


def test_the_rounding_of_scales(client: httpx.Client) -> None:
    for rounding, code in (("ceil", 126), ("floor", 125), ("nearest_up", 125)):
        reply = quantize(client, "f8E8M0FNU", rounding=rounding)
        assert codes(reply)[:2] == [127, code]
        assert reply["report"]["rounding"] == rounding
    assert quantize(client, "f8E8M0FNU")["report"]["rounding"] == "ceil"


@pytest.mark.parametrize(
    ("output_type", "profile", "options", "pointer"),
    [
        ("f8E4M3FN", "torch", {"saturate": True}, "/saturate"),
        ("f16", "onnx", {"saturate": False}, "/saturate"),
        ("!quant.uniform<i8:f32, 0.5>", "onnx", {"saturate": True}, "/saturate"),
        ("f8E8M0FNU", "torch", {"rounding": "ceil"}, "/rounding"),
        ("f8E5M2", "onnx", {"rounding": "ceil"}, "/rounding"),
        ("f8E5M2", "onnx", {"nan": "lowest"}, "/nan"),
        ("f8E4M3", "onnx", {}, "/output_type"),
        ("f8E8M0FNU", "stablehlo", {}, "/output_type"),
        ("f32", "onnx", {}, "/output_type"),
        ("f8E4M3FN", "litert", {}, "/profile"),
    ],
)
def test_what_is_not_taken(
    client: httpx.Client, output_type: str, profile: str, options: dict[str, Any], pointer: str
) -> None:
    tensor = {"type": "tensor<1xf32>", "values": [1]}
    body = {"input": tensor, "output_type": output_type, "profile": profile, **options}
    file = io.BytesIO()
    np.save(file, np.ones(1, np.float32))
    query = {"output_type": output_type, "profile": profile, **{name: str(v).lower() for name, v in options.items()}}
    for reply in (
        client.post("/v1/quantize", json=body),
        client.post("/v1/npy/quantize", params=query, content=file.getvalue()),
    ):
        assert (reply.status_code, reply.json()["code"]) == (422, "unsupported"), reply.text
        assert [error["pointer"] for error in reply.json()["errors"]] == [pointer]


def test_a_saturate_that_is_no_boolean(client: httpx.Client) -> None:
    body = {"input": {"type": "tensor<1xf32>", "values": [1]}, "output_type": "f8E5M2", "profile": "onnx"}
    for value in (1, "true", None):
        assert client.post("/v1/quantize", json={**body, "saturate": value}).json()["code"] == "request_invalid"
    file = io.BytesIO()
    np.save(file, np.ones(1, np.float32))
    for value in ("1", "True", ""):
        query = {"output_type": "f8E5M2", "profile": "onnx", "saturate": value}
        problem = client.post("/v1/npy/quantize", params=query, content=file.getvalue()).json()
        assert (problem["code"], problem["errors"][0]["pointer"]) == ("request_invalid", "/saturate")


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("element", ["f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E5M2FNUZ", "bf16", "f16"])
def test_npy_there_and_back(client: httpx.Client, element: str, dense: bool) -> None:
    x = np.array([[1.0, -0.5, 3.0], [2.0, 0.0, -1.5]], np.float32)
    file = io.BytesIO()
    np.save(file, x)
    packing = {"packing": "dense"} if dense else {}
    query = {"output_type": element, "profile": "onnx", **packing}
    narrow = client.post("/v1/npy/quantize", params=query, content=file.getvalue())
    assert narrow.headers["Requant-Type"] == f"tensor<2x3x{element}>"
    assert narrow.headers["Requant-Saturated"] == "0"
    stored = np.load(io.BytesIO(narrow.content))
    if dense and element[1] in "46":
        assert stored.shape == (-(-6 * int(element[1]) // 8),)
    for target in ("f32", "f64", "bf16"):
        if element == target:
            continue
        query = {"input_type": f"tensor<2x3x{element}>", "output_type": target, "profile": "onnx", **packing}
        reply = client.post("/v1/npy/dequantize", params=query, content=narrow.content)
        back = np.load(io.BytesIO(reply.content))
        real = (back.astype(np.uint32) << 16).view(np.float32) if target == "bf16" else back
        assert real.tolist() == x.tolist()


def test_values_are_numbers_of_sixteen_bits_and_codes_of_fewer(client: httpx.Client) -> None:
    body = {"input": {"type": "tensor<3xbf16>", "values": [0.1, -2.5, "NaN"]}, "profile": "torch"}
    half = client.post("/v1/quantize", json={**body, "output_type": "f16"}).json()["output"]
    assert half == {"type": "tensor<3xf16>", "values": [0.1001, -2.5, "NaN"]}
    tiny = client.post("/v1/quantize", json={**body, "output_type": "f8E5M2"}).json()["output"]
    assert tiny == {"type": "tensor<3xf8E5M2>", "values": [0x2E, 0xC1, 0x7F]}
    back = client.post("/v1/dequantize", json={"input": tiny, "profile": "torch"}).json()
    assert back["output"] == {"type": "tensor<3xf32>", "values": [0.09375, -2.5, "NaN"]}
    assert back["report"]["nan"] == 1


def test_the_error_of_a_cast(client: httpx.Client) -> None:
    body = {"input": {"type": "tensor<3xf32>", "values": [0.3, 1.0, 1e9]}, "output_type": "f4E2M1FN", "profile": "onnx"}
    error = client.post("/v1/quantize", json={**body, "error": True}).json()["report"]["error"]
    assert error["max_absolute_error"] == 1e9 - 6


@pytest.mark.parametrize("profile", cast_oracle.TARGETS)
def test_the_page_says_what_special_values_give(client: httpx.Client, profile: str) -> None:
    """The codes on the page are the oracle's."""
    casts = client.get(f"/v1/profiles/{profile}").json()["casts"]
    assert casts["sources"] == list(cast_oracle.SOURCES[profile])
    assert sorted(each["type"] for each in casts["formats"]) == sorted(cast_oracle.TARGETS[profile])
    largest = float(np.finfo(np.float32).max)
    special = [largest, -largest, float("inf"), -float("inf"), float("nan"), -float("nan"), -0.0]
    for each in casts["formats"]:
        for name, saturate in (("codes", None), ("saturate_false", False)):
            if name == "saturate_false" and name not in each:
                assert profile not in cast_oracle.CHOOSE_SATURATION or each["type"][:2] != "f8"
                continue
            found = [int(code, 16) for code in each[name].values()]
            expected = [
                cast_oracle.cast(profile, "f32", each["type"], value, saturate=saturate).code for value in special
            ]
            assert found == expected, (each["type"], name)
