"""Requests of the Open Inference Protocol that cannot be served: each gets a clear 4xx, with `error`."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from requant_service.oip.schemas import MAX_TENSORS
from tests.conftest import Server
from tests.support.cases import EXHAUSTIVE
from tests.support.oip_wire import LENGTH, Input, body_of, infer, read

TARGET = "!quant.uniform<i8:f32, 0.5:3>"
PATH = "/v2/models/quantize/infer"
X: dict[str, Any] = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
B: dict[str, Any] = {"name": "x", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}
PARAMETERS = {"output_type": TARGET}
MALFORMED, INVALID, DATA, LIMIT = (
    (400, "request_malformed"),
    (422, "request_invalid"),
    (400, "tensor_data"),
    (413, "limit_exceeded"),
)
Kind = tuple[int, str]


def refused(reply: httpx.Response, kind: Kind) -> dict[str, Any]:
    assert (reply.status_code, reply.json().get("code")) == kind, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = reply.json()
    assert found["error"] == found["detail"]
    assert len(reply.content) < 8000
    return found


def post(client: httpx.Client, content: Any, length: int | str | None = None, **headers: str) -> httpx.Response:
    stated = {} if length is None else {LENGTH: str(length)}
    return client.post(PATH, content=content, headers={**stated, **headers})


def text_of(*inputs: Any, **members: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), "parameters": PARAMETERS, **members}).encode()


@pytest.fixture(autouse=True)
def the_connection_stays_usable(client: httpx.Client) -> Any:
    yield
    assert read(infer(client, "quantize", [Input("x", np.ones(2, "f4"))], parameters=PARAMETERS)).outputs[
        "y"
    ].tolist() == [5, 5]


@pytest.mark.parametrize("length", ["", "-1", "+8", "0x10", "1e3", "1_0", "٣", "9" * 21, "12, 12"])
def test_lengths_of_the_json_that_are_no_numbers(client: httpx.Client, length: str) -> None:
    reply = client.post(PATH, content=text_of(X), headers=[(LENGTH.encode(), length.encode())])
    refused(reply, MALFORMED)


def test_two_lengths_of_the_json(client: httpx.Client) -> None:
    text = text_of(X)
    for other in (len(text), 0):
        headers = [(LENGTH, str(len(text))), (LENGTH, str(other))]
        refused(client.post(PATH, content=text, headers=headers), MALFORMED)


@pytest.mark.parametrize("chunked", [False, True])
def test_lengths_of_the_json_that_lie(client: httpx.Client, chunked: bool) -> None:
    text, blob = text_of(B), np.ones(2, "f4").tobytes()

    def send(body: bytes, length: int) -> httpx.Response:
        return post(client, (body[at : at + 5] for at in range(0, len(body), 5)) if chunked else body, length)

    assert read(send(text + blob, len(text))).outputs["y"].tolist() == [5, 5]
    found = refused(send(text + blob, len(text) + len(blob) + 1), MALFORMED)
    assert str(len(text) + len(blob)) in found["detail"]
    refused(send(text + blob, 10**18), LIMIT)
    refused(send(text + blob, len(text) - 1), MALFORMED)
    refused(send(text + blob, len(text) + 1), MALFORMED)
    refused(send(text + blob, 1), MALFORMED)


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_that_are_too_short_or_too_long(client: httpx.Client, chunked: bool) -> None:
    text = text_of(B)
    for size in (0, 1, 7, 9, 16, 100_000):
        body = text + b"\0" * size
        content = (body[at : at + 999] for at in range(0, len(body), 999)) if chunked else body
        found = refused(post(client, content, len(text)), MALFORMED)
        assert "8 bytes follow the JSON" in found["detail"]
        assert f"has {size} there" in found["detail"]
    # Without the header, a blob is taken for JSON, or is missing.
    refused(post(client, text + b"\0" * 8), MALFORMED)
    found = refused(post(client, text), MALFORMED)
    assert LENGTH in found["detail"]
    refused(post(client, text_of(X) + b"\0", len(text_of(X))), MALFORMED)


def test_a_stated_length_that_does_not_fit_is_answered_before_the_tensors_come(server: Server) -> None:
    text = text_of(B)
    lengths = f"{LENGTH}: {len(text)}\r\nContent-Length: {len(text) + 4000}"
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head.encode() + text)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("size", [0, 4, 7, 9, 1 << 40, 10**400])
def test_sizes_that_are_not_those_of_the_shape(client: httpx.Client, size: int) -> None:
    text = text_of({**B, "parameters": {"binary_data_size": size}})
    found = refused(post(client, text + b"\0" * 8, len(text)), DATA)
    assert found["errors"][0]["pointer"] == "/inputs/0/parameters/binary_data_size"
    assert "2 elements of 4 bytes, which is 8" in found["detail"]


@pytest.mark.parametrize("size", [-1, -(10**30), 8.0, "8", True])
def test_sizes_that_are_no_sizes(client: httpx.Client, size: Any) -> None:
    text = text_of({**B, "parameters": {"binary_data_size": size}})
    refused(post(client, text + b"\0" * 8, len(text)), INVALID)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ([-1], INVALID),
        ([2, -1], INVALID),
        ([(1 << 40) + 1], INVALID),
        ([10**300], INVALID),
        ([2.0], INVALID),
        (["2"], INVALID),
        ([True, 2], INVALID),
        ([None], INVALID),
        (2, INVALID),
        (None, INVALID),
        ([[2]], INVALID),
        ([1] * 33, LIMIT),
        ([1] * 2000, LIMIT),
        ([1 << 40] * 32, DATA),
        ([1 << 20, 1 << 20], DATA),
        ([1 << 32], DATA),
        ([3], DATA),
        ([1], DATA),
    ],
)
def test_shapes(client: httpx.Client, shape: Any, kind: Kind) -> None:
    text = text_of({**B, "shape": shape})
    refused(post(client, text + b"\0" * 8, len(text)), kind)
    refused(post(client, text_of({**X, "shape": shape})), LIMIT if kind == DATA and shape not in ([1], [3]) else kind)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ([1], ""),
        ([1, 2, 3], ""),
        ([[1, 2]], ""),
        ([[1], [2]], "/0"),
        ([[1, 2], 3], "/0"),
        ([1, [2]], "/1"),
        ([None, 1], "/0"),
        ([True, 1], "/0"),
        (["one", 2], "/0"),
        ([{}, 1], "/0"),
        ([1, 1e39], "/1"),
        ([], ""),
        ([[]], ""),
        ([10**400, 1], "/0"),
    ],
)
def test_data_that_are_not_what_the_shape_says(client: httpx.Client, data: list[Any], place: str) -> None:
    found = refused(post(client, text_of({**X, "data": data})), DATA)
    assert found["errors"][0]["pointer"] == "/inputs/0/data" + place


@pytest.mark.parametrize(
    "data", [[[1, 2], [3]], [[1, 2], [3, 4], [5, 6]], [[1, 2, 3], [4]], [[[1, 2]], [[3, 4]]], [[1, 2], 3, 4], [[], []]]
)
def test_lists_that_are_nested_otherwise_than_the_shape(client: httpx.Client, data: list[Any]) -> None:
    refused(post(client, text_of({**X, "shape": [2, 2], "data": data})), DATA)


def test_booleans_that_are_none(client: httpx.Client) -> None:
    good = Input("a", np.array([True, False]))
    body, headers = body_of([good, Input("b", np.array([1, 2], np.uint8), "BOOL")])
    refused(client.post("/v2/models/compare/infer", content=body, headers=headers), DATA)
    refused(infer(client, "compare", [good, Input("b", np.zeros(2, bool), "BOOL", [0, 2])]), DATA)
    refused(infer(client, "compare", [good, Input("b", np.zeros(2, bool), "BOOL", ["NaN", 2])]), DATA)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": "y"}, "/inputs/0/name"),
        ({"name": "x" * 65}, "/inputs/0/name"),
        ({"name": 1}, "/inputs/0/name"),
        ({"datatype": "BYTES"}, "/inputs/0/datatype"),
        ({"datatype": "INT8"}, "/inputs/0/datatype"),
        ({"datatype": "fp32"}, "/inputs/0/datatype"),
        ({"datatype": "F" * 65}, "/inputs/0/datatype"),
        ({"parameters": {"binary_data_size": 8}}, "/inputs/0"),
        ({"parameters": {"shared_memory_region": "a"}}, "/inputs/0/parameters/shared_memory_byte_size"),
        ({"parameters": {"a/b": "a"}}, "/inputs/0/parameters/a~1b"),
        ({"parameters": {"a": {}}}, "/inputs/0/parameters"),
        ({"parameters": []}, "/inputs/0/parameters"),
        ({"parameters": None}, "/inputs/0/parameters"),
        ({"data": None}, "/inputs/0"),
        ({"data": {}}, "/inputs/0/data"),
        ({"data": "AAAA"}, "/inputs/0/data"),
        ({"dtype": "FP32"}, "/inputs/0/dtype"),
    ],
)
def test_inputs_that_are_wrong(client: httpx.Client, change: dict[str, Any], pointer: str) -> None:
    found = refused(post(client, text_of({**X, **change})), INVALID)
    assert [fault["pointer"] for fault in found["errors"]] == [pointer]


@pytest.mark.parametrize("name", ["name", "shape", "datatype", "data"])
def test_inputs_that_lack_something(client: httpx.Client, name: str) -> None:
    refused(post(client, text_of({key: value for key, value in X.items() if key != name})), INVALID)


def test_inputs_that_are_missing_repeated_or_many(client: httpx.Client) -> None:
    refused(post(client, text_of()), INVALID)
    found = refused(post(client, text_of(X, X)), INVALID)
    assert "more than once" in found["detail"]
    refused(post(client, text_of(X, {**X, "name": "z"})), INVALID)
    refused(post(client, text_of(*[X] * (MAX_TENSORS + 1))), LIMIT)
    refused(post(client, text_of(*[X] * 50_000)), LIMIT)
    refused(post(client, text_of({**X, "name": "scale"})), INVALID)


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"outputs": [{"name": "x"}]}, "/outputs/0/name"),
        ({"outputs": [{"name": "y"}, {"name": "y"}]}, "/outputs/1/name"),
        ({"outputs": [{"name": "y", "parameters": {"classification": 3}}]}, "/outputs/0/parameters/classification"),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, "/outputs/0/parameters/binary_data"),
        ({"outputs": [{}]}, "/outputs/0/name"),
        ({"outputs": None}, "/outputs"),
        ({"outputs": [1]}, "/outputs/0"),
        ({"id": 5}, "/id"),
        ({"id": None}, "/id"),
        ({"id": "x" * 257}, "/id"),
        ({"model_name": "dequantize"}, "/model_name"),
        ({"parameters": {**PARAMETERS, "profil": "onnx"}}, "/parameters/profil"),
        ({"parameters": {**PARAMETERS, "priority": 1}}, "/parameters/priority"),
        ({"parameters": {**PARAMETERS, "profile": 3}}, "/parameters/profile"),
        ({"parameters": {**PARAMETERS, "profile": None}}, "/parameters"),
        ({"parameters": {**PARAMETERS, "nan": "zero"}}, "/parameters/nan"),
        ({"parameters": {**PARAMETERS, "seed": -1}}, "/parameters/seed"),
        ({"parameters": {**PARAMETERS, "seed": 1.0}}, "/parameters/seed"),
        ({"parameters": {**PARAMETERS, "seed": True}}, "/parameters/seed"),
        ({"parameters": {**PARAMETERS, "seed": 1 << 63}}, "/parameters/seed"),
        ({"parameters": {**PARAMETERS, "packing": "loose"}}, "/parameters/packing"),
        ({"parameters": {**PARAMETERS, "binary_data_output": "yes"}}, "/parameters/binary_data_output"),
        ({"parameters": {**PARAMETERS, "output_type": [TARGET]}}, "/parameters"),
        ({"parameters": {f"p{n}": 0 for n in range(33)}}, "/parameters"),
        ({"parameters": {}}, "/parameters/output_type"),
        ({"parameters": {**PARAMETERS, "axis": 1}}, "/parameters/axis"),
        ({"sequence": 1}, "/sequence"),
    ],
)
def test_members_that_are_wrong(client: httpx.Client, members: dict[str, Any], pointer: str | None) -> None:
    found = refused(post(client, text_of(X, **members)), INVALID)
    assert [fault["pointer"] for fault in found.get("errors", [])] == ([] if pointer is None else [pointer])


@pytest.mark.parametrize("outputs", [MAX_TENSORS + 1, 50_000])
def test_many_outputs(client: httpx.Client, outputs: int) -> None:
    refused(post(client, text_of(X, outputs=[{"name": "y"}] * outputs)), LIMIT)


@pytest.mark.parametrize(
    ("parameters", "kind", "pointer"),
    [
        ({"output_type": "!quant.uniform<i8:f32, 1>"}, (422, "type_invalid"), "/parameters/output_type"),
        ({**PARAMETERS, "input_type": "tensor<3xf32>"}, (422, "type_does_not_fit"), "/parameters/input_type"),
        ({**PARAMETERS, "input_type": "f64"}, (422, "unsupported"), "/parameters/output_type"),
        ({**PARAMETERS, "input_type": "i32"}, (422, "unsupported"), "/parameters/input_type"),
        ({**PARAMETERS, "profile": "nope"}, (422, "unknown_name"), "/parameters/profile"),
        ({**PARAMETERS, "profile": "tosa"}, (422, "unsupported"), "/parameters/profile"),
        ({**PARAMETERS, "rounding": "nope"}, (422, "unknown_name"), "/parameters/rounding"),
        ({"output_type": "f32"}, (422, "unsupported"), "/parameters/output_type"),
        ({"output_type": "!quant.uniform<i8:f32:0, {1.0}>"}, (422, "type_does_not_fit"), "/parameters/output_type"),
        ({"output_type": f"tensor<{'1x' * (1 << 20)}f32>"}, LIMIT, "/parameters/output_type"),
    ],
)
def test_types_and_names_are_refused_like_in_other_faces(
    client: httpx.Client, parameters: dict[str, Any], kind: Kind, pointer: str
) -> None:
    found = refused(post(client, text_of(X, parameters=parameters)), kind)
    assert found["errors"][0]["pointer"] == pointer


def test_a_datatype_that_the_type_is_not_kept_in(client: httpx.Client) -> None:
    stored = Input("x", np.zeros(2, np.uint8))
    found = refused(
        infer(client, "dequantize", [stored], parameters={"input_type": "!quant.uniform<i8:f32, 1.0>"}), DATA
    )
    assert "UINT8" in found["detail"]
    assert "INT8" in found["detail"]
    assert found["errors"][0]["pointer"] == "/inputs/0/datatype"
    refused(infer(client, "dequantize", [stored], parameters={"input_type": "!quant.uniform<u16:f32, 1.0>"}), DATA)
    outside = Input("x", np.array([7, 8], np.int8))
    refused(infer(client, "dequantize", [outside], parameters={"input_type": "!quant.uniform<i4:f32, 1.0>"}), DATA)


def test_packed_bytes_that_are_not_as_many_as_the_type_says(client: httpx.Client) -> None:
    stored = Input("x", np.zeros(3, np.uint8))
    for text, kind in (
        ("tensor<3x!quant.uniform<i4:f32, 1.0>>", DATA),
        ("!quant.uniform<i4:f32, 1.0>", DATA),
        ("tensor<?x!quant.uniform<i4:f32, 1.0>>", (422, "type_does_not_fit")),
    ):
        parameters = {"input_type": text, "packing": "dense"}
        refused(infer(client, "dequantize", [stored], parameters=parameters), kind)
    scaled = [stored, Input("scale", np.array([1.0], np.float32))]
    parameters = {"storage_type": "u4", "packing": "dense"}
    refused(infer(client, "dequantize", scaled, parameters=parameters), (422, "type_does_not_fit"))


@pytest.mark.parametrize(
    ("scale", "zero_point", "parameters", "kind"),
    [
        ([1.0], None, {}, INVALID),
        ([1.0], None, {"storage_type": "i8", "output_type": TARGET}, INVALID),
        ([1.0], None, {"storage_type": "i8:f32"}, INVALID),
        ([1.0], None, {"storage_type": "i8> "}, (422, "type_invalid")),
        ([1.0], None, {"storage_type": "i99"}, (422, "type_invalid")),
        ([1.0, 2.0], None, {"storage_type": "i8"}, (422, "type_does_not_fit")),
        ([[1.0, 2.0]], None, {"storage_type": "i8", "axis": 0}, (422, "type_does_not_fit")),
        ([1.0, 2.0, 3.0], None, {"storage_type": "i8", "axis": 0}, (422, "type_does_not_fit")),
        ([1.0, 2.0], None, {"storage_type": "i8", "axis": 1}, (422, "type_does_not_fit")),
        ([1.0, 2.0], None, {"storage_type": "i8", "axis": -1}, INVALID),
        ([1.0, 2.0], [1], {"storage_type": "i8", "axis": 0}, (422, "type_does_not_fit")),
        ([0.0], None, {"storage_type": "i8"}, (422, "precondition_failed")),
        ([-1.0], None, {"storage_type": "i8"}, (422, "precondition_failed")),
        ([np.nan], None, {"storage_type": "i8"}, (422, "precondition_failed")),
        ([np.inf], None, {"storage_type": "i8"}, (422, "precondition_failed")),
        ([1.0], [128], {"storage_type": "i8"}, (422, "unsupported")),
        ([1.0] * 65_537, None, {"storage_type": "i8", "axis": 0}, LIMIT),
        (None, [1], {"output_type": TARGET}, INVALID),
        (None, None, {"output_type": TARGET, "storage_type": "i8"}, INVALID),
    ],
)
def test_scale_tensors(
    client: httpx.Client, scale: Any, zero_point: Any, parameters: dict[str, Any], kind: Kind
) -> None:
    inputs = [Input("x", np.ones(2, np.float32))]
    if scale is not None:
        inputs.append(Input("scale", np.array(scale, np.float32)))
    if zero_point is not None:
        inputs.append(Input("zero_point", np.array(zero_point, np.int32)))
    refused(infer(client, "quantize", inputs, parameters=parameters), kind)


@pytest.mark.parametrize(
    ("multiplier", "shift", "kind"),
    [
        ([1 << 30], None, (422, "type_does_not_fit")),
        (None, [0], (422, "type_does_not_fit")),
        ([1 << 30], [0, 0], (422, "type_does_not_fit")),
        ([[1 << 30]], [[0]], (422, "type_does_not_fit")),
        ([1 << 30] * 3, [0] * 3, (422, "type_does_not_fit")),
        ([], [], (422, "type_does_not_fit")),
        ([1 << 30], [99], (422, "parameter_invalid")),
        ([1 << 30] * 65_537, [0] * 65_537, LIMIT),
    ],
)
def test_multiplier_tensors(client: httpx.Client, multiplier: Any, shift: Any, kind: Kind) -> None:
    inputs = [Input("x", np.ones(2, np.int32))]
    given = {"multiplier": multiplier, "shift": shift}
    inputs += [Input(name, np.array(x, np.int32)) for name, x in given.items() if x is not None]
    types = {"input_type": "!quant.uniform<i32:f32, 1.0>", "output_type": "!quant.uniform<i8:f32, 1.0>"}
    found = refused(infer(client, "requantize", inputs, parameters=types), kind)
    assert all(fault["pointer"].startswith("/inputs/") for fault in found.get("errors", []))


def test_comparisons_that_are_not_possible(client: httpx.Client) -> None:
    a, b = Input("a", np.zeros(2, np.float32)), Input("b", np.zeros(3, np.float32))
    refused(infer(client, "compare", [a]), INVALID)
    refused(infer(client, "compare", [a, b]), (422, "type_does_not_fit"))
    refused(infer(client, "compare", [a, Input("b", np.zeros(2, np.int8))]), (422, "unsupported"))
    for most in (-1, 1001):
        refused(infer(client, "compare", [a, b], parameters={"max_reported": most}), INVALID)


def test_blocks_that_are_not_possible(client: httpx.Client) -> None:
    x = Input("x", np.zeros((2, 32), np.float32))
    refused(infer(client, "quantize_blocks", [x]), INVALID)
    refused(infer(client, "quantize_blocks", [x], parameters={"format": "mxfp5"}), INVALID)
    refused(
        infer(client, "quantize_blocks", [x], parameters={"format": "mxint8", "input_type": "f64"}),
        (422, "unsupported"),
    )
    refused(
        infer(client, "quantize_blocks", [x], parameters={"format": "nvfp4", "global_scale": "x"}),
        (422, "parameter_invalid"),
    )
    odd = Input("x", np.zeros((2, 33), np.float32))
    assert infer(client, "quantize_blocks", [odd], parameters={"format": "mxint8"}).status_code == 422
    # A format has the outputs that it has.
    wanted = [{"name": "blocks"}]
    refused(infer(client, "quantize_blocks", [x], parameters={"format": "mxint8"}, outputs=wanted), INVALID)
    given = {"format": "mxint8", "output_type": "tensor<2x32xf32>"}
    elements, scales = Input("elements", np.zeros((2, 32), np.int8)), Input("scales", np.zeros((2, 1), np.uint8))
    refused(infer(client, "dequantize_blocks", [elements], parameters=given), INVALID)
    blocks = Input("blocks", np.zeros((2, 34), np.uint8))
    refused(infer(client, "dequantize_blocks", [elements, scales, blocks], parameters=given), INVALID)
    flat = Input("scales", np.zeros(2, np.uint8))
    refused(infer(client, "dequantize_blocks", [elements, flat], parameters=given), (422, "type_does_not_fit"))
    codes = Input("elements", np.zeros((2, 32), np.uint8))
    refused(infer(client, "dequantize_blocks", [codes, scales], parameters=given), DATA)
    other = {**given, "output_type": "tensor<2x32xf64>"}
    refused(infer(client, "dequantize_blocks", [elements, scales], parameters=other), (422, "unsupported"))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\x93NUMPY\x01\x00",
        b'{"inputs": "\xff"}',
        b'{"id": "\\ud800", "inputs": []}',
        b"[" * 100_000,
        b'{"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": ' + b"[" * 300 + b"]" * 300 + b"}]}",
        b'{"inputs": {"x": [1]}}',
    ],
)
def test_json_that_is_none_of_a_request(client: httpx.Client, text: bytes) -> None:
    for length in (None, len(text) or None):
        reply = post(client, text, length)
        assert reply.status_code in (400, 422)
        assert reply.json()["error"]


def test_bounds_of_the_json(client: httpx.Client) -> None:
    limits = client.get("/v1/info").json()["limits"]
    many: list[dict[str, Any]] = [
        {"x": [[]] * (limits["max_json_tokens"] // 3 + 1)},
        {"x": '"' * limits["max_json_tokens"]},
    ]
    for hostile in many:
        assert refused(post(client, text_of(X, **hostile)), LIMIT)["limit"] == limits["max_json_tokens"]
    long = text_of(X, x="x" * limits["max_json_bytes"])
    for length in (None, len(long)):
        assert refused(post(client, long, length), LIMIT)["limit"] == limits["max_json_bytes"]
    elements = limits["max_values"] + 1
    found = refused(post(client, text_of({**X, "shape": [elements], "data": [0] * elements})), LIMIT)
    assert (found["limit"], "binary" in found["detail"]) == (limits["max_values"], True)
    found = refused(infer(client, "quantize", [Input("x", np.zeros(elements, "f4"))], parameters=PARAMETERS), LIMIT)
    assert (found["limit"], "binary_data_output" in found["detail"]) == (limits["max_values"], True)


@pytest.mark.parametrize(
    ("model", "size", "query", "kind"),
    [
        ("quantize", 3, PARAMETERS, MALFORMED),
        ("quantize", 8, {}, INVALID),
        ("quantize", 8, {**PARAMETERS, "seed": "-1"}, INVALID),
        ("quantize", 8, {**PARAMETERS, "seed": "1e3"}, INVALID),
        ("quantize", 8, {**PARAMETERS, "seed": "9" * 19}, INVALID),
        ("quantize", 8, {**PARAMETERS, "seed": "9" * 4000}, INVALID),
        ("quantize", 8, {**PARAMETERS, "x": "1"}, INVALID),
        ("quantize", 8, {"output_type": "f"}, (422, "type_invalid")),
        ("compare", 8, {}, MALFORMED),
        ("dequantize_blocks", 8, {}, MALFORMED),
        ("dequantize", 8, {"input_type": "!quant.uniform<u8:f32, 1.0>"}, DATA),
    ],
)
def test_raw_requests(client: httpx.Client, model: str, size: int, query: dict[str, str], kind: Kind) -> None:
    content, headers = b"\0" * size, {LENGTH: "0"}
    refused(client.post(f"/v2/models/{model}/infer", params=query, content=content, headers=headers), kind)


def test_a_query_beside_json_is_refused(client: httpx.Client) -> None:
    refused(client.post(PATH, params=PARAMETERS, content=text_of(X)), INVALID)
    for path in ("", "/health/ready", "/models", "/models/quantize", "/models/quantize/ready"):
        refused(client.get(f"/v2{path}", params={"a": "b"}), INVALID)


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "gzip, identity", "deflate;q=1", "*"])
def test_other_codings(client: httpx.Client, coding: str) -> None:
    found = refused(post(client, text_of(X), **{"content-encoding": coding}), (415, "media_type"))
    assert "gzip and deflate" in found["detail"]


CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("coding", CODINGS)
def test_compressed_bodies_that_are_broken(client: httpx.Client, coding: str) -> None:
    packed = CODINGS[coding](text_of(X))
    other = CODINGS["gzip" if coding == "deflate" else "deflate"](text_of(X))
    wrong = bytearray(packed)
    wrong[-1] ^= 1
    middle = bytearray(packed)
    middle[len(packed) // 2] ^= 0x55
    for body in (
        b"",
        b"plain",
        text_of(X),
        other,
        packed[:-1],
        packed[: len(packed) // 2],
        packed[:1],
        packed + b"\0",
        packed + packed,
        bytes(wrong),
        bytes(middle),
        zlib.compress(text_of(X), wbits=-15),
    ):
        reply = post(client, body, **{"content-encoding": coding})
        assert reply.status_code == 400, body
        refused(reply, MALFORMED)


@pytest.mark.sample(1)
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("chunked", [False, True])
def test_bombs_are_refused_on_the_way(client: httpx.Client, coding: str, chunked: bool) -> None:
    packed = CODINGS[coding](text_of(B) + b"\0" * ((200 if EXHAUSTIVE else 80) << 20))
    content = (packed[at : at + 4096] for at in range(0, len(packed), 4096)) if chunked else packed
    found = refused(post(client, content, len(text_of(B)), **{"content-encoding": coding}), LIMIT)
    assert found["limit"] == 100


def test_what_inflates_to_more_than_the_limit_is_refused(client: httpx.Client) -> None:
    """Half of it random, so that it grows twofold only."""
    rng = np.random.default_rng(8)
    noise = rng.integers(0, 256, 35 << 20, np.uint8).tobytes()
    packed = gzip.compress(text_of(B) + noise + b"\0" * (30 << 20), 1)
    found = refused(post(client, packed, len(text_of(B)), **{"content-encoding": "gzip"}), LIMIT)
    assert found["limit"] == 64 << 20


def test_payloads_are_never_echoed(client: httpx.Client) -> None:
    secret = "S3CRETpayload"
    for body in (
        secret.encode(),
        text_of({**X, "data": [secret, 1]}),
        text_of({**X, "data": secret}),
        text_of({**X, "shape": [secret]}),
        text_of({**X, "parameters": {"binary_data_size": secret}}),
    ):
        reply = post(client, body)
        assert reply.status_code in (400, 422)
        assert secret not in reply.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/nope", 404, "not_found"),
        ("GET", "/v2/", 404, "not_found"),
        ("GET", "/v2/models/quantize/config", 404, "not_found"),
        ("GET", "/v2/models/quantize/infer", 405, "method_not_allowed"),
        ("POST", "/v2/models", 405, "method_not_allowed"),
    ],
)
def test_paths_that_are_not_there(client: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    refused(client.request(method, path), (status, code))


def test_other_faces_have_no_error_member(client: httpx.Client) -> None:
    for path in ("/v1/nope", "/v2x", "/v1/quantize"):
        assert "error" not in client.get(path).json()
