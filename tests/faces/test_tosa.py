"""Every RESCALE of the reference model's vectors over HTTP, as base64 and as numbers: same bits, same refusals."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.cases import check_each, sample
from tests.support.rescale_case import DTYPES, body, stored, tensor_type
from tests.vector_cases.rescale import RescaleVector, rescales


@pytest.mark.parametrize("form", ["data", "values"])
def test_vectors(client: httpx.Client, form: str) -> None:
    check_each(sample(rescales(), 100), lambda vector: check_vector(client, vector, form))


def check_vector(client: httpx.Client, vector: RescaleVector, form: str) -> None:
    case = vector.case
    response = client.post("/v1/tosa/rescale", json=body(case, stored(vector.values, case.in_t), form))
    if vector.error is not None:
        assert (response.status_code, response.json()["code"]) == (422, vector.error), response.text
        return
    assert response.status_code == 200, response.text
    output = response.json()["output"]
    assert output.keys() == {"type", form}
    assert output["type"] == tensor_type(case.shape, case.out_t)
    expected = stored(vector.output, case.out_t)
    if form == "data":
        assert base64.b64decode(output["data"]) == expected.tobytes()
    else:
        assert output["values"] == expected.tolist()


def test_large_tensors_and_many_channels(client: httpx.Client) -> None:
    """As many channels as there may be, and more elements than fit one piece, against exact integers of numpy."""
    rng = np.random.default_rng(12)
    channels = 65536
    x = rng.integers(-(2**31), 2**31, (4, channels), np.int64)
    m, shift = rng.integers(2**30, 2**31, channels), rng.integers(40, 50, channels)
    request: dict[str, Any] = {
        "input": {"type": f"tensor<4x{channels}xi32>", "data": base64.b64encode(x.astype("<i4").tobytes()).decode()},
        "output_type": "i16",
        "multiplier": m.tolist(),
        "shift": shift.tolist(),
        "per_channel": True,
    }
    response = client.post("/v1/tosa/rescale", json=request)
    assert response.status_code == 200, response.text
    half = np.int64(1) << (shift - 1)
    expected = np.clip((x * m + half) >> shift, -32768, 32767).astype(DTYPES["i16"])
    assert base64.b64decode(response.json()["output"]["data"]) == expected.tobytes()
