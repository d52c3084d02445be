"""The Open Inference Protocol through the real server: what it says of itself, and every form of a request."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import httpx
import numpy as np
import pytest

from requant.operators.registry import OPERATORS
from requant_service.oip.models.registry import MODELS as REGISTERED
from tests.support.oip_wire import DTYPES, LENGTH, Array, Input, body_of, infer, read

TARGET = "!quant.uniform<i8:f32, 0.5:3>"
X = np.array([[0.25, 0.75, -1.5], [2.0, 100.0, np.nan]], np.float32)
Y = [[3, 5, 0], [7, 127, -128]]
QUANTIZE = {"output_type": TARGET, "profile": "onnx"}
MODELS = [name for name in REGISTERED if name not in OPERATORS]


def quantized(client: httpx.Client, inputs: list[Input], **members: Any) -> Array:
    return read(infer(client, "quantize", inputs, parameters=QUANTIZE, **members)).outputs["y"]


def test_the_server_says_what_it_is(client: httpx.Client) -> None:
    found = client.get("/v2").json()
    assert found["name"] == "requant"
    assert found["version"] == client.get("/v1/info").json()["version"]
    assert found["extensions"] == ["binary_tensor_data", "parameters"]
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True, "live": True}
    assert client.get("/v2/models").json() == {"models": [*MODELS, *OPERATORS]}
    index = client.post("/v2/repository/index").json()
    assert [(entry["name"], entry["version"], entry["state"]) for entry in index] == [
        *((name, "1", "READY") for name in MODELS),
        *(
            (name, str(version), "READY")
            for name, operator in OPERATORS.items()
            for version in operator.versions or (1,)
        ),
    ]


@pytest.mark.parametrize("name", MODELS)
def test_each_model_says_what_it_takes(client: httpx.Client, name: str) -> None:
    found = client.get(f"/v2/models/{name}").json()
    assert (found["name"], found["versions"], found["platform"]) == (name, ["1"], "requant")
    assert client.get(f"/v2/models/{name}/versions/1").json() == found
    for tensor in [*found["inputs"], *found["outputs"]]:
        assert tensor["shape"] == [-1]
        assert tensor["datatype"] in DTYPES
        assert set(tensor["parameters"]["datatypes"].split(", ")) <= set(DTYPES)
        # The protocol's parameters are texts, numbers and booleans.
        assert all(isinstance(value, (str, bool)) for value in tensor["parameters"].values())
    for parameter in found["request_parameters"]:
        assert parameter["description"]
        if {"default", "choices"} <= parameter.keys():
            assert parameter["default"] in parameter["choices"]
        assert not (parameter["required"] and "default" in parameter)
    for path in (f"/v2/models/{name}/ready", f"/v2/models/{name}/versions/1/ready"):
        assert client.get(path).json() == {"name": name, "ready": True}


@pytest.mark.parametrize(
    "path", ["/v2/models/nope", "/v2/models/quantize/versions/2", "/v2/models/Quantize/versions/1"]
)
@pytest.mark.parametrize("what", ["", "/ready", "/infer"])
def test_other_models_and_versions_are_not_there(client: httpx.Client, path: str, what: str) -> None:
    reply = client.request("POST" if what == "/infer" else "GET", path + what)
    problem = reply.json()
    assert (reply.status_code, problem["status"], problem["code"]) == (404, 404, "unknown_name")
    assert problem["error"] == problem["detail"]


@pytest.mark.parametrize("data", [None, "flat", "nested"])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_every_form_of_input_and_output(client: httpx.Client, data: str | None, binary: bool, version: str) -> None:
    flat: list[Any] = [0.25, 0.75, -1.5, 2.0, 100.0, "NaN"]
    given = {None: None, "flat": flat, "nested": [flat[:3], flat[3:]]}[data]
    members: dict[str, Any] = {"id": "a-1", "parameters": {**QUANTIZE, "binary_data_output": binary}}
    body, headers = body_of([Input("x", X, data=given)], **members)
    response = client.post(f"/v2/models/quantize{version}/infer", content=body, headers=headers)
    reply = read(response)
    assert reply.outputs["y"].tolist() == Y
    assert reply.head["id"] == "a-1"
    assert (reply.head["model_name"], reply.head["model_version"]) == ("quantize", "1")
    assert reply.head["parameters"] == {
        "output_type": "tensor<2x3x!quant.uniform<i8:f32, 5.000000e-01:3>>",
        "profile": "onnx",
        "rounding": "nearest_even",
        "elements": 6,
        "saturated_low": 0,
        "saturated_high": 1,
        "nan": 1,
        "saturated": 1,
    }
    (output,) = reply.head["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("y", "INT8", [2, 3])
    assert output["parameters"]["element_type"] == "i8"
    assert ("binary_data_size" in output["parameters"]) is (LENGTH in response.headers) is binary
    assert ("data" in output) is not binary


def test_an_id_is_returned_as_it_came_or_not_at_all(client: httpx.Client) -> None:
    for given in ("", "x" * 256, '日本 \\ " \n'):
        assert read(infer(client, "quantize", [Input("x", X)], parameters=QUANTIZE, id=given)).head["id"] == given
    assert "id" not in read(infer(client, "quantize", [Input("x", X)], parameters=QUANTIZE)).head


def test_each_output_may_be_asked_for_by_itself(client: httpx.Client) -> None:
    stored = Input("x", np.array([1000, 2000], np.int32))
    types = {"input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": "!quant.uniform<i8:f32, 0.25:-1>"}
    everything = read(infer(client, "requantize", [stored], parameters=types))
    assert list(everything.outputs) == ["y", "multiplier", "shift"]
    wanted = [{"name": "shift"}, {"name": "y", "parameters": {"binary_data": True}}]
    some = read(infer(client, "requantize", [stored], parameters=types, outputs=wanted))
    assert list(some.outputs) == ["shift", "y"]
    assert some.outputs["y"].tolist() == everything.outputs["y"].tolist() == [3, 7]
    assert some.outputs["shift"].tolist() == everything.outputs["shift"].tolist()
    assert ["data" in output for output in some.head["outputs"]] == [True, False]
    # What is asked for by name overrides what is asked for of all.
    own = [{"name": "y", "parameters": {"binary_data": False}}, {"name": "shift"}]
    mixed = read(infer(client, "requantize", [stored], parameters={**types, "binary_data_output": True}, outputs=own))
    assert ["data" in output for output in mixed.head["outputs"]] == [True, False]


def test_no_content_type_is_asked_for_and_none_is_refused(client: httpx.Client) -> None:
    body, headers = body_of([Input("x", X)], parameters=QUANTIZE)
    for kind in (None, "application/json", "application/octet-stream", "text/plain", "nonsense"):
        given = headers if kind is None else headers | {"content-type": kind}
        reply = client.post("/v2/models/quantize/infer", content=body, headers=given)
        assert read(reply).outputs["y"].tolist() == Y


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "GZIP", "identity"])
@pytest.mark.parametrize("chunked", [False, True])
def test_compressed_bodies(client: httpx.Client, coding: str, chunked: bool) -> None:
    x = np.random.default_rng(1).normal(size=(300, 1000)).astype(np.float32)
    parameters = {"output_type": "!quant.uniform<i8:f32, 0.05>", "binary_data_output": True}
    body, headers = body_of([Input("x", x)], parameters=parameters)
    plain = client.post("/v2/models/quantize/infer", content=body, headers=headers)
    packed = body
    if coding != "identity":
        packed = zlib.compress(body) if coding == "deflate" else gzip.compress(body)
    content = (packed[at : at + 999] for at in range(0, len(packed), 999)) if chunked else packed
    reply = client.post("/v2/models/quantize/infer", content=content, headers=headers | {"content-encoding": coding})
    assert read(reply).outputs["y"].tobytes() == read(plain).outputs["y"].tobytes()


def test_tensors_that_compress_well_are_no_bombs_while_they_are_short(client: httpx.Client) -> None:
    body, headers = body_of(
        [Input("x", np.zeros(100_000, np.float32))], parameters=QUANTIZE | {"binary_data_output": True}
    )
    packed = gzip.compress(body)
    assert len(body) > 100 * len(packed)
    reply = client.post("/v2/models/quantize/infer", content=packed, headers=headers | {"content-encoding": "gzip"})
    assert (read(reply).outputs["y"] == 3).all()


@pytest.mark.parametrize("chunked", [False, True])
def test_blobs_lie_anywhere_in_the_body(client: httpx.Client, chunked: bool) -> None:
    """The padding moves the first byte of the tensors through all alignments; two inputs, the first of odd length."""
    a = np.arange(7, dtype=np.int8)
    for padding in range(9):
        b = a.astype(np.float64) + (a == 5)
        body, headers = body_of(
            [Input("a", a), Input("b", b)],
            id="x" * padding,
            parameters={"a_type": "!quant.uniform<i8:f32, 1.0>"},
        )
        content = (body[at : at + 1] for at in range(len(body))) if chunked else body
        reply = read(client.post("/v2/models/compare/infer", content=content, headers=headers))
        assert (reply.head["parameters"]["mismatches"], reply.outputs["first"].tolist()) == (1, [5])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), ()])
def test_tensors_without_elements_and_without_dimensions(client: httpx.Client, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    for data in (None, x.reshape(-1).tolist()):
        y = quantized(client, [Input("x", x, data=data)])
        assert y.shape == shape
        assert (y == 5).all()


def test_what_kserves_client_sends_for_an_empty_tensor(client: httpx.Client) -> None:
    given = {"name": "x", "shape": [0], "datatype": "FP32", "data": None, "parameters": {"binary_data_size": 0}}
    body = {"id": "1", "model_name": "quantize", "inputs": [given], "parameters": QUANTIZE}
    assert read(client.post("/v2/models/quantize/infer", json=body)).outputs["y"].shape == (0,)


@pytest.mark.parametrize(
    ("datatype", "x", "numbers"),
    [
        ("FP16", np.array([0.1, 65504, np.inf, -0.0], "<f2"), [0.1, 65504, "Infinity", -0.0]),
        ("FP32", np.array([0.1, 16777216, -np.inf, 1e-45], "<f4"), [0.1, 16777217, "-Infinity", 1e-45]),
        ("FP64", np.array([0.1, 1e300, np.inf, 5e-324], "<f8"), [0.1, 1e300, "Infinity", 5e-324]),
        ("BF16", np.array([0x3DCD, 0x4B80, 0x7F80, 0x8000], "<u2"), [0.1, 16777216, "Infinity", -0.0]),
    ],
)
def test_reals_as_json_are_those_of_binary(client: httpx.Client, datatype: str, x: Array, numbers: list[Any]) -> None:
    """compare counts the bits that differ, and that is none."""
    expressed = {"FP16": "f16", "FP32": "f32", "FP64": "f64", "BF16": "bf16"}[datatype]
    inputs = [Input("a", x, datatype), Input("b", x, datatype, numbers)]
    reply = read(infer(client, "compare", inputs))
    assert (reply.head["parameters"]["bit_mismatches"], reply.head["parameters"]["elements"]) == (0, 4)
    # And both ways: scale 1 gives the stored numbers back as they are.
    stored = Input("x", np.array([1, -2, 3], np.int8))
    types = {"input_type": f"!quant.uniform<i8:{expressed}, 1.0>"}
    back = read(infer(client, "dequantize", [stored], parameters=types))
    assert (back.head["outputs"][0]["datatype"], back.head["outputs"][0]["data"]) == (datatype, [1.0, -2.0, 3.0])
    assert back.head["outputs"][0]["parameters"]["element_type"] == expressed


@pytest.mark.parametrize("datatype", [name for name in DTYPES if "INT" in name])
def test_integers_as_json_are_those_of_binary(client: httpx.Client, datatype: str) -> None:
    limits = np.iinfo(np.dtype(DTYPES[datatype]))
    x = np.array([limits.min, 0, 1, limits.max], DTYPES[datatype])
    reply = read(infer(client, "compare", [Input("a", x), Input("b", x, data=x.tolist())]))
    assert reply.head["parameters"]["bit_mismatches"] == 0


def test_booleans_are_bytes_and_words(client: httpx.Client) -> None:
    x = np.array([True, False, True])
    for data in ([True, False, False], [1, 0, 0]):
        reply = read(infer(client, "compare", [Input("a", x), Input("b", x, "BOOL", data)]))
        assert reply.outputs["first"].tolist() == [2]


@pytest.mark.parametrize("tokens", ["NaN,Infinity,-Infinity,1e-400", "null,1", "1e999,1,1,1"])
def test_tokens_that_json_does_not_have(client: httpx.Client, tokens: str) -> None:
    """tritonclient writes NaN and Infinity as bare tokens. A number that is too large is no infinity."""
    head = f'"parameters": {json.dumps(QUANTIZE)}, "inputs": [{{"name": "x", "shape": [4], "datatype": "FP32", "data": '
    reply = client.post("/v2/models/quantize/infer", content=f"{{{head}[{tokens}]}}]}}")
    if tokens.startswith("NaN"):
        assert read(reply).outputs["y"].tolist() == [-128, 127, -128, 3]
    else:
        assert (reply.status_code, reply.json()["code"]) == (400, "tensor_data")


def test_non_finite_numbers_are_written_as_texts(client: httpx.Client) -> None:
    stored = Input("x", np.array([0x7E, 0x7F, 0xFF], np.uint8))
    types = {"input_type": "!quant.uniform<f8E4M3FN:f32, 1.0>", "profile": "onnx"}
    (output,) = read(infer(client, "dequantize", [stored], parameters=types)).head["outputs"]
    assert output["data"] == [448.0, "NaN", "NaN"]


def test_small_floats_and_narrow_integers_travel_in_bytes(client: httpx.Client) -> None:
    x = np.array([1.0, -2.0, 7.0], np.float32)
    for storage, datatype, stored in (
        ("f8E4M3FN", "UINT8", [0x38, 0xC0, 0x4E]),
        ("i4", "INT8", [1, -2, 7]),
        ("u2", "UINT8", [1, 0, 3]),
    ):
        types = {"output_type": f"!quant.uniform<{storage}:f32, 1.0>"}
        if storage.startswith("f8"):
            types["profile"] = "onnx"
        reply = read(infer(client, "quantize", [Input("x", x)], parameters=types))
        (output,) = reply.head["outputs"]
        assert (output["datatype"], output["parameters"]["element_type"]) == (datatype, storage)
        assert reply.outputs["y"].tolist() == stored


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_scales_as_tensors_are_those_of_the_type(client: httpx.Client, axis: int | None) -> None:
    x = np.random.default_rng(3).normal(size=(3, 3)).astype(np.float32) * 20
    scale = np.array([0.1, 0.25, 0.3] if axis is not None else [0.1], np.float32)
    zero_point = np.array([3, 0, -7][: scale.size], np.int32)
    pairs = ", ".join(f"{float(s)!r}:{z}" for s, z in zip(scale, zero_point, strict=True))
    parameters = pairs if axis is None else f"{{{pairs}}}"
    text = f"!quant.uniform<i8<-127:127>:f32{'' if axis is None else f':{axis}'}, {parameters}>"
    tensors = [Input("scale", scale), Input("zero_point", zero_point)]
    along: dict[str, Any] = {"storage_type": "i8<-127:127>", **({} if axis is None else {"axis": axis})}
    by_text = read(infer(client, "quantize", [Input("x", x)], parameters={"output_type": text}))
    by_tensor = read(infer(client, "quantize", [Input("x", x), *tensors], parameters=along))
    assert by_tensor.outputs["y"].tobytes() == by_text.outputs["y"].tobytes()
    assert by_tensor.head["parameters"] == by_text.head["parameters"]

    stored = Input("x", by_text.outputs["y"])
    back = read(infer(client, "dequantize", [stored], parameters={"input_type": text}))
    again = read(infer(client, "dequantize", [stored, *tensors], parameters=along))
    assert again.outputs["y"].tobytes() == back.outputs["y"].tobytes()


def test_without_zero_points_and_storage_the_scale_is_enough_to_dequantize(client: httpx.Client) -> None:
    for dtype, scale in ((np.uint8, np.array(0.5, np.float16)), (np.int16, np.array([0.5], np.float64))):
        inputs = [Input("x", np.array([1, 200], dtype)), Input("scale", scale)]
        reply = read(infer(client, "dequantize", inputs))
        assert reply.outputs["y"].tolist() == [0.5, 100.0]
        assert reply.outputs["y"].dtype == scale.dtype


def test_a_raw_request_is_a_tensor_without_json(client: httpx.Client) -> None:
    x = np.array([0.25, 0.75, -1.5], np.float32)
    for content in (x.tobytes(), (x.tobytes()[at : at + 1] for at in range(12))):
        reply = client.post("/v2/models/quantize/infer", params=QUANTIZE, content=content, headers={LENGTH: "0"})
        found = read(reply)
        assert found.outputs["y"].tolist() == [3, 5, 0]
        assert found.head["outputs"][0]["parameters"]["binary_data_size"] == 3
    stochastic = {"output_type": TARGET, "rounding": "stochastic", "seed": "7"}
    reply = client.post("/v2/models/quantize/infer", params=stochastic, content=x.tobytes(), headers={LENGTH: "0"})
    assert read(reply).head["parameters"]["rounding"] == "stochastic"
