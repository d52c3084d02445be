"""What a request can ask of a conversion beyond its types: rounding, NaN, a seed, packing, and the error."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest

from requant.plan.plan import pack

TYPE = "!quant.uniform<i4:f32, 0.5:1>"
VALUES = [0.25, -0.25, 1.3, -9.0, 2.25]


def quantize(client: httpx.Client, **options: Any) -> httpx.Response:
    tensor = {"type": "tensor<5xf32>", "values": VALUES}
    return client.post("/v1/quantize", json={"input": tensor, "output_type": TYPE, "profile": "onnx", **options})


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("nearest_even", [1, 1, 4, -8, 5]), ("nearest_away", [2, 0, 4, -8, 6]), ("floor", [1, 0, 3, -8, 5])],
)
def test_rounding(client: httpx.Client, rounding: str, expected: list[int]) -> None:
    reply = quantize(client, rounding=rounding).json()
    assert reply["output"]["values"] == expected
    assert reply["report"]["rounding"] == rounding


def test_a_seed_repeats_stochastic_rounding(client: httpx.Client) -> None:
    answers = [
        quantize(client, rounding="stochastic", seed=seed).json()["output"]["values"] for seed in (5, 5, 6, 7, 8)
    ]
    assert answers[0] == answers[1]
    assert len({tuple(answer) for answer in answers}) > 1


def test_nan(client: httpx.Client) -> None:
    body = {"input": {"type": "tensor<2xf32>", "values": [1.0, "NaN"]}, "output_type": TYPE}
    assert client.post("/v1/quantize", json={**body, "nan": "zero_point"}).json()["output"]["values"] == [3, 1]
    problem = client.post("/v1/quantize", json={**body, "nan": "error"})
    assert (problem.status_code, problem.json()["code"], problem.json()["index"]) == (422, "precondition_failed", 1)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"rounding": "up"}, "unknown_name"),
        ({"rounding": "double"}, "unknown_name"),
        ({"nan": "keep"}, "request_invalid"),
        ({"seed": -1}, "request_invalid"),
        ({"packing": "loose"}, "request_invalid"),
    ],
)
def test_options_that_do_not_exist(client: httpx.Client, options: dict[str, Any], code: str) -> None:
    reply = quantize(client, **options)
    assert (reply.status_code, reply.json()["code"]) == (422, code)


def test_the_error_against_the_input(client: httpx.Client) -> None:
    report = quantize(client, error=True).json()["report"]
    # Stored 1 1 4 -8 5 stand for 0 0 1.5 -4.5 2.0.
    assert report["error"]["max_absolute_error"] == 4.5
    assert report["error"]["mean_absolute_error"] == pytest.approx((0.25 + 0.25 + 0.2 + 4.5 + 0.25) / 5)
    assert report["error"]["left_out"] == 0
    assert "error" not in quantize(client).json()["report"]


def test_dense_packing_there_and_back(client: httpx.Client) -> None:
    real = np.array(VALUES, np.float32)
    data = {"type": "tensor<5xf32>", "data": base64.b64encode(real.tobytes()).decode()}
    body = {"input": data, "output_type": TYPE, "profile": "onnx"}
    plain = client.post("/v1/quantize", json=body).json()["output"]
    packed = client.post("/v1/quantize", json={**body, "packing": "dense"}).json()["output"]
    stored = np.frombuffer(base64.b64decode(plain["data"]), np.int8)
    assert base64.b64decode(packed["data"]) == pack(stored, 4).tobytes()
    back = [
        client.post("/v1/dequantize", json={"input": tensor, "profile": "onnx", **packing}).json()["output"]
        for tensor, packing in ((plain, {}), (packed, {"packing": "dense"}))
    ]
    assert back[0] == back[1]
    npy = io.BytesIO()
    np.save(npy, real)
    query = {"output_type": TYPE, "profile": "onnx", "packing": "dense"}
    reply = client.post("/v1/npy/quantize", params=query, content=npy.getvalue())
    assert np.load(io.BytesIO(reply.content)).tobytes() == pack(stored, 4).tobytes()
    query = {"input_type": f"tensor<5x{TYPE}>", "profile": "onnx", "packing": "dense"}
    reply = client.post("/v1/npy/dequantize", params=query, content=reply.content)
    assert np.load(io.BytesIO(reply.content)).tobytes() == base64.b64decode(back[0]["data"])


def test_values_are_not_packed(client: httpx.Client) -> None:
    body = {"input": {"type": f"tensor<2x{TYPE}>", "values": [1, 2]}, "packing": "dense"}
    reply = client.post("/v1/dequantize", json=body)
    assert (reply.status_code, reply.json()["code"]) == (422, "request_invalid")


def test_options_of_the_npy_face(client: httpx.Client) -> None:
    npy = io.BytesIO()
    np.save(npy, np.array(VALUES, np.float32))
    query = {"output_type": TYPE, "profile": "onnx", "rounding": "floor"}
    reply = client.post("/v1/npy/quantize", params=query, content=npy.getvalue())
    assert np.load(io.BytesIO(reply.content)).tolist() == [1, 0, 3, -8, 5]
    for name, value in (("rounding", "up"), ("nan", "keep"), ("seed", "x"), ("packing", "loose")):
        reply = client.post("/v1/npy/quantize", params={**query, name: value}, content=npy.getvalue())
        assert reply.status_code == 422


def test_bf16_values_are_real_numbers(client: httpx.Client) -> None:
    body = {
        "input": {"type": "tensor<3xbf16>", "values": [0.1, -2.5, "Infinity"]},
        "output_type": "!quant.uniform<i8:bf16, 0.05>",
    }
    reply = client.post("/v1/quantize", json=body).json()
    assert reply["output"]["values"] == [2, -50, 127]
    back = client.post("/v1/dequantize", json={"input": reply["output"]}).json()
    assert back["output"]["type"] == "tensor<3xbf16>"
    assert [float(np.float32(value)) for value in back["output"]["values"][:2]] == [0.10009765625, -2.5]


def test_blocks_of_int4_along_an_axis(client: httpx.Client) -> None:
    output_type = "!quant.uniform<i4:f32:{0:1, 1:2}, {{0.5, 1.0}}>"
    body = {
        "input": {"type": "tensor<1x4xf32>", "values": [1.0, 2.0, 3.0, 4.0]},
        "output_type": output_type,
        "profile": "onnx",
    }
    assert client.post("/v1/quantize", json=body).json()["output"]["values"] == [2, 4, 3, 4]
    refused = client.post("/v1/quantize", json={**body, "profile": "litert"}).json()
    assert refused["code"] == "unsupported"
    assert "sub_channel" in refused["detail"]


def test_codes_of_a_table_there_and_back(client: httpx.Client) -> None:
    storage = "!quant.quantile<ui2:f32, {-1.0, 0.0, 0.5, 1.0}>"
    tensor = {"type": "tensor<6xf32>", "values": [-9.0, -0.2, 0.05, 0.06, "NaN", "Infinity"]}
    body = {"input": tensor, "output_type": f"!quant.uniform<{storage}:f32, 0.2>", "profile": "quantile"}
    reply = client.post("/v1/quantize", json=body).json()
    assert reply["output"]["values"] == [0, 0, 1, 2, 0, 3]
    report = {name: reply["report"][name] for name in ("rounding", "saturated_low", "saturated_high", "nan")}
    assert report == {"rounding": "nearest_down", "saturated_low": 1, "saturated_high": 1, "nan": 1}
    back = client.post("/v1/dequantize", json={"input": reply["output"], "profile": "quantile"}).json()
    assert back["output"]["values"] == pytest.approx([-0.2, -0.2, 0.0, 0.1, -0.2, 0.2])
    npy = io.BytesIO()
    np.save(npy, np.array([-9.0, -0.2, 0.05, 0.06], np.float32))
    query = {"output_type": f"!quant.uniform<{storage}:f32, 0.2>", "profile": "quantile", "packing": "dense"}
    packed = client.post("/v1/npy/quantize", params=query, content=npy.getvalue())
    assert np.load(io.BytesIO(packed.content)).tolist() == [0b10_01_00_00]
    refused = client.post("/v1/quantize", json={**body, "profile": "onnx"}).json()
    assert (refused["code"], refused["errors"][0]["pointer"]) == ("unsupported", "/output_type")
