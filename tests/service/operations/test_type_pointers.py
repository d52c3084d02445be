"""A type that does not fit or is not taken: the problem points at the field that named it, in both faces."""

from __future__ import annotations

import io
import re
from typing import Any

import httpx
import numpy as np
import pytest

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


def check(reply: httpx.Response, code: str, pointer: str) -> None:
    problem: dict[str, Any] = reply.json()
    assert (reply.status_code, problem["code"]) == (422, code), reply.text
    assert [(error["pointer"], error["code"]) for error in problem["errors"]] == [(pointer, code)]


@pytest.mark.parametrize(("operation", "input_type", "output_type", "profile", "code", "field"), CASES)
def test_json_face(
    client: httpx.Client, operation: str, input_type: str, output_type: str, profile: str, code: str, field: str
) -> None:
    tensor = {"type": input_type, "values": [0, 0, 0, 0]}
    body = {"input": tensor, "output_type": output_type, "profile": profile}
    pointer = {"input": "/input/type", "output": "/output_type", "profile": "/profile"}[field]
    check(client.post(f"/v1/{operation}", json=body), code, pointer)


@pytest.mark.parametrize(("operation", "input_type", "output_type", "profile", "code", "field"), CASES)
def test_npy_face(
    client: httpx.Client, operation: str, input_type: str, output_type: str, profile: str, code: str, field: str
) -> None:
    if "?" in input_type or "*" in input_type:
        return  # the .npy has a shape of its own
    shape = [int(size) for size in re.findall(r"(\d+)x", input_type.split("!")[0])]
    file = io.BytesIO()
    np.save(file, np.zeros(shape, np.float32 if operation == "quantize" else np.int8))
    query = {"input_type": input_type, "output_type": output_type, "profile": profile}
    pointer = {"input": "/input_type", "output": "/output_type", "profile": "/profile"}[field]
    check(client.post(f"/v1/npy/{operation}", params=query, content=file.getvalue()), code, pointer)


def test_multipliers_that_are_too_few(client: httpx.Client) -> None:
    body = {
        "input": {"type": f"tensor<1x2x{PER_AXIS}>", "values": [0, 0]},
        "output_type": I8,
        "multipliers": [{"multiplier": 1 << 30, "shift": 0}] * 3,
    }
    check(client.post("/v1/requantize", json=body), "type_does_not_fit", "/multipliers")
