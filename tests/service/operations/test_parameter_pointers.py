"""An error about multipliers points at them in every protocol, and only if the request has them."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import numpy as np
import pytest

from tests.support.asgi import post, ready_app

I8, HUGE = "!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i32:f32, 1.0e30>"
X = np.zeros(4, "<i4")


def refusal(path: str, body: bytes, query: dict[str, str]) -> dict[str, Any]:
    reply = asyncio.run(post(ready_app(), path, query, [body], declared=len(body)))
    found: dict[str, Any] = json.loads(reply.body)
    assert (reply.status, found["code"]) == (422, "parameter_invalid")
    return found


def refusals(input_type: str, pair: tuple[int, int] | None) -> list[str | None]:
    """Return where each protocol points."""
    file = io.BytesIO()
    np.save(file, X)
    query = {"input_type": input_type, "output_type": I8}
    tensor = {"type": f"tensor<4x{input_type}>", "values": X.tolist()}
    body: dict[str, Any] = {"input": tensor, "output_type": I8}
    inputs = [{"name": "x", "datatype": "INT32", "shape": [4], "data": X.tolist()}]
    if pair is not None:
        query["multipliers"] = f"{pair[0]}:{pair[1]}"
        body["multipliers"] = [{"multiplier": pair[0], "shift": pair[1]}]
        inputs += [
            {"name": "multiplier", "datatype": "INT64", "shape": [1], "data": [pair[0]]},
            {"name": "shift", "datatype": "INT32", "shape": [1], "data": [pair[1]]},
        ]
    infer = {"inputs": inputs, "parameters": {"input_type": input_type, "output_type": I8}}
    found = [
        refusal("/v1/requantize", json.dumps(body).encode(), {}),
        refusal("/v1/npy/requantize", file.getvalue(), query),
        refusal("/v2/models/requantize/infer", json.dumps(infer).encode(), {}),
    ]
    return [each["errors"][0]["pointer"] if "errors" in each else None for each in found]


@pytest.mark.parametrize(("pair", "field", "index"), [((1 << 30, -99), "shift", 2), ((1 << 40, 0), "multiplier", 1)])
def test_given_multipliers(pair: tuple[int, int], field: str, index: int) -> None:
    expected = [f"/multipliers/0/{field}", f"/multipliers/0/{field}", f"/inputs/{index}"]
    assert refusals("!quant.uniform<i32:f32, 0.01>", pair) == expected


def test_derived_multipliers() -> None:
    assert refusals(HUGE, None) == [None, None, None]
