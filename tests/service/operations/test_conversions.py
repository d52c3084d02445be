"""Conversions through the real server: forms, shapes and sizes of what is sent, and what is said of results."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from requant_service.http.openapi_operation import REQUEST_MODELS
from tests.core.plan.test_packing import dtype_of
from tests.oracles import casts as cast_oracle
from tests.service.replies import encoded, npy


def load(reply: httpx.Response) -> NDArray[Any]:
    assert reply.status_code == 200, reply.text
    loaded: NDArray[Any] = np.load(io.BytesIO(reply.content), allow_pickle=False)
    return loaded


def tensor(type_text: str, array: NDArray[Any]) -> dict[str, str]:
    return {"type": type_text, "data": encoded(array)}


def converted(client: httpx.Client, operation: str, **body: Any) -> dict[str, Any]:
    reply = client.post(f"/v1/{operation}", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


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
        assert reply.status_code == (202 if path.endswith("/jobs") else 200), (path, reply.text)


def drawn(storage: str, count: int) -> NDArray[Any]:
    """Numbers of a storage that f32 has, both ends of the range among them or near."""
    width, signed = int(storage[1:]), storage[0] == "i"
    high = (1 << (width - signed)) - 1
    found = np.random.default_rng(width).integers(-high - 1 if signed else 0, high + 1, count)
    found[:2] = -high - 1 if signed else 0, high
    return found.astype(dtype_of(width, signed=signed))


@pytest.mark.parametrize(("storage", "width"), [("i12", 12), ("u24", 24)])
def test_a_long_packed_tensor_in_pieces(client: httpx.Client, storage: str, width: int) -> None:
    plain = drawn(storage, 1_000_003)
    x = plain.astype(np.float32) * np.float32(0.25)
    # Three bytes for two numbers of 12 bits, and for one of 24: what they are by their bytes alone.
    pairs = np.append(plain, np.zeros(1, plain.dtype)).astype(np.uint64) & np.uint64((1 << width) - 1)
    if width == 12:
        words = pairs[::2] | pairs[1::2] << np.uint64(12)
        expected = words.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()[: -(-x.size * 3 // 2)]
    else:
        expected = pairs[:-1].astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    type_, options = f"!quant.uniform<{storage}:f32, 0.25>", {"profile": "mlir", "packing": "dense"}
    dense = client.post("/v1/npy/quantize", params={"output_type": type_, **options}, content=npy(x))
    assert load(dense).tobytes() == expected
    back = {"input_type": f"tensor<{x.size}x{type_}>", **options}
    assert load(client.post("/v1/npy/dequantize", params=back, content=dense.content)).tobytes() == x.tobytes()


@pytest.mark.parametrize("profile", cast_oracle.TARGETS)
def test_the_page_of_a_profile_says_what_special_values_give(client: httpx.Client, profile: str) -> None:
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
