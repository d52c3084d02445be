"""Models over gRPC: the same bits and reports as over HTTP, and the same errors in the same words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from requant_service.oip.grpc import inference_pb2 as pb
from tests.conftest import Server
from tests.interop.clients.model_cases import CASES, ModelCase
from tests.support.inference_messages import (
    SERVICE,
    Array,
    infer,
    outputs_of,
    parameters_into,
    refused,
    request_of,
    values_of,
)
from tests.support.oip_wire import Input, body_of, read

INVALID = grpc.StatusCode.INVALID_ARGUMENT
TARGET = {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"}
X = np.array([0.25, 0.75, -1.5, 100], np.float32)


@pytest.fixture
def http(grpc_server: tuple[Server, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=grpc_server[0].url, timeout=120, verify=False) as client:
        yield client


def over_http(http: httpx.Client, model: str, inputs: Mapping[str, Array], parameters: Mapping[str, Any]) -> Any:
    given = [Input(key.partition(":")[0], array, key.partition(":")[2]) for key, array in inputs.items()]
    body, headers = body_of(given, parameters={**parameters, "binary_data_output": True})
    return http.post(f"/v2/models/{model}/infer", content=body, headers=headers)


def check_same(channel: Any, http: httpx.Client, model: str, inputs: dict[str, Array], parameters: Any) -> None:
    reply = infer(channel, request_of(model, inputs, parameters, id="7"))
    expected = read(over_http(http, model, inputs, parameters))
    assert (reply.id, reply.model_name, reply.model_version) == ("7", model, expected.head["model_version"])
    assert values_of(reply.parameters) == expected.head["parameters"]
    found = outputs_of(reply)
    assert list(found) == list(expected.outputs)
    for name, array in expected.outputs.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    for output, described in zip(reply.outputs, expected.head["outputs"], strict=True):
        assert values_of(output.parameters)["element_type"] == described["parameters"]["element_type"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
def test_every_case_by_hand(channel: Any, case: ModelCase) -> None:
    request = request_of(case.model, case.inputs, case.parameters, list(case.expected), model_version="1")
    for _ in range(2):
        found = outputs_of(infer(channel, request))
        assert {name: (each.shape, each.tobytes()) for name, each in found.items()} == {
            name: (each.shape, each.tobytes()) for name, each in case.expected.items()
        }


@pytest.mark.parametrize("elements", [0, 1, 255, 20_000, 3_000_001])
@pytest.mark.parametrize("identity", ["", "a", "abc"])
def test_tensors_at_any_address(channel: Any, http: httpx.Client, elements: int, identity: str) -> None:
    """The length of the `id` moves the tensor through all remainders of 4."""
    x = np.random.default_rng(elements).normal(size=elements).astype(np.float32)
    found = infer(channel, request_of("quantize", {"x": x}, TARGET, id=identity))
    assert found.id == identity
    expected = read(over_http(http, "quantize", {"x": x}, TARGET)).outputs["y"]
    assert outputs_of(found)["y"].tobytes() == expected.tobytes()


QUANTIZED = "!quant.uniform<i8:f32, 0.5:3>"
SAME = [
    ("quantize", {"x": X.astype(np.float16)}, {**TARGET, "output_type": "!quant.uniform<u8:f16, 0.5:3>"}),
    ("quantize", {"x:BF16": np.array([0x3F80, 0xC000, 0x7FC0], np.uint16)}, {"output_type": "f16"}),
    ("quantize", {"x": X.reshape(2, 2)}, {**TARGET, "error": True}),
    ("quantize", {"x": X}, {**TARGET, "output_type": "!quant.uniform<i4:f32, 0.5>", "packing": "dense"}),
    ("dequantize", {"x": np.arange(-5, 300, dtype=np.int16)}, {"input_type": "!quant.uniform<i16:f32, 0.1>"}),
    ("compare", {"a": X, "b": X + np.float32(0.5)}, {}),
    ("onnx.QuantizeLinear", {"x": X, "y_scale": np.array(0.5, np.float32), "y_zero_point": np.array(3, np.uint8)}, {}),
    (
        "onnx.MatMulInteger",
        {"A": np.arange(12, dtype=np.uint8).reshape(3, 4), "B": np.arange(8, dtype=np.int8).reshape(4, 2)},
        {},
    ),
    ("quantize_blocks", {"x": np.linspace(-9, 9, 96, dtype=np.float32).reshape(3, 32)}, {"format": "mxfp8_e4m3"}),
    ("quantize_blocks", {"x": np.ones(32, np.float32)}, {"format": "nvfp4", "global_scale": 0.001}),
]


@pytest.mark.parametrize(("model", "inputs", "parameters"), SAME, ids=[f"{each[0]}-{n}" for n, each in enumerate(SAME)])
def test_same_as_over_http(channel: Any, http: httpx.Client, model: str, inputs: Any, parameters: Any) -> None:
    for _ in range(2):
        check_same(channel, http, model, inputs, parameters)


def test_same_head_with_other_tensors_and_ids(channel: Any) -> None:
    """What is kept of a head is never the answer to another request."""
    for index in range(20):
        x = X + np.float32(index)
        reply = infer(channel, request_of("quantize", {"x": x}, TARGET, id=str(index) if index % 3 else ""))
        expected = np.clip(np.rint(x.astype(np.float64) / 0.5) + 3, -128, 127).astype(np.int8)
        assert reply.id == (str(index) if index % 3 else "")
        assert outputs_of(reply)["y"].tobytes() == expected.tobytes()
        assert values_of(reply.parameters)["saturated"] == int((np.rint(x / 0.5) + 3 > 127).sum())


CONTENTS = [
    ("FP32", "fp32_contents", "quantize", TARGET),
    ("FP64", "fp64_contents", "quantize", {"output_type": "!quant.uniform<i8:f64, 0.5:3>", "profile": "stablehlo"}),
    ("INT8", "int_contents", "dequantize", {"input_type": QUANTIZED}),
    ("UINT8", "uint_contents", "dequantize", {"input_type": "!quant.uniform<u8:f32, 0.5:3>"}),
    ("INT32", "int_contents", "dequantize", {"input_type": "!quant.uniform<i32:f32, 0.5:3>"}),
]


@pytest.mark.parametrize(("datatype", "field", "model", "parameters"), CONTENTS, ids=[each[0] for each in CONTENTS])
def test_typed_contents(channel: Any, datatype: str, field: str, model: str, parameters: Any) -> None:
    dtype = {"FP32": "<f4", "FP64": "<f8", "INT8": "i1", "UINT8": "u1", "INT32": "<i4"}[datatype]
    x = np.array([1, 2, 0, 77], dtype)
    raw = infer(channel, request_of(model, {"x": x}, parameters))
    request = request_of(model, {"x": x}, parameters)
    del request.raw_input_contents[:]
    getattr(request.inputs[0].contents, field).extend(x.tolist())
    assert infer(channel, request) == raw
    assert infer(channel, request) == raw


def both_ways(channel: Any, http: httpx.Client, model: str, inputs: Any, parameters: Any, **members: Any) -> Any:
    status, detail, code = refused(channel, request_of(model, inputs, parameters, **members))
    problem = over_http(http, model, inputs, parameters).json()
    assert (detail, code) == (problem["detail"], problem["code"])
    return status


REFUSED = [
    ("quantize", {"x": X}, {**TARGET, "output_type": "!quant.unifrm<i8:f32, 0.5>"}, INVALID),
    ("quantize", {"x": X}, {**TARGET, "profile": "nope"}, INVALID),
    ("quantize", {"x": X}, {**TARGET, "output_typ": "x"}, INVALID),
    ("quantize", {"x": X}, {"profile": 1}, INVALID),
    ("quantize", {"y": X}, TARGET, INVALID),
    ("quantize", {}, TARGET, INVALID),
    ("quantize", {"x:FP31": X}, TARGET, INVALID),
    ("quantize", {"x": X.astype(np.int64)}, TARGET, INVALID),
    ("quantize", {"x": X.reshape((1,) * 40 + (4,))}, TARGET, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ("dequantize", {"x": X.astype(np.int8)}, {"input_type": "!quant.uniform<i8:f32:0, {1, 2}>"}, INVALID),
    ("nope", {"x": X}, TARGET, grpc.StatusCode.NOT_FOUND),
    ("quantize", {f"x{n}": X for n in range(257)}, TARGET, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ("quantize", {"x": X}, {**TARGET, **{f"p{n}": n for n in range(40)}}, INVALID),
    ("quantize", {"x": X, "scale": np.array([-1], np.float32)}, {"storage_type": "i8"}, INVALID),
]


@pytest.mark.parametrize(("model", "inputs", "parameters", "status"), REFUSED, ids=range(len(REFUSED)))
def test_same_errors(channel: Any, http: httpx.Client, model: str, inputs: Any, parameters: Any, status: Any) -> None:
    assert both_ways(channel, http, model, inputs, parameters) is status


def changed(change: Any) -> pb.ModelInferRequest:
    request = request_of("quantize", {"x": X}, TARGET)
    change(request)
    return request


def raw(*contents: bytes) -> Any:
    def change(request: pb.ModelInferRequest) -> None:
        del request.raw_input_contents[:]
        request.raw_input_contents.extend(contents)

    return change


def contents(field: str, values: list[Any], datatype: str = "FP32", *, both: bool = False) -> Any:
    def change(request: pb.ModelInferRequest) -> None:
        if not both:
            del request.raw_input_contents[:]
        request.inputs[0].datatype = datatype
        getattr(request.inputs[0].contents, field).extend(values)

    return change


def output_twice(request: pb.ModelInferRequest) -> None:
    request.outputs.add(name="y")
    request.outputs.add(name="y")


ODD = {
    "both": (contents("fp32_contents", [1.0] * 4, both=True), "x has contents, and the request has raw_input"),
    "neither": (raw(), "x has no elements; they are sent in raw_input_contents or in contents"),
    "two_raw": (raw(b"1234" * 4, b""), "there are 2 raw_input_contents; expected 1"),
    "short": (raw(b"123"), "raw_input_contents 0 has 3 bytes; x has 4 elements of 4 bytes, which is 16"),
    "long": (raw(bytes(20)), "raw_input_contents 0 has 20 bytes"),
    "few_contents": (contents("fp32_contents", [1.0]), "fp32_contents has 1 elements; the shape of x has 4"),
    "other_contents": (contents("int_contents", [1] * 4), "FP32 is sent in fp32_contents"),
    "bytes": (contents("bytes_contents", [b"1"] * 4), "FP32 is sent in fp32_contents"),
    "fp16": (contents("fp32_contents", [1.0] * 4, "FP16"), "FP16 has no contents; send it in raw_input_contents"),
    "bytes_datatype": (contents("bytes_contents", [b"1"] * 4, "BYTES"), "no datatype is named 'BYTES'"),
    "negative": (lambda request: request.inputs[0].shape.append(-1), "a dimension is a number from 0 to 2^40"),
    "overflow": (lambda request: request.inputs[0].shape.extend([1 << 40] * 2), "raw_input_contents 0 has 16 bytes"),
    "id": (lambda request: setattr(request, "id", "x" * 257), "an id has at most 256 characters"),
    "output": (
        lambda request: request.outputs.add(name="z"),
        "it has y, scale, zero_point",
    ),
    "output_twice": (output_twice, "the output y occurs more than once"),
    "no_value": (lambda request: request.parameters["nan"], "/parameters: the value of a parameter is a text"),
    "version": (lambda request: setattr(request, "model_version", "2"), "quantize has no version '2'; available: 1"),
    "shared": (
        lambda request: parameters_into(request.inputs[0].parameters, {"classification": 1}),
        "not a parameter of an input",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_requests(channel: Any, name: str) -> None:
    change, text = ODD[name]
    status, detail, code = refused(channel, changed(change))
    assert text in detail
    assert status is (grpc.StatusCode.NOT_FOUND if name == "version" else INVALID)
    assert code
    assert outputs_of(infer(channel, request_of("quantize", {"x": X}, TARGET)))["y"].tolist() == [3, 5, 0, 127]


def test_integers_out_of_range(channel: Any) -> None:
    request = request_of("dequantize", {"x": np.array([1, 2], np.int8)}, {"input_type": QUANTIZED})
    del request.raw_input_contents[:]
    request.inputs[0].contents.int_contents.extend([1, 128])
    assert refused(channel, request)[1] == "element 1 is 128; INT8 is -128 to 127"


def test_unusual_messages_are_read_too(channel: Any) -> None:
    """A length that is written longer than it needs to be, and an unknown field."""
    usual = request_of("quantize", {"x": X}, TARGET, id="abc").SerializeToString()
    expected = infer(channel, usual)
    assert infer(channel, usual + b"\xa2\x06\x83\x80\x00abc") == expected
    assert infer(channel, usual + b"\xa2\x06\x03abc") == expected


@pytest.mark.parametrize("message", [b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 30, b"\x0b", b"\x0a\x01\xff"])
def test_no_messages(channel: Any, message: bytes) -> None:
    assert refused(channel, message) == (
        INVALID,
        "the message is not a ModelInferRequest as protobuf writes it",
        "request_malformed",
    )


def test_id_that_is_no_text(channel: Any) -> None:
    message = request_of("quantize", {"x": X}, TARGET).SerializeToString() + b"\x1a\x01\xff"
    assert refused(channel, message)[::2] == (INVALID, "request_malformed")


def test_problem_in_the_trailing_metadata(channel: Any, http: httpx.Client) -> None:
    import json

    request = request_of("quantize", {"x": X}, {**TARGET, "output_type": "!quant.unifrm<i8:f32, 0.5>"})
    with pytest.raises(grpc.RpcError) as refusal:
        infer(channel, request, metadata=(("x-request-id", "mine"),))
    trailing = dict(refusal.value.trailing_metadata())
    over = over_http(http, "quantize", {"x": X}, {**TARGET, "output_type": "!quant.unifrm<i8:f32, 0.5>"}).json()
    del over["error"]
    assert json.loads(trailing["requant-problem-bin"]) == {**over, "request_id": "mine"}
    assert trailing["x-request-id"] == "mine"


def test_stream(channel: Any) -> None:
    """Requests are answered in order, and one that fails does not end the stream."""
    stream = channel.stream_stream(
        f"/{SERVICE}/ModelStreamInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelStreamInferResponse.FromString,
    )
    requests = [request_of("quantize", {"x": X + np.float32(n)}, TARGET, id=str(n)) for n in range(5)]
    requests[2].parameters["nope"].int64_param = 1
    replies = list(stream(iter(requests), timeout=60))
    assert [reply.infer_response.id for reply in replies] == list("01234")
    assert [bool(reply.error_message) for reply in replies] == [False, False, True, False, False]
    assert "parameter nope: not a parameter" in replies[2].error_message
    assert outputs_of(replies[4].infer_response)["y"].tolist() == [11, 13, 8, 127]
