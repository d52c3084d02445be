"""numpy does not warn of infinities and NaNs, which the rules define: nothing of that gets into the log."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.asgi import post, ready_app

ROW = np.array([[-1.0, 0.5], [3.0, np.inf]], np.float32)
ZEROS = np.zeros(2, np.int32)


def tensor(array: NDArray[Any], element: str = "") -> dict[str, Any]:
    """A tensor in JSON, its bytes as data: values have no signalling NaNs."""
    shape = "".join(f"{size}x" for size in array.shape)
    return {
        "type": f"tensor<{shape}{element or f'f{8 * array.itemsize}'}>",
        "data": base64.b64encode(array.tobytes()).decode(),
    }


SIGNALLING = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32)
CASES = [
    (
        "/v1/torch/quantized_decomposed.choose_qparams_per_token_asymmetric",
        {"input": np.array([[0xFF800000, 0x7F800001], [1, 0]], np.uint32).view(np.float32)},
        {},
    ),
    (
        "/v1/torch/quantized_decomposed.convert_element_type.no_fuse",
        {"input": SIGNALLING},
        {"dtype": "int8"},
    ),
    (
        "/v1/torch/fake_quantize_per_channel_affine",
        {"input": ROW, "scales": np.array([1e-45, 1.0], np.float32), "zero_points": ZEROS},
        {"axis": 0, "quant_min": 0, "quant_max": 255},
    ),
    (
        "/v1/torch/quantize_per_channel",
        {"input": ROW, "scales": np.array([1e300, 1.0]), "zero_points": ZEROS},
        {"axis": 1, "dtype": "qint8"},
    ),
    (
        "/v1/onednn/DynamicDequantize",
        {"src": np.array([[1, 2]], np.int8), "scales": SIGNALLING[:1]},
        {"qtype": "per_tensor"},
    ),
]


@pytest.mark.parametrize(("path", "inputs", "attributes"), CASES)
def test_numpy_does_not_warn_of_what_the_rules_define(
    path: str, inputs: dict[str, NDArray[Any]], attributes: dict[str, Any]
) -> None:
    names = {"|i1": "i8", "<i4": "i32"}
    given = {name: tensor(array, names.get(array.dtype.str, "")) for name, array in inputs.items()}
    body = json.dumps({"inputs": given, **({"attributes": attributes} if attributes else {})}).encode()
    # Warnings are errors in tests, and 500 here.
    reply = asyncio.run(post(ready_app(), path, {}, [body], declared=len(body)))
    assert reply.status in (200, 400, 422), reply.body
