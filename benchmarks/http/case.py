"""One exchange that every server is asked for: f32 in, i8 out, with the bits that the reply has to have."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from requant.convert.quantize import plan_quantize
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Plan

HEADER_BYTES = 128
OUTPUT_TYPE = "!quant.uniform<i8:f32, 0.05:3>"
PROFILE = "onnx"
PARAMETERS = {"output_type": OUTPUT_TYPE, "profile": PROFILE}


@lru_cache(maxsize=16)
def plan_for(elements: int) -> Plan:
    """Return the plan that all servers run, ours included."""
    input_type = parse_type(f"tensor<{elements}xf32>")
    assert isinstance(input_type, TensorType)
    return plan_quantize(input_type, parse_type(OUTPUT_TYPE), PROFILE)


def quantized(source: NDArray[Any]) -> NDArray[Any]:
    """Return the stored numbers of a flat tensor."""
    plan = plan_for(source.size)
    target = np.empty(plan.elements, plan.output_dtype)
    plan.run(source, target)
    return target


@dataclass(frozen=True, slots=True)
class Case:
    """A tensor as a `.npy`, and its stored numbers as another."""

    npy: bytes
    expected: bytes

    @classmethod
    def of(cls, size: int) -> Case:
        """Return a case whose request body has `size` bytes."""
        source = np.random.default_rng(1).normal(0, 3, (size - HEADER_BYTES) // 4).astype(np.float32)
        return cls(_npy(source), _npy(quantized(source)))

    def as_npy(self, path: str) -> bytes:
        """Return the request of a server that takes the file as it is."""
        return post(path, "application/octet-stream", self.npy)

    def as_json(self, path: str) -> bytes:
        """Return the request to our own JSON face."""
        body = {"input": {"type": f"tensor<{self.elements}xf32>", "data": self._data()}, **PARAMETERS}
        return post(path, "application/json", json.dumps(body).encode())

    def as_inference(self, path: str, parameters: Mapping[str, str] = PARAMETERS) -> bytes:
        """Return the request of the Open Inference Protocol with binary tensors, with the parameters of our model."""
        tensor = {
            "name": "x",
            "shape": [self.elements],
            "datatype": "FP32",
            "parameters": {"binary_data_size": 4 * self.elements},
        }
        head = json.dumps({"inputs": [tensor], "parameters": {**parameters, "binary_data_output": True}}).encode()
        length = f"Inference-Header-Content-Length: {len(head)}\r\n"
        return post(path, "application/octet-stream", head + self.npy[HEADER_BYTES:], length)

    def as_v2(self, path: str) -> bytes:
        """Return the request of the Open Inference Protocol with base64, which MLServer reads faster than numbers."""
        tensor = {
            "name": "x",
            "shape": [1],
            "datatype": "BYTES",
            "parameters": {"content_type": "base64"},
            "data": [self._data()],
        }
        return post(path, "application/json", json.dumps({"inputs": [tensor]}).encode())

    @property
    def elements(self) -> int:
        """The number of elements."""
        return len(self.expected) - HEADER_BYTES

    def check_npy(self, body: bytes) -> None:
        """Raise AssertionError unless the reply is the expected file."""
        assert body == self.expected, "the bits differ"

    def check_json(self, body: bytes) -> None:
        """Raise AssertionError unless the reply of our JSON face holds the expected numbers."""
        assert base64.b64decode(json.loads(body)["output"]["data"]) == self.expected[HEADER_BYTES:], "the bits differ"

    def check_v2(self, body: bytes) -> None:
        """Raise AssertionError unless the reply of an inference server holds the expected numbers."""
        (data,) = json.loads(body)["outputs"][0]["data"]
        assert base64.b64decode(data) == self.expected[HEADER_BYTES:], "the bits differ"

    def check_inference(self, body: bytes) -> None:
        """Raise AssertionError unless the reply with a binary tensor ends with the expected numbers."""
        assert body[-self.elements :] == self.expected[HEADER_BYTES:], "the bits differ"

    def check_length(self, body: bytes) -> None:
        """Raise AssertionError unless the reply is as long as the file: more cannot be asked without a kernel."""
        assert len(body) == len(self.expected), "the length differs"

    def _data(self) -> str:
        return base64.b64encode(self.npy[HEADER_BYTES:]).decode()


def npy_path() -> str:
    """Return path and query of our `.npy` face."""
    return f"/v1/npy/quantize?output_type={quote(OUTPUT_TYPE)}&profile={PROFILE}"


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def post(path: str, media_type: str, body: bytes, more: str = "") -> bytes:
    """Return a request; `more` are whole header lines."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{more}\r\n".encode() + body
