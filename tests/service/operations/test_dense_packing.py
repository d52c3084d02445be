"""`packing: dense` in every protocol, for storages of every width: the same numbers as unpacked, as one bit string."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.core.plan.test_packing import digits, dtype_of
from tests.support.oip_wire import Input, infer, read

COUNT = 1001
STORAGES = ["i4", "u4", "i7", "i9", "u9", "i12", "u12", "i15", "i17", "u24", "i24", "i31", "u31"]


def quantized(storage: str) -> str:
    return f"!quant.uniform<{storage}:f32, 0.25>"


def width_of(storage: str) -> int:
    return int(storage[1:])


def encoded(array: NDArray[Any] | bytes) -> str:
    return base64.b64encode(array if isinstance(array, bytes) else array.tobytes()).decode()


def saved(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def json_call(client: httpx.Client, path: str, type_: str, data: str, **fields: Any) -> bytes:
    reply = client.post(path, json={"input": {"type": type_, "data": data}, **fields})
    assert reply.status_code == 200, reply.text
    return base64.b64decode(reply.json()["output"]["data"])


def npy_call(client: httpx.Client, path: str, array: NDArray[Any], **query: str) -> NDArray[Any]:
    reply = client.post(path, params=query, content=saved(array))
    assert reply.status_code == 200, reply.text
    loaded: NDArray[Any] = np.load(io.BytesIO(reply.content))
    return loaded


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def drawn(storage: str, count: int) -> NDArray[Any]:
    """Numbers of a storage that f32 has, both ends of the range among them or near."""
    width, signed = width_of(storage), storage[0] == "i"
    high = (1 << (width - signed)) - 1
    step = 1 << max(0, width - 24)
    found = np.random.default_rng(width).integers(-high - 1 if signed else 0, high + 1, count)
    found[:2] = -high - 1 if signed else 0, high
    return (found // step * step).astype(dtype_of(width, signed=signed))


@pytest.fixture
def numbers(storage: str) -> NDArray[Any]:
    return drawn(storage, COUNT)


def test_quantize(client: httpx.Client, storage: str, numbers: NDArray[Any]) -> None:
    """Multiples of the scale are their numbers in every profile; `mlir` is the one that takes every width."""
    x = numbers.astype(np.float32) * np.float32(0.25)
    dense, type_ = digits(numbers.tolist(), width_of(storage)), quantized(storage)
    asked = {"output_type": type_, "profile": "mlir", "packing": "dense"}
    assert json_call(client, "/v1/quantize", f"tensor<{COUNT}xf32>", encoded(x), **asked) == dense
    assert npy_call(client, "/v1/npy/quantize", x, **asked).tobytes() == dense
    for binary in (False, True):
        members = {"parameters": {**asked, "binary_data_output": binary}}
        found = read(infer(client, "quantize", [Input("x", x)], **members)).outputs["y"]
        assert found.dtype == np.uint8
        assert found.tobytes() == dense


def test_dequantize(client: httpx.Client, storage: str, numbers: NDArray[Any]) -> None:
    dense = np.frombuffer(digits(numbers.tolist(), width_of(storage)), np.uint8)
    tensor = f"tensor<{COUNT}x{quantized(storage)}>"
    expected = (numbers.astype(np.float32) * np.float32(0.25)).tobytes()
    asked = {"input_type": tensor, "profile": "mlir", "packing": "dense"}
    fields = {"profile": "mlir", "packing": "dense"}
    assert json_call(client, "/v1/dequantize", tensor, encoded(dense), **fields) == expected
    assert npy_call(client, "/v1/npy/dequantize", dense, **asked).tobytes() == expected
    assert read(infer(client, "dequantize", [Input("x", dense)], parameters=asked)).outputs["y"].tobytes() == expected


@pytest.mark.parametrize(("width", "scheme", "shift"), [(12, "tosa", 38), (24, "tosa", 50), (48, "litert_int64", -30)])
def test_accumulators(client: httpx.Client, width: int, scheme: str, shift: int) -> None:
    reach = 1 << min(width - 1, 34)
    numbers = np.random.default_rng(width).integers(-reach, reach, COUNT).astype(dtype_of(width, signed=True))
    dense, tensor = np.frombuffer(digits(numbers.tolist(), width), np.uint8), f"tensor<{COUNT}xi{width}>"
    rule: dict[str, Any] = {"output_type": "!quant.uniform<i4:f32, 0.5>", "scheme": scheme}
    pairs = [{"multiplier": 1 << 30, "shift": shift}]
    plain = json_call(client, "/v1/requantize", tensor, encoded(numbers), multipliers=pairs, **rule)
    assert len(set(plain)) > 8
    expected = digits(np.frombuffer(plain, np.int8).tolist(), 4)
    fields = {"multipliers": pairs, "packing": "dense", **rule}
    assert json_call(client, "/v1/requantize", tensor, encoded(dense), **fields) == expected
    query = {"input_type": tensor, "multipliers": f"{1 << 30}:{shift}", "packing": "dense", **rule}
    assert npy_call(client, "/v1/npy/requantize", dense, **query).tobytes() == expected


@pytest.mark.parametrize(("storage", "width"), [("i12", 12), ("u24", 24)])
def test_a_long_tensor_in_pieces(client: httpx.Client, storage: str, width: int) -> None:
    plain = drawn(storage, 1_000_003)
    x = plain.astype(np.float32) * np.float32(0.25)
    # Three bytes for two numbers of 12 bits, and for one of 24: what they are by their bytes alone.
    pairs = np.append(plain, np.zeros(1, plain.dtype)).astype(np.uint64) & np.uint64((1 << width) - 1)
    if width == 12:
        words = pairs[::2] | pairs[1::2] << np.uint64(12)
        expected = words.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()[: -(-x.size * 3 // 2)]
    else:
        expected = pairs[:-1].astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    dense = npy_call(client, "/v1/npy/quantize", x, output_type=quantized(storage), profile="mlir", packing="dense")
    assert dense.tobytes() == expected
    tensor = f"tensor<{x.size}x{quantized(storage)}>"
    back = npy_call(client, "/v1/npy/dequantize", dense, input_type=tensor, profile="mlir", packing="dense")
    assert back.tobytes() == x.tobytes()


def test_spare_bits_and_missing_bytes_are_refused(client: httpx.Client) -> None:
    tensor = f"tensor<3x{quantized('i12')}>"
    for data in (bytes(4), bytes(6), bytes([0, 0, 0, 0, 0x10])):
        reply = client.post(
            "/v1/dequantize",
            json={"input": {"type": tensor, "data": encoded(data)}, "profile": "mlir", "packing": "dense"},
        )
        assert (reply.status_code, reply.json()["code"]) == (400, "tensor_data")
