"""Every rule for replies finds what breaks it: replies made up here."""

from __future__ import annotations

import http.client
import io
import json
from typing import Any

import numpy as np
import pytest

from tests.fuzz.seeds import INFER
from tests.fuzz.verdict import BINARY, PROBLEM, faults
from tests.fuzz.wire import Reply, Request
from tests.requests.document import EXAMPLES, JSON
from tests.requests.files import npy

CODES = {"request_invalid": 422, "overloaded": 503, "unknown_name": 422}


def request(operation: str = "/v1/quantize", body: bytes = b"") -> Request:
    return Request(operation, operation.format(model="quantize"), (), body or json.dumps(EXAMPLES[operation]).encode())


def reply(status: int, kind: str, body: Any, **fields: str) -> Reply:
    given = {"Content-Type": kind, "X-Request-Id": "1", **{name.replace("_", "-"): fields[name] for name in fields}}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items()).encode()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(status, http.client.parse_headers(io.BytesIO(head + b"\r\n")), content)


def problem(**changes: Any) -> dict[str, Any]:
    code = changes.get("code", "request_invalid")
    found = {"title": "t", "status": 422, "detail": "d", "code": code, "type": f"/problems/{code}", "request_id": "1"}
    return {**found, **changes}


REPORT = {"elements": 2, "nan": 0, "saturated_low": 0, "saturated_high": 0, "profile": "onnx", "rounding": "up"}
CONVERSION = {"output": {"type": "tensor<2xi8>", "values": [1, 2]}, "report": REPORT, "request_id": "1"}
OUTPUT = {"name": "y", "shape": [2], "datatype": "INT8", "parameters": {}, "data": [1, 2]}
INFERENCE = {"model_name": "quantize", "model_version": "1", "parameters": {}, "outputs": [OUTPUT]}
IN_BINARY = {**INFERENCE, "outputs": [{**OUTPUT, "data": [], "parameters": {"binary_data_size": 2}}]}
QUOTED = "q" * 161


def found(asked: Request, answered: Reply) -> list[str]:
    return list(faults(asked, answered, CODES))


def binary(data: bytes) -> Reply:
    head = json.dumps(IN_BINARY).encode()
    return reply(200, BINARY, head + data, Inference_Header_Content_Length=str(len(head)))


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (request(), reply(200, JSON, CONVERSION)),
        (request(), reply(422, PROBLEM, problem())),
        (request(), reply(503, PROBLEM, problem(code="overloaded", status=503), Retry_After="1")),
        (request(body=b'{"x": "%s"}' % QUOTED.encode()), reply(422, PROBLEM, problem(detail=QUOTED[1:]))),
        (request(INFER), reply(404, PROBLEM, problem(code="unknown_name", status=404, error="d"))),
        (request(INFER), reply(200, JSON, INFERENCE)),
        (request(INFER), binary(b"\1\2")),
        (Request("/v1/npy/quantize", "/v1/npy/quantize", (), b""), reply(200, BINARY, npy(np.zeros(2)))),
    ],
)
def test_a_good_reply_has_no_fault(asked: Request, answered: Reply) -> None:
    assert found(asked, answered) == []


@pytest.mark.parametrize(
    ("asked", "answered", "fault"),
    [
        (request(), reply(500, PROBLEM, problem(status=500)), "status 500"),
        (request(), reply(409, PROBLEM, problem(status=409)), "not documented"),
        (request(), reply(422, "text/plain", b"no"), "an error of text/plain"),
        (request(), reply(422, PROBLEM, problem(code="new")), "the code new"),
        (request(), reply(400, PROBLEM, problem(status=400)), "the code request_invalid"),
        (request(), reply(422, PROBLEM, problem(status=400)), "not the reply's"),
        (request(), reply(422, PROBLEM, problem(type="about:blank")), "not the reply's"),
        (request(), reply(422, PROBLEM, problem(detail=1)), "not a Problem"),
        (request(), reply(422, PROBLEM, problem(detail="d" * 9000)), "an error of"),
        (
            request(),
            reply(422, PROBLEM, problem(errors=[{"pointer": "x", "code": "c", "detail": "d"}])),
            "no JSON pointer",
        ),
        (
            request(),
            reply(422, PROBLEM, problem(errors=[{"pointer": "", "code": "c", "detail": "d"}] * 17)),
            "17 faults",
        ),
        (request(), reply(503, PROBLEM, problem(code="overloaded", status=503)), "without Retry-After"),
        (
            request(body=b'{"x": "%s"}' % QUOTED.encode()),
            reply(422, PROBLEM, problem(detail=QUOTED)),
            "quotes the body",
        ),
        (request(INFER), reply(422, PROBLEM, problem()), "inference protocol"),
        (request(), reply(200, JSON, {**CONVERSION, "report": {}}), "not a QuantizeReply"),
        (
            request(),
            reply(200, JSON, {**CONVERSION, "output": {"type": "tensor<3xi8>", "values": [1]}}),
            "1 values of 3",
        ),
        (request(), reply(200, "text/plain", CONVERSION), "a reply of text/plain"),
        (request(INFER), reply(200, JSON, {**INFERENCE, "outputs": [{**OUTPUT, "shape": [3]}]}), "2 elements of 3"),
        (request(INFER), binary(b"\1"), "are told of"),
        (request(INFER), reply(200, BINARY, INFERENCE), "a reply of"),
        (Request("/v1/npy/quantize", "", (), b""), reply(200, BINARY, npy(np.zeros(2)) + b"\0"), "after the .npy"),
        (Request("/v1/npy/quantize", "", (), b""), reply(200, BINARY, b"no"), "no .npy"),
    ],
)
def test_a_bad_reply_is_found(asked: Request, answered: Reply, fault: str) -> None:
    assert any(fault in each for each in found(asked, answered)), found(asked, answered)


def test_a_number_that_is_no_json_is_found() -> None:
    answered = reply(200, JSON, json.dumps({**CONVERSION, "request_id": float("nan")}).encode())
    with pytest.raises(ValueError, match="NaN is no JSON"):
        found(request(), answered)
