"""Ranges, biases and fake quantization over HTTP: core's numbers, the finished type, and what is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import numpy as np
import pytest

from requant.calibration.bias import BIAS_RULES, bias_rule_named
from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES
from requant.calibration.ranges import RANGE_RULES
from requant.description import OperationCall
from requant.mlir import parse_storage, parse_type, print_storage, print_type
from requant.mlir.types import TensorType
from requant.operations.bias import DERIVE_BIAS
from requant.operations.parameters import DERIVE_FROM_TENSOR
from requant_service.runtime.settings import Settings
from tests.support.cases import sample
from tests.vector_cases import fake_quant_cases, load, range_cases

RANGE = {"minimums": [-1.0], "maximums": [2.0], "storage": "i8", "scheme": "litert"}
BIAS = {"input_scale": 0.5, "weight_scales": [0.25, 0.125], "scheme": "litert"}
FAKE = {"input": {"type": "tensor<4xf32>", "values": [-0.5, 0.1, 0.2, 3.0]}, "minimums": [-1.0], "maximums": [1.0]}


def parse_tensor(text: str) -> TensorType:
    type_ = parse_type(text)
    assert isinstance(type_, TensorType)
    return type_


def post(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_vectors(client: httpx.Client) -> None:
    for case in sample(list(range_cases()), 150):
        body = {
            "minimums": [case.minimum],
            "maximums": [case.maximum],
            "storage": case.storage,
            "scheme": case.scheme,
            **case.options,
        }
        given = {name: value for name, value in body.items() if value is not False}
        found = post(client, "/v1/parameters/range", given)
        assert found["scales"] == [case.scale]
        assert case.zero_point is None or found["zero_points"] == [case.zero_point]
        if case.scale == 0:
            assert "type" not in found
            assert "scale 0.0 is outside" in found["untyped"]
            continue
        type_: Any = parse_type(found["type"])
        assert (type_.scale, type_.zero_point) == (case.scale, found["zero_points"][0])
        assert found["storage"] == print_storage(type_.storage)
        if case.nudged is not None:
            assert (found["nudged_minimums"], found["nudged_maximums"]) == ([case.nudged[0]], [case.nudged[1]])


@pytest.mark.parametrize("scheme", RANGE_RULES)
def test_every_scheme_makes_a_type_for_the_next_call(client: httpx.Client, scheme: str) -> None:
    storage = "i8" if scheme in ("litert_converter", "litert_hybrid", "torch_per_token") else "u8"
    blocks: dict[str, Any] = {"shape": [2], "block_sizes": [2]} if scheme == "onnxruntime_blocked" else {}
    ends = {"minimums": [0.0], "maximums": [2.0]}
    found = post(client, "/v1/parameters/range", {**ends, "storage": storage, "scheme": scheme, **blocks})
    stored = post(
        client,
        "/v1/quantize",
        {
            "input": {"type": "tensor<2xf32>", "values": [0.0, 1.0]},
            "output_type": found["type"],
            "profile": "onnx",
        },
    )
    assert stored["report"]["saturated_low"] == stored["report"]["saturated_high"] == 0


def test_one_for_each_channel_and_block(client: httpx.Client) -> None:
    body = {"minimums": [-1.0, 0.0], "maximums": [1.0, 3.0], "storage": "i8", "scheme": "torch_observer"}
    found = post(client, "/v1/parameters/range", {**body, "axis": 3, "symmetric": True})
    type_: Any = parse_type(found["type"])
    assert (type_.axis, list(type_.scales), list(type_.zero_points)) == (3, found["scales"], [0, 0])
    found = post(client, "/v1/parameters/range", {**body, "shape": [3, 5], "block_sizes": [2, 5]})
    type_ = parse_type(found["type"])
    assert (type_.blocks, type_.scale_shape) == (((0, 2),), (2, 1))
    assert list(type_.scales) == found["scales"]


def test_many_channels(client: httpx.Client) -> None:
    count = 65536
    body = {**RANGE, "minimums": [-1.0] * count, "maximums": [index / 7 for index in range(count)], "axis": 0}
    found = post(client, "/v1/parameters/range", body)
    assert len(found["scales"]) == len(found["zero_points"]) == count


def test_scale_of_zero_has_no_type(client: httpx.Client) -> None:
    found = post(client, "/v1/parameters/range", {**RANGE, "minimums": [0.0], "maximums": [0.0]})
    assert (found["scales"], found["zero_points"]) == ([0.0], [0])
    assert "type" not in found
    assert "scale 0" in found["untyped"]


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"scheme": "ours"}, "unknown_name", "/scheme"),
        ({"storage": "i8:f32"}, "type_invalid", "/storage"),
        ({"storage": "i33"}, "type_invalid", "/storage"),
        ({"storage": "i8<3:3>"}, "type_invalid", "/storage"),
        ({"storage": "f8E5M2"}, "unsupported", "/storage"),
        ({"storage": "i4"}, "unsupported", "/storage"),
        ({"storage": "x" * 300}, "request_invalid", "/storage"),
        ({"expressed": "i8"}, "unsupported", "/expressed"),
        ({"expressed": "f33"}, "type_invalid", "/expressed"),
        ({"symmetric": True}, "unsupported", "/symmetric"),
        ({"symmetric": 1}, "request_invalid", "/symmetric"),
        ({"epsilon": 0.0, "scheme": "torch_observer"}, "parameter_invalid", "/epsilon"),
        ({"minimum_real_range": -1.0, "scheme": "onnxruntime"}, "parameter_invalid", "/minimum_real_range"),
        ({"minimums": [3.0]}, "parameter_invalid", "/minimums/0"),
        ({"minimums": [-1.0, 3.0], "maximums": [2.0, 2.0], "axis": 0}, "parameter_invalid", "/minimums/1"),
        ({"minimums": [1.0]}, "parameter_invalid", "/minimums/0"),
        ({"minimums": [1e39], "maximums": [2e39], "scheme": "torch"}, "parameter_invalid", "/minimums/0"),
        ({"minimums": [-3e38], "maximums": [3e38], "scheme": "torch_observer"}, "precondition_failed", "/minimums/0"),
        ({"minimums": [-1.7e308], "maximums": [1.7e308]}, "precondition_failed", "/minimums/0"),
        ({"minimums": ["NaN"]}, "request_invalid", "/minimums/0"),
        ({"minimums": ["Infinity"]}, "request_invalid", "/minimums/0"),
        ({"minimums": [True]}, "request_invalid", "/minimums/0"),
        ({"minimums": [None]}, "request_invalid", "/minimums/0"),
        ({"minimums": []}, "request_invalid", "/minimums"),
        ({"minimums": [0.0, 0.0]}, "request_invalid", "/maximums"),
        ({"minimums": [0.0, 0.0], "maximums": [1.0, 1.0]}, "request_invalid", "/axis"),
        ({"axis": -1}, "request_invalid", "/axis"),
        ({"axis": 0, "shape": [1], "block_sizes": [1]}, "request_invalid", "/axis"),
        ({"shape": [], "block_sizes": []}, "request_invalid", "/shape"),
        ({"block_sizes": [1]}, "request_invalid", "/shape"),
        ({"shape": [4]}, "request_invalid", "/block_sizes"),
        ({"shape": [4], "block_sizes": [0]}, "request_invalid", "/block_sizes/0"),
        ({"shape": [4], "block_sizes": [2]}, "type_does_not_fit", "/minimums"),
        ({"shape": [2**63 - 1] * 3, "block_sizes": [1] * 3}, "type_does_not_fit", "/minimums"),
        ({"shape": [1] * 33, "block_sizes": [1] * 33}, "limit_exceeded", "/shape"),
        ({"shape": [4], "block_sizes": [4], "scheme": "onnxruntime"}, "unsupported", "/scheme"),
        ({"scheme": "onnxruntime_blocked"}, "unsupported", "/scheme"),
        ({"scale": 1.0}, "request_invalid", "/scale"),
    ],
)
def test_refused(client: httpx.Client, change: dict[str, Any], code: str, pointer: str) -> None:
    reply = client.post("/v1/parameters/range", json={**RANGE, **change})
    assert reply.status_code in (413, 422)
    assert (reply.json()["code"], reply.json()["errors"][0]["pointer"]) == (code, pointer), reply.text


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "1" + "0" * 400, "-1e400", "1e-5000"])
@pytest.mark.parametrize("path", ["/v1/parameters/range", "/v1/parameters/bias", "/v1/fake_quantize"])
def test_numbers_that_no_double_holds(client: httpx.Client, path: str, literal: str) -> None:
    bodies: dict[str, dict[str, Any]] = {"range": RANGE, "bias": BIAS, "fake_quantize": FAKE}
    body = bodies[path.rpartition("/")[2]]
    field = "weight_scales" if "bias" in path else "minimums"
    text = json.dumps({**body, field: [111]}).replace("111", literal)
    reply = client.post(path, content=text.encode(), headers={"content-type": "application/json"})
    if literal == "1e-5000":  # it is 0
        assert reply.status_code == 200, reply.text
    else:
        assert (reply.status_code, reply.json()["code"]) == (422, "request_invalid"), reply.text


def test_bias(client: httpx.Client) -> None:
    values = {"type": "tensor<2xf32>", "values": [1.0, -2.5]}
    found = post(client, "/v1/parameters/bias", {**BIAS, "bias": values})
    assert found["scales"] == [0.125, 0.0625]
    assert found["zero_points"] == [0, 0]
    assert found["type"] == "!quant.uniform<i32:f32:0, {1.250000e-01,6.250000e-02}>"
    assert found["output"] == {"type": f"tensor<2x{found['type']}>", "values": [8, -40]}
    assert found["report"] == {"elements": 2, "saturated_low": 0, "saturated_high": 0}
    back = post(client, "/v1/dequantize", {"input": found["output"]})
    assert back["output"]["values"] == [1.0, -2.5]
    without = post(client, "/v1/parameters/bias", BIAS)
    assert without == {name: found[name] for name in ("scheme", "scales", "zero_points", "type")}


@pytest.mark.parametrize("scheme", BIAS_RULES)
def test_bias_as_data(client: httpx.Client, scheme: str) -> None:
    data = np.array([[3e9], [-3e9], [4.0]], np.float32)
    tensor = {"type": "tensor<3x1xf32>", "data": base64.b64encode(data.tobytes()).decode()}
    body = {"input_scale": 1.0, "weight_scales": [1.0], "scheme": scheme, "bias": tensor}
    found = post(client, "/v1/parameters/bias", body)
    stored = np.frombuffer(base64.b64decode(found["output"]["data"]), "<i4").tolist()
    assert stored == [2**31 - 1, 1 - 2**31 if scheme == "litert" else -(2**31), 4]
    assert (found["report"]["saturated_low"], found["report"]["saturated_high"]) == (1, 1)


def test_converter_bias(client: httpx.Client) -> None:
    row = load("litert_converter")["biases"][0]
    floats = {
        name: np.array([int(bits, 16) for bits in row[name]], "<u4").view("<f4") for name in ("weight_scales", "bias")
    }
    (input_scale,) = np.array([int(row["input_scale"], 16)], "<u4").view("<f4").tolist()
    body = {
        "input_scale": input_scale,
        "weight_scales": floats["weight_scales"].tolist(),
        "scheme": "litert",
        "bias": {"type": f"tensor<{floats['bias'].size}xf32>", "values": floats["bias"].tolist()},
    }
    assert post(client, "/v1/parameters/bias", body)["output"]["values"] == row["quantized"]


def test_bias_of_a_zero_scale_is_plain_integers(client: httpx.Client) -> None:
    body = {**BIAS, "weight_scales": [0.0], "bias": {"type": "tensor<1xf32>", "values": [7.0]}}
    found = post(client, "/v1/parameters/bias", body)
    assert (found["output"], found["scales"]) == ({"type": "tensor<1xi32>", "values": [0]}, [0.0])
    assert "type" not in found


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"scheme": "ours"}, "unknown_name", "/scheme"),
        ({"input_scale": -0.5}, "parameter_invalid", "/input_scale"),
        ({"weight_scales": [1.0, -1.0]}, "parameter_invalid", "/weight_scales/1"),
        ({"weight_scales": [1.0, 1e39]}, "parameter_invalid", "/weight_scales/1"),
        ({"weight_scales": []}, "request_invalid", "/weight_scales"),
        ({"input_scale": 1e30, "weight_scales": [1.0, 1e30]}, "precondition_failed", "/weight_scales/1"),
        ({"bias": {"type": "tensor<2xf64>", "values": [1, 2]}}, "unsupported", "/bias/type"),
        ({"bias": {"type": "tensor<3xf32>", "values": [1, 2, 3]}}, "type_does_not_fit", "/bias/type"),
        ({"bias": {"type": "tensor<?xf32>", "values": [1, 2]}}, "type_does_not_fit", "/bias/type"),
        ({"bias": {"type": "tensor<2xf32>", "values": [1, "NaN"]}}, "parameter_invalid", "/bias"),
        ({"bias": {"type": "tensor<2xf32>", "values": [1]}}, "tensor_data", "/bias/values"),
        ({"bias": None}, "request_invalid", "/bias"),
    ],
)
def test_bias_refused(client: httpx.Client, change: dict[str, Any], code: str, pointer: str) -> None:
    reply = client.post("/v1/parameters/bias", json={**BIAS, **change})
    assert reply.status_code in (400, 422)
    assert (reply.json()["code"], reply.json()["errors"][0]["pointer"]) == (code, pointer), reply.text


def test_fake_quantize_vectors(client: httpx.Client) -> None:
    for case in fake_quant_cases():
        shape = "x".join(map(str, case.shape))
        body = {
            "input": {"type": f"tensor<{shape}xf32>", "data": base64.b64encode(case.x.tobytes()).decode()},
            "minimums": case.ranges[0].tolist(),
            "maximums": case.ranges[1].tolist(),
            "num_bits": case.num_bits,
            "narrow_range": case.narrow_range,
            "scheme": case.scheme,
        }
        if case.per_channel:
            body["axis"] = len(case.shape) - 1
        found = post(client, "/v1/fake_quantize", body)
        stepped = np.frombuffer(base64.b64decode(found["output"]["data"]), "<f4")
        both_nan = np.isnan(stepped) & np.isnan(case.y)
        assert np.all((stepped.view("<u4") == case.y.view("<u4")) | both_nan)
        assert len(found["scales"]) == len(case.ranges[0])


@pytest.mark.parametrize("scheme", FAKE_QUANTIZE_SCHEMES)
def test_fake_quantize_values(client: httpx.Client, scheme: str) -> None:
    found = post(client, "/v1/fake_quantize", {**FAKE, "scheme": scheme})
    assert found["output"]["type"] == "tensor<4xf32>"
    # LiteRT counts its steps from the low end, so that its last one may miss the high end by a rounding.
    last = {"litert": 1.0039215087890625}.get(scheme, found["nudged_maximums"][0])
    assert np.float32(found["output"]["values"][3]) == last


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"scheme": "ours"}, "unknown_name", "/scheme"),
        ({"num_bits": 1}, "request_invalid", "/num_bits"),
        ({"num_bits": 17}, "request_invalid", "/num_bits"),
        ({"minimums": [1.0], "maximums": [1.0]}, "parameter_invalid", "/minimums/0"),
        ({"minimums": [-3e38], "maximums": [3e38]}, "precondition_failed", "/minimums/0"),
        ({"maximums": [1.0, 1.0]}, "parameter_invalid", "/minimums"),
        ({"axis": 0}, "type_does_not_fit", "/input/type"),
        ({"axis": 1}, "unsupported", "/input/type"),
        ({"axis": 0, "scheme": "litert"}, "unsupported", "/input/type"),
        ({"input": {"type": "tensor<1xf16>", "values": [1]}}, "unsupported", "/input/type"),
        ({"input": {"type": "tensor<4x!quant.uniform<i8:f32, 1.0>>", "values": [1] * 4}}, "unsupported", "/input/type"),
    ],
)
def test_fake_quantize_refused(client: httpx.Client, change: dict[str, Any], code: str, pointer: str) -> None:
    reply = client.post("/v1/fake_quantize", json={**FAKE, **change})
    assert reply.status_code == 422
    assert (reply.json()["code"], reply.json()["errors"][0]["pointer"]) == (code, pointer), reply.text


def test_a_type_of_many_scales_is_printed_once() -> None:
    """Printing one takes most of the time of a request."""
    types, scales = {"bias": parse_tensor("tensor<2xf32>")}, np.array([0.5, 0.25])
    options = {"scheme": bias_rule_named("litert")}
    work = DERIVE_BIAS.plan(OperationCall(types, options, {"input_scale": np.array([0.5]), "weight_scales": scales}))
    output = work.run({"bias": np.ones(2, np.float32)}).outputs["output"]
    assert output.text == print_type(output.type) == output.type_text


def test_many_ranges_of_a_tensor_are_not_derived_on_the_event_loop(client: httpx.Client) -> None:
    tensor = {"type": "tensor<10000x1xf32>", "data": base64.b64encode(bytes(40000)).decode()}
    work = DERIVE_FROM_TENSOR.plan(
        OperationCall(
            {"input": parse_tensor("tensor<10000x1xf32>")},
            {each.name: each.resolve(each.default) for each in DERIVE_FROM_TENSOR.options}
            | {"storage": parse_storage("i8"), "axis": 0},
            counts={"input": 1},
        )
    )
    assert work.cost > Settings().inline_bytes
    assert len(post(client, "/v1/parameters/tensor", {"input": tensor, "storage": "i8", "axis": 0})["scales"]) == 10000
