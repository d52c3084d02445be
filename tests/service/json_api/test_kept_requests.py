"""What JSON requests mean apart from their data is kept: the replies are those of a service that keeps nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from requant_service.app import Application
from tests.support.asgi import Reply, post, ready_app

_I8 = "!quant.uniform<i8:f32, 0.5:3>"
_REQUEST_ID = re.compile(rb'"request_id":"[0-9a-f]{32}"')


def _tensor(type_: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"type": type_, "data": base64.b64encode(array.tobytes()).decode()}


_REALS = _tensor("tensor<8xf32>", np.arange(8, dtype=np.float32))
_BYTES = _tensor(f"tensor<6x{_I8}>", np.arange(6, dtype=np.int8))
_OTHERS = _tensor(f"tensor<6x{_I8}>", np.arange(6, dtype=np.int8)[::-1])
_LONG = _tensor("tensor<5000xf32>", np.arange(5000, dtype=np.float32))

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "quantize": ("/v1/quantize", {"input": _REALS, "output_type": _I8}),
    "long": ("/v1/quantize", {"input": _LONG, "output_type": _I8}),
    "nan": ("/v1/quantize", {"input": _REALS, "output_type": _I8, "nan": "error"}),
    "packed": (
        "/v1/dequantize",
        {"input": {"type": "tensor<3x!quant.uniform<i4:f32, 0.5>>", "data": "EgM="}, "packing": "dense"},
    ),
    "two": ("/v1/compare", {"a": _BYTES, "b": _OTHERS}),
    "values": ("/v1/compare", {"a": _BYTES, "b": {"type": _OTHERS["type"], "values": [1, 2, 3, 4, 5, 6]}}),
}


def spoiled(body: bytes) -> Iterator[bytes]:
    """The same request with other data: good ones, and all that data may be instead."""
    begin = body.index(b'"data": "') + len(b'"data": "')
    end = body.index(b'"', begin)
    data = body[begin:end]
    for other in (
        data,
        b"A" * (len(data) - 4) + data[-4:],
        b"",
        data[:-1],
        data + b"AAAA",
        b"-" + data[1:],
        b" " + data[1:],
        b"\n" + data[1:],
        b"\xff" + data[1:],
        "\N{LATIN SMALL LETTER E WITH ACUTE}".encode() + data[2:],
        b"," * len(data),
        data[:4] + b"\\/" + data[5:],
        data[:4] + b'"' + data[5:],
        data[:-1] + b"B",
        b"\x00\x00\xc0\x7f" * (len(data) // 4),
    ):
        yield body[:begin] + other + body[end:]
    # Of repeated members the last counts, and the others have to be JSON.
    yield body.replace(b'"data"', b'"data": "AAAA", "data"', 1)
    yield body.replace(b'"data"', b'"data": "\x01", "data"', 1)
    yield body[:-1] + b', "data": "AAAA"}'
    yield body[:-1] + b', "profile": "onnx"}'


def _sent(app: Application, path: str, body: bytes) -> Reply:
    return asyncio.run(post(app, path, {}, [body], declared=len(body)))


@pytest.mark.parametrize("name", REQUESTS)
def test_replies_are_those_of_a_service_that_keeps_nothing(name: str) -> None:
    path, request = REQUESTS[name]
    body = json.dumps(request).encode()
    forgetful, keeping = ready_app(plan_cache_bytes=0), ready_app()
    kept = keeping.state.runtime.decoded
    for sent in (body, body, body, *spoiled(body), *spoiled(body), *spoiled(body)):
        expected, found = (_sent(app, path, sent) for app in (forgetful, keeping))
        assert found.status == expected.status, sent
        assert _REQUEST_ID.sub(b"", found.body) == _REQUEST_ID.sub(b"", expected.body), sent
    assert len(forgetful.state.runtime.decoded) == 0
    assert (len(kept) > 0) == (name != "values")


def test_what_is_kept_has_no_data_of_a_request() -> None:
    path, request = REQUESTS["long"]
    app = ready_app()
    for _ in range(3):
        assert _sent(app, path, json.dumps(request).encode()).status == 200
    (((_, outline), (_, size)),) = app.state.runtime.decoded._values.items()
    assert len(outline) < 200
    assert size < 64 << 10


def test_a_request_is_kept_when_it_comes_again() -> None:
    """Reading what is kept takes time, which one that never comes again does not have to spend."""
    app = ready_app()
    kept = app.state.runtime.decoded
    for scale in range(1, 5):
        body = json.dumps({"input": _REALS, "output_type": f"!quant.uniform<i8:f32, {scale}.0>"}).encode()
        assert _sent(app, "/v1/quantize", body).status == 200
    assert len(kept) == 0
    assert _sent(app, "/v1/quantize", body).status == 200
    assert len(kept) == 1
