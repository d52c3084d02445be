"""Binary tensors are converted while they arrive: a response does not depend on where the body is cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from requant_service.operations import conversion_run
from tests.support.asgi import Reply, post, ready_app

I8 = "!quant.uniform<i8:f32, 0.5:3>"
RNG = np.random.default_rng(4)
REAL = RNG.normal(0, 9, 43).astype("<f4")
STORED = RNG.integers(-128, 128, 43).astype(np.int8)
SUMS = RNG.integers(-9999, 9999, 43).astype("<i4")
SCALE = np.array([0.5], "<f4")

Tensor = tuple[str, str, Any]
CASES: dict[str, tuple[str, list[Tensor], dict[str, Any]]] = {
    "quantize": ("quantize", [("x", "FP32", REAL)], {"output_type": I8}),
    "packed": ("quantize", [("x", "FP32", REAL)], {"output_type": "!quant.uniform<i4:f32, 0.5>", "packing": "dense"}),
    "with the error": ("quantize", [("x", "FP32", REAL)], {"output_type": I8, "error": True}),
    "dequantize": ("dequantize", [("x", "INT8", STORED)], {"input_type": I8}),
    "requantize": (
        "requantize",
        [("x", "INT32", SUMS)],
        {"input_type": "!quant.uniform<i32:f32, 0.01>", "output_type": I8},
    ),
    "scale first": (
        "quantize",
        [("scale", "FP32", SCALE), ("x", "FP32", REAL)],
        {"storage_type": "i8"},
    ),
    "scale last": (
        "quantize",
        [("x", "FP32", REAL), ("scale", "FP32", SCALE)],
        {"storage_type": "i8"},
    ),
}


def body_of(name: str) -> tuple[str, bytes, int]:
    """Return the path of a case, its body, and the length of the JSON in it."""
    model, tensors, parameters = CASES[name]
    inputs = [
        {"name": each, "datatype": datatype, "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
        for each, datatype, x in tensors
    ]
    text = json.dumps({"inputs": inputs, "parameters": {**parameters, "binary_data_output": True}}).encode()
    return f"/v2/models/{model}/infer", text + b"".join(x.tobytes() for *_, x in tensors), len(text)


def send(name: str, places: list[int], *, chunked: bool = False, more: bytes = b"", kept: bool = True) -> Reply:
    path, body, length = body_of(name)
    body += more
    chunks = [body[start:stop] for start, stop in zip([0, *places], [*places, len(body)], strict=True)]
    headers = [(b"inference-header-content-length", str(length).encode()), (b"x-request-id", b"an-id")]
    app = ready_app() if kept else ready_app(plan_cache_bytes=0)
    declared = None if chunked else len(body)
    return asyncio.run(post(app, path, {}, chunks, declared=declared, headers=headers))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat small tensors as large ones: pieces of 8 elements, and inputs kept whenever they are smaller."""
    monkeypatch.setattr(conversion_run, "_PIECE", 8)
    monkeypatch.setattr(conversion_run, "_SMALL_INPUT", 0)
    monkeypatch.setattr(conversion_run, "_SMALL_OUTPUT", 0)


@pytest.fixture(scope="module")
def whole() -> dict[str, Reply]:
    return {name: send(name, []) for name in CASES}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_pieces")
def test_any_cut(name: str, whole: dict[str, Reply]) -> None:
    assert whole[name].status == 200, whole[name].body
    _, body, length = body_of(name)
    for place in range(length - 2, len(body), 11):
        found = send(name, [place], chunked=place % 2 == 0)
        assert (found.status, found.body) == (200, whole[name].body)
    found = send(name, list(range(1, len(body))), kept=False)
    assert (found.status, found.body) == (200, whole[name].body)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.usefixtures("small_pieces")
def test_a_longer_body_is_refused(name: str, chunked: bool) -> None:
    found = send(name, [300], chunked=chunked, more=b"1")
    assert (found.status, json.loads(found.body)["code"]) == (400, "request_malformed")


def test_the_same_json_is_read_and_planned_once() -> None:
    app = ready_app()
    path, body, length = body_of("quantize")
    headers = [(b"inference-header-content-length", str(length).encode())]

    async def run() -> None:
        replies = []
        for data in (body, body, body[:length] + bytes(len(body) - length), body):
            reply = await post(app, path, {}, [data], declared=len(data), headers=headers)
            assert reply.status == 200
            assert len(app.state.runtime.decoded) == len(app.state.runtime.planned) == 1
            replies.append(reply.body)
        assert replies[0] == replies[1] == replies[3] != replies[2]

    asyncio.run(run())
