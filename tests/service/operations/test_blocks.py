"""Block formats over HTTP: every format there and back, with the bits of core."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from requant.convert.blocks.block_tensor import BlockFormat, quantize_blocks

FORMATS = list(BlockFormat)


def tensor(values: np.ndarray, element: str) -> dict[str, Any]:
    shape = "x".join(map(str, values.shape))
    return {"type": f"tensor<{shape}x{element}>", "data": base64.b64encode(values.tobytes()).decode()}


@pytest.mark.parametrize("format_", FORMATS)
def test_there_and_back(client: httpx.Client, format_: BlockFormat) -> None:
    values = np.random.default_rng(3).normal(0, 2, (4, 64)).astype(np.float32)
    reply = client.post("/v1/blocks/quantize", json={"input": tensor(values, "f32"), "format": format_})
    assert reply.status_code == 200, reply.text
    quantized = reply.json()
    expected = quantize_blocks(values, format_)
    for name in ("elements", "scales", "blocks"):
        part = getattr(expected, name)
        assert (name in quantized) == (part is not None)
        if part is not None:
            assert base64.b64decode(quantized[name]["data"]) == part.data.tobytes()
    back = client.post("/v1/blocks/dequantize", json={**quantized, "output_type": "tensor<4x64xf32>"})
    assert back.status_code == 200, back.text
    real = np.frombuffer(base64.b64decode(back.json()["output"]["data"]), "<f4").reshape(4, 64)
    # The coarsest of them has three significant bits and a block's scale that is a power of two.
    assert np.abs(real - values).max() < 0.5 * np.abs(values).max()


@pytest.mark.parametrize("in_values", [("elements",), ("scales",), ("elements", "scales"), ()])
def test_any_part_in_values_asks_for_values(client: httpx.Client, in_values: tuple[str, ...]) -> None:
    parts = {"elements": ("1x32xf4E2M1FN", [1] * 32), "scales": ("1x1xf8E8M0FNU", [127])}
    body = {
        name: {"type": f"tensor<{type_}>"}
        | ({"values": codes} if name in in_values else {"data": base64.b64encode(bytes(codes)).decode()})
        for name, (type_, codes) in parts.items()
    }
    options = {"format": "mxfp4_e2m1", "output_type": "tensor<1x32xf32>"}
    output = client.post("/v1/blocks/dequantize", json={**body, **options}).json()["output"]
    assert ("values" in output) == bool(in_values)


def test_sixteen_bit_floats_and_values(client: httpx.Client) -> None:
    row = {"type": "tensor<1x32xf16>", "values": [0.5 * step for step in range(-16, 16)]}
    reply = client.post("/v1/blocks/quantize", json={"input": row, "format": "mxint8"}).json()
    assert reply["scales"] == {"type": "tensor<1x1xf8E8M0FNU>", "values": [130]}
    assert reply["elements"]["values"][0] == -64


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"format": "mxfp9"}, 422, "request_invalid"),
        ({"input": {"type": "tensor<1x31xf32>", "values": [0.0] * 31}}, 422, "type_does_not_fit"),
        ({"input": {"type": "tensor<1x32xf64>", "values": [0.0] * 32}}, 422, "unsupported"),
        ({"input": {"type": "tensor<1x32xi8>", "values": [0] * 32}}, 422, "unsupported"),
        ({"format": "nvfp4", "global_scale": "one"}, 422, "parameter_invalid"),
        ({"format": "nvfp4", "global_scale": "0"}, 422, "parameter_invalid"),
        ({"format": "Q8_0", "input": {"type": "tensor<32xf32>", "values": ["NaN"] * 32}}, 422, "precondition_failed"),
    ],
)
def test_refusals(client: httpx.Client, change: dict[str, Any], status: int, code: str) -> None:
    body = {"input": {"type": "tensor<1x32xf32>", "values": [1.0] * 32}, "format": "mxfp8_e4m3", **change}
    reply = client.post("/v1/blocks/quantize", json=body)
    assert (reply.status_code, reply.json()["code"]) == (status, code)


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
    reply = client.post("/v1/blocks/dequantize", json=body)
    assert (reply.status_code, reply.json()["code"]) == (422, code)
