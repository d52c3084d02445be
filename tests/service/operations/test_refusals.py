"""Conversions that are refused, in each protocol: the code, and the field that the problem points at."""

from __future__ import annotations

import re
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.replies import encoded, npy, refused
from tests.support.oip_wire import Input, infer

I8 = "!quant.uniform<i8:f32, 0.5>"
PER_AXIS = "!quant.uniform<i8:f32:1, {0.5,0.25}>"
BLOCKS = "!quant.uniform<i4:f32:{0:1, 1:2}, {{0.5, 1.0}}>"

# operation, input type, output type, profile, code, which field
CASES = [
    ("quantize", "tensor<?xf32>", I8, "onnx", "type_does_not_fit", "input"),
    ("quantize", "tensor<*xf32>", I8, "onnx", "type_does_not_fit", "input"),
    ("quantize", "tensor<4xi8>", I8, "onnx", "unsupported", "input"),
    ("quantize", "tensor<4xf32>", f"tensor<5x{I8}>", "onnx", "type_does_not_fit", "output"),
    ("quantize", "tensor<1x3xf32>", PER_AXIS, "onnx", "type_does_not_fit", "output"),
    ("quantize", "tensor<4xf32>", "i8", "onnx", "unsupported", "output"),
    ("quantize", "tensor<4xf32>", "!quant.uniform<i7:f32, 0.5>", "onnx", "unsupported", "output"),
    ("quantize", "tensor<4xf32>", "!quant.uniform<i8:f16, 0.5>", "onnx", "unsupported", "output"),
    ("quantize", "tensor<4xf32>", "!quant.uniform<i8:f32, 0.5:300>", "onnx", "unsupported", "output"),
    ("quantize", "tensor<4xf32>", "!quant.uniform<f8E5M2:f32, 0.5:1>", "onnx", "unsupported", "output"),
    ("quantize", "tensor<4xf32>", "!quant.uniform<f8E5M2<-9:9>:f32, 0.5>", "onnx", "unsupported", "output"),
    ("quantize", "tensor<1x4xf32>", BLOCKS, "litert", "unsupported", "output"),
    ("quantize", "tensor<4xf32>", "!quant.uniform<i8:f32, 0.5:200>", "stablehlo", "unsupported", "output"),
    ("quantize", "tensor<4xf32>", I8, "tosa", "unsupported", "profile"),
    ("dequantize", "tensor<4xi8>", "f32", "onnx", "unsupported", "input"),
    ("dequantize", f"tensor<1x3x{PER_AXIS}>", "f32", "onnx", "type_does_not_fit", "input"),
    ("dequantize", "tensor<4x!quant.uniform<i16:f32, 0.5:1>>", "f32", "litert", "unsupported", "input"),
    ("dequantize", "tensor<4x!quant.uniform<f8E5M2:f32, 0.5:1>>", "f32", "onnx", "unsupported", "input"),
    ("dequantize", f"tensor<4x{I8}>", "f16", "onnx", "unsupported", "output"),
    ("dequantize", f"tensor<4x{I8}>", "i8", "onnx", "unsupported", "output"),
    ("dequantize", f"tensor<4x{I8}>", "tensor<3xf32>", "onnx", "type_does_not_fit", "output"),
    ("requantize", "tensor<4xf32>", I8, "litert", "unsupported", "input"),
    ("requantize", f"tensor<4x{I8}>", "f32", "litert", "unsupported", "output"),
    ("requantize", "tensor<4x!quant.uniform<i16:f32, 0.5:1>>", "!quant.uniform<i16:f32, 0.5>", "litert",
     "unsupported", "input"),
    ("requantize", "tensor<4x!quant.uniform<i16:f32, 0.5>>", "!quant.uniform<i16:f32, 0.5:1>", "litert",
     "unsupported", "output"),
    ("requantize", "tensor<4x!quant.uniform<i16:f32, 0.5:1>>", I8, "tosa", "unsupported", "input"),
    ("requantize", f"tensor<4x{I8}>", "!quant.uniform<i16:f32, 0.5:1>", "tosa", "unsupported", "output"),
    ("requantize", f"tensor<4x{I8}>", I8, "mlir", "unsupported", "profile"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "input_type", "output_type", "profile", "code", "field"), CASES)
def test_types(
    client: httpx.Client, operation: str, input_type: str, output_type: str, profile: str, code: str, field: str
) -> None:
    tensor = {"type": input_type, "values": [0, 0, 0, 0]}
    reply = client.post(f"/v1/{operation}", json={"input": tensor, "output_type": output_type, "profile": profile})
    refused(reply, 422, code, {"input": "/input/type", "output": "/output_type", "profile": "/profile"}[field])
    if "?" in input_type or "*" in input_type:
        return  # the .npy has a shape of its own
    shape = [int(size) for size in re.findall(r"(\d+)x", input_type.split("!")[0])]
    file = npy(np.zeros(shape, np.float32 if operation == "quantize" else np.int8))
    query = {"input_type": input_type, "output_type": output_type, "profile": profile}
    reply = client.post(f"/v1/npy/{operation}", params=query, content=file)
    refused(reply, 422, code, {"input": "/input_type", "output": "/output_type", "profile": "/profile"}[field])


ONE = {"type": "tensor<1xf32>", "values": [1]}
FILE = npy(np.ones(1, np.float32))


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
def test_casts(client: httpx.Client, output_type: str, profile: str, options: dict[str, Any], pointer: str) -> None:
    body = {"input": ONE, "output_type": output_type, "profile": profile, **options}
    refused(client.post("/v1/quantize", json=body), 422, "unsupported", pointer)
    query = {"output_type": output_type, "profile": profile, **{name: str(v).lower() for name, v in options.items()}}
    refused(client.post("/v1/npy/quantize", params=query, content=FILE), 422, "unsupported", pointer)


@pytest.mark.parametrize(
    ("name", "in_json", "in_query", "code"),
    [
        ("saturate", (1, "true", None), ("1", "True", ""), "request_invalid"),
        ("rounding", ("up", "double"), ("up",), "unknown_name"),
        ("nan", ("keep",), ("keep",), "request_invalid"),
        ("seed", (-1,), ("x",), "request_invalid"),
        ("packing", ("loose",), ("loose",), "request_invalid"),
    ],
)
def test_options(client: httpx.Client, name: str, in_json: Any, in_query: Any, code: str) -> None:
    types = {"output_type": "f8E5M2" if name == "saturate" else I8, "profile": "onnx"}
    for value in in_json:
        reply = client.post("/v1/quantize", json={"input": ONE, **types, name: value})
        refused(reply, 422, code, f"/{name}")
    for text in in_query:
        reply = client.post("/v1/npy/quantize", params={**types, name: text}, content=FILE)
        refused(reply, 422, code, f"/{name}")


def test_values_are_not_packed(client: httpx.Client) -> None:
    body = {"input": {"type": "tensor<2x!quant.uniform<i4:f32, 0.5>>", "values": [1, 2]}, "packing": "dense"}
    refused(client.post("/v1/dequantize", json=body), 422, "request_invalid", "/packing")


def test_spare_bits_and_missing_bytes(client: httpx.Client) -> None:
    tensor = {"type": "tensor<3x!quant.uniform<i12:f32, 0.25>>"}
    for data in (bytes(4), bytes(6), bytes([0, 0, 0, 0, 0x10])):
        body = {"input": {**tensor, "data": encoded(data)}, "profile": "mlir", "packing": "dense"}
        refused(client.post("/v1/dequantize", json=body), 400, "tensor_data")


def test_an_element_without_a_result_is_named(client: httpx.Client) -> None:
    body = {"input": {"type": "tensor<2xf32>", "values": [1.0, "NaN"]}, "output_type": I8, "nan": "error"}
    assert refused(client.post("/v1/quantize", json=body), 422, "precondition_failed")["index"] == 1


I32 = {"type": "tensor<2x!quant.uniform<i32:f32, 0.5>>", "values": [1, 2]}
PLAIN = {"type": "tensor<2xi64>", "values": [1, 2]}
I4 = {"type": "tensor<2x!quant.uniform<i4:f32, 0.5>>", "values": [1, 2]}


def to_i8(source: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"input": source, "output_type": "!quant.uniform<i8:f32, 1.0>", **more}


def pair(multiplier: int, shift: int = 0) -> list[dict[str, int]]:
    return [{"multiplier": multiplier, "shift": shift}]


HALF = pair(1 << 30)


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (to_i8(PLAIN), "unsupported", "/input/type"),
        ({"input": I32, "output_type": "i8"}, "unsupported", "/output_type"),
        (to_i8(PLAIN, multipliers=HALF * 2), "type_does_not_fit", "/multipliers"),
        (to_i8(PLAIN, multipliers=HALF * 3, axis=0), "type_does_not_fit", "/multipliers"),
        (to_i8(PLAIN, multipliers=HALF * 2, axis=1), "type_does_not_fit", "/axis"),
        (to_i8(I32, axis=0), "unsupported", "/axis"),
        (to_i8(I32, scheme="nosuch"), "unknown_name", "/scheme"),
        (to_i8(I32, scheme=""), "unknown_name", "/scheme"),
        (to_i8(I32, profile="mlir"), "unsupported", "/profile"),
        (to_i8(I32, profile="onednn", multipliers=HALF), "unsupported", "/profile"),
        (to_i8(I32, multipliers=[]), "type_does_not_fit", "/multipliers"),
        (to_i8(I32, multipliers=pair(2**24), scheme="onnxruntime"), "parameter_invalid", "/multipliers/0/multiplier"),
        (to_i8(I32, multipliers=pair(3, 172), scheme="fbgemm"), "parameter_invalid", "/multipliers/0/multiplier"),
        (to_i8(I32, multipliers=pair(1, 8), scheme="litert_int64"), "parameter_invalid", "/multipliers/0/shift"),
        (to_i8(I32, multipliers=pair(2**53 + 1)), "request_invalid", "/multipliers/0/multiplier"),
        (to_i8(I32, multipliers=HALF, axis=-1), "request_invalid", "/axis"),
        (to_i8(I4, packing="dense", scheme="litert"), "request_invalid", "/packing"),
        (
            to_i8({"type": f"tensor<1x2x{PER_AXIS}>", "values": [0, 0]}, multipliers=HALF * 3),
            "type_does_not_fit",
            "/multipliers",
        ),
    ],
)
def test_requantize(client: httpx.Client, body: dict[str, Any], code: str, pointer: str) -> None:
    refused(client.post("/v1/requantize", json=body), 422, code, pointer)


def test_the_requirement_that_failed_is_named(client: httpx.Client) -> None:
    body = {"input": {"type": "tensor<3xi64>", "values": [0, 1, 2**20]}, "output_type": "i32", "scheme": "tosa"}
    reply = client.post("/v1/requantize", json=body | {"multipliers": pair(1 << 30, 20)})
    found = refused(reply, 422, "precondition_failed")
    assert (found["index"], "2^(shift-1)" in found["detail"]) == (2, True)


@pytest.mark.parametrize(
    "text", ["", ",", "1", "1:", ":1", "1:1,", "1.0:1", "1:1 ", "+1:1", "9007199254740993:0", "1:2049", "١:1"]
)
def test_multipliers_in_a_query(client: httpx.Client, text: str) -> None:
    query = {"output_type": "i8", "multipliers": text}
    reply = client.post("/v1/npy/requantize", params=query, content=npy(np.zeros(2, np.int32)))
    refused(reply, 422, reply.json()["code"], "/multipliers")


@pytest.mark.parametrize(
    ("input_type", "given", "pointers"),
    [
        ("!quant.uniform<i32:f32, 0.01>", (1 << 30, -99), ("/multipliers/0/shift", "/inputs/2")),
        ("!quant.uniform<i32:f32, 0.01>", (1 << 40, 0), ("/multipliers/0/multiplier", "/inputs/1")),
        ("!quant.uniform<i32:f32, 1.0e30>", None, (None, None)),
    ],
)
def test_an_error_about_multipliers_points_at_them_if_there_are_any(
    client: httpx.Client, input_type: str, given: tuple[int, int] | None, pointers: tuple[str | None, str | None]
) -> None:
    x = np.zeros(4, np.int32)
    types = {"input_type": input_type, "output_type": I8}
    body: dict[str, Any] = {"input": {"type": f"tensor<4x{input_type}>", "values": x.tolist()}, "output_type": I8}
    query, inputs = dict(types), [Input("x", x)]
    if given is not None:
        body["multipliers"] = pair(*given)
        query["multipliers"] = f"{given[0]}:{given[1]}"
        inputs += [Input("multiplier", np.array([given[0]])), Input("shift", np.array([given[1]], np.int32))]
    for reply, pointer in (
        (client.post("/v1/requantize", json=body), pointers[0]),
        (client.post("/v1/npy/requantize", params=query, content=npy(x)), pointers[0]),
        (infer(client, "requantize", inputs, parameters=types), pointers[1]),
    ):
        found = refused(reply, 422, "parameter_invalid", pointer)
        assert ("errors" in found) == (pointer is not None)
