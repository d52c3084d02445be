"""The conversions through the real server: JSON and `.npy` give the same bits, and they are the profile's."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest

from requant_service.http.openapi_operation import REQUEST_MODELS

PER_AXIS = "!quant.uniform<i8:f32:1, {0.5:3,0.25,0.125:-7}>"


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def load(reply: httpx.Response) -> np.ndarray[Any, Any]:
    assert reply.status_code == 200, reply.text
    loaded: np.ndarray[Any, Any] = np.load(io.BytesIO(reply.content), allow_pickle=False)
    return loaded


def tensor(type_text: str, array: np.ndarray[Any, Any]) -> dict[str, str]:
    return {"type": type_text, "data": base64.b64encode(array.tobytes()).decode()}


def converted(client: httpx.Client, operation: str, **body: Any) -> dict[str, Any]:
    reply = client.post(f"/v1/{operation}", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


@pytest.mark.parametrize(
    ("profile", "expected"), [("stablehlo", [4, 4, 6, 2]), ("onnx", [3, 5, 5, 3]), ("litert", [4, 5, 6, 2])]
)
def test_the_tie_discriminator(client: httpx.Client, profile: str, expected: list[int]) -> None:
    reply = converted(
        client,
        "quantize",
        input={"type": "tensor<4xf32>", "values": [0.5, 1.5, 2.5, -0.5]},
        output_type="!quant.uniform<i8:f32, 1.0:3>",
        profile=profile,
    )
    assert reply["output"]["values"] == expected
    assert reply["report"]["profile"] == profile


def test_a_reply_has_the_form_of_its_request_and_the_canonical_type(client: httpx.Client) -> None:
    numbers = [0.5, -1.0, 1e9, -1e9, "NaN", "Infinity"]
    floats = np.array([0.5, -1.0, 1e9, -1e9, np.nan, np.inf], np.float32)
    target = "!quant.uniform<i8:f32, 0.5>"
    as_values = converted(client, "quantize", input={"type": "tensor<2x3xf32>", "values": numbers}, output_type=target)
    as_data = converted(client, "quantize", input=tensor("tensor<2x3xf32>", floats), output_type=target)
    assert set(as_values["output"]) == {"type", "values"}
    assert set(as_data["output"]) == {"type", "data"}
    assert as_values["output"]["type"] == "tensor<2x3x!quant.uniform<i8:f32, 5.000000e-01>>"
    data = np.frombuffer(base64.b64decode(as_data["output"]["data"]), np.int8)
    assert data.tolist() == as_values["output"]["values"] == [1, -2, 127, -128, 0, 127]
    assert as_values["report"] == as_data["report"]
    assert as_data["report"] == {
        "profile": "stablehlo",
        "rounding": "nearest_even",
        "elements": 6,
        "saturated_low": 1,
        "saturated_high": 2,
        "nan": 1,
    }


def test_json_and_npy_agree(client: httpx.Client) -> None:
    floats = np.random.default_rng(7).normal(0, 20, (50, 3)).astype(np.float32)
    by_json = converted(client, "quantize", input=tensor("tensor<50x3xf32>", floats), output_type=PER_AXIS)
    by_npy = client.post("/v1/npy/quantize", params={"output_type": PER_AXIS}, content=npy(floats))
    stored = load(by_npy)
    assert stored.dtype == np.int8
    assert stored.shape == (50, 3)
    assert base64.b64decode(by_json["output"]["data"]) == stored.tobytes()
    report = by_json["report"]
    assert by_npy.headers["Requant-Type"] == by_json["output"]["type"]
    assert by_npy.headers["Requant-Profile"] == report["profile"]
    assert int(by_npy.headers["Requant-Saturated"]) == report["saturated_low"] + report["saturated_high"] > 0

    stored_type = by_npy.headers["Requant-Type"]
    back = client.post("/v1/npy/dequantize", params={"input_type": stored_type}, content=by_npy.content)
    by_json = converted(client, "dequantize", input=tensor(stored_type, stored))
    assert load(back).dtype == np.float32
    assert base64.b64decode(by_json["output"]["data"]) == load(back).tobytes()
    inside = (stored > -128) & (stored < 127)
    half_steps = np.array([0.25, 0.125, 0.0625]) * (1 + 1e-5)
    assert (np.abs(load(back) - floats) <= half_steps)[inside].all()

    query = {"input_type": stored_type, "output_type": "!quant.uniform<i16:f32:1, {0.25,0.5,0.125:1}>"}
    for profile in ("litert", "litert_single_rounding"):
        moved = client.post("/v1/npy/requantize", params={**query, "profile": profile}, content=by_npy.content)
        by_json = converted(
            client,
            "requantize",
            input=tensor(stored_type, stored),
            output_type=query["output_type"],
            profile=profile,
        )
        assert base64.b64decode(by_json["output"]["data"]) == load(moved).tobytes()
        assert len(by_json["multipliers"]) == 3


def test_given_multipliers_are_used_and_echoed(client: httpx.Client) -> None:
    body = {
        "input": {"type": "tensor<3x!quant.uniform<i32:f32, 1.0>>", "values": [1000, -1000, 10**9]},
        "output_type": "!quant.uniform<i8:f32, 1.0>",
        "multipliers": [{"multiplier": 1 << 30, "shift": -3}],
    }
    reply = converted(client, "requantize", **body)
    assert reply["multipliers"] == body["multipliers"]
    assert reply["output"]["values"] == [63, -63, 127]
    assert reply["report"]["saturated_high"] == 1


def test_a_bare_type_is_bound_to_the_shape_of_the_npy(client: httpx.Client) -> None:
    stored = np.arange(-4, 4, dtype=np.int8).reshape(2, 2, 2)
    for text in (
        "!quant.uniform<i8:f32, 0.5>",
        "tensor<2x2x2x!quant.uniform<i8:f32, 0.5>>",
        "tensor<2x?x2x!quant.uniform<i8:f32, 0.5>>",
    ):
        reply = client.post("/v1/npy/dequantize", params={"input_type": text}, content=npy(stored))
        assert load(reply).tolist() == (stored * 0.5).tolist()
        assert reply.headers["Requant-Type"] == "tensor<2x2x2xf32>"


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1,) * 32])
def test_odd_shapes(client: httpx.Client, shape: tuple[int, ...]) -> None:
    floats = np.ones(shape, np.float32)
    reply = client.post(
        "/v1/npy/quantize", params={"output_type": "!quant.uniform<u8:f32, 0.5:1>"}, content=npy(floats)
    )
    assert load(reply).shape == shape
    assert (load(reply) == 3).all()
    dims = "".join(f"{size}x" for size in shape)
    body = converted(
        client,
        "quantize",
        input=tensor(f"tensor<{dims}f32>", floats),
        output_type="!quant.uniform<u8:f32, 0.5:1>",
    )
    assert base64.b64decode(body["output"]["data"]) == load(reply).tobytes()


def test_a_chunked_body_is_the_same_body(client: httpx.Client) -> None:
    file = npy(np.arange(70_000, dtype=np.float32))
    params = {"output_type": "!quant.uniform<i16:f32, 3.0>"}
    pieces = (file[at : at + 4099] for at in range(0, len(file), 4099))
    chunked = client.post("/v1/npy/quantize", params=params, content=pieces)
    assert load(chunked).tobytes() == load(client.post("/v1/npy/quantize", params=params, content=file)).tobytes()


def test_a_body_of_the_largest_size_works_and_one_byte_more_does_not(client: httpx.Client) -> None:
    limit = client.get("/v1/info").json()["limits"]["max_binary_bytes"]
    assert limit == 64 << 20
    floats = np.arange((limit - 128) // 4, dtype=np.float32)
    file = npy(floats)
    assert limit - 4 <= len(file) <= limit
    params = {"output_type": "!quant.uniform<u8:f32, 1.0:0>"}
    reply = client.post("/v1/npy/quantize", params=params, content=file)
    stored = load(reply)
    assert stored.size == floats.size
    assert stored[:256].tolist() == list(range(256))
    assert int(reply.headers["Requant-Saturated"]) == floats.size - 256
    assert client.get("/healthz").status_code == 200


def test_the_largest_json_body_works(client: httpx.Client) -> None:
    floats = np.arange(1_500_000, dtype=np.float32)
    reply = converted(
        client,
        "quantize",
        input=tensor(f"tensor<{floats.size}xf32>", floats),
        output_type="!quant.uniform<i32:f32, 1.0>",
    )
    data = np.frombuffer(base64.b64decode(reply["output"]["data"]), np.int32)
    assert np.array_equal(data, floats.astype(np.int32))


def test_types_too_long_for_a_header_are_left_out(client: httpx.Client) -> None:
    scales = ",".join(["0.5"] * 300)
    file = npy(np.zeros((1, 300), np.float32))
    reply = client.post(
        "/v1/npy/quantize", params={"output_type": f"!quant.uniform<i8:f32:1, {{{scales}}}>"}, content=file
    )
    assert load(reply).shape == (1, 300)
    assert "Requant-Type" not in reply.headers
    assert reply.headers["Requant-Profile"] == "stablehlo"


def test_every_default_may_be_sent(client: httpx.Client) -> None:
    models = {model.__name__: model for model in REQUEST_MODELS}
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        media = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" not in media or "sharedmemory" in path or path.startswith("/v1/checkpoints"):
            continue
        fields = models[media["schema"]["$ref"].rpartition("/")[2]].model_fields
        defaults = {name: field.default for name, field in fields.items() if field.default and not field.is_required()}
        named = path.replace("{model}", "quantize").replace("{version}", "1")
        reply = client.post(named, json=defaults | media["example"])
        assert reply.status_code == 200, (path, reply.text)
