"""What is refused of a quantization whose scales are to be found, where each protocol points, and what is reserved."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.calibration.ranges import RANGE_RULES
from requant.operations.derived_scales import CALIBRATION
from requant_service.operations.calibration.options import CALIBRATION_OPTIONS
from tests.service.replies import npy
from tests.support import oip_wire
from tests.support.asgi import post, ready_app

X = np.array([[0.5, -1.0, 0.25], [8.0, -3.0, 2.0]], np.float32)
OPEN = "!quant.any<i8:f32>"
CALIBRATED = "!quant.calibrated<f32<-1.0:1.0>>"

# The output type, the calibration, the code, and the pointer into a JSON request.
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    (OPEN, {"axis": 2}, "type_does_not_fit", "/calibration/axis"),
    (OPEN, {"axis": 0, "block_sizes": [1, 1]}, "request_invalid", "/calibration/axis"),
    (OPEN, {"granularity": "per_axis"}, "request_invalid", "/calibration/axis"),
    (OPEN, {"granularity": "per_tensor", "axis": 0}, "request_invalid", "/calibration/axis"),
    (OPEN, {"block_sizes": [2]}, "type_does_not_fit", "/calibration/block_sizes"),
    (OPEN, {"method": "guess"}, "unknown_name", "/calibration/method"),
    (OPEN, {"method": "torch_histogram", "axis": 0}, "unsupported", "/calibration/granularity"),
    (OPEN, {"bins": 3}, "unsupported", "/calibration/bins"),
    (OPEN, {"method": "percentile", "percentile": 101.0}, "parameter_invalid", "/calibration/percentile"),
    (OPEN, {"method": "mse", "profile": "guess"}, "unknown_name", "/calibration/profile"),
    (OPEN, {"scheme": "guess"}, "unknown_name", "/calibration/scheme"),
    (OPEN, {"scheme": "onnxruntime_blocked"}, "unsupported", "/calibration/scheme"),
    (OPEN, {"scheme": "litert", "block_sizes": [1, 3]}, "unsupported", "/output_type"),
    (OPEN, {"storage": "i8"}, "request_invalid", "/calibration/storage"),
    ("!quant.any<i3:f32>", {}, "unsupported", "/output_type"),
    ("!quant.any<f8E4M3FN:f32>", {}, "unsupported", "/output_type"),
    ("!quant.any<i8:f64>", {}, "unsupported", "/output_type"),
    ("!quant.any<i8:f32", {}, "type_invalid", "/output_type"),
    ("tensor<3x2x!quant.any<i8:f32>>", {}, "type_does_not_fit", "/output_type"),
    ("!quant.uniform<i8:f32, 0.5>", {"axis": 0}, "request_invalid", "/calibration/axis"),
    ("f16", {"block_sizes": [1, 1]}, "request_invalid", "/calibration/block_sizes"),
    ("f16", {"method": "min_max"}, "request_invalid", "/calibration/method"),
    (CALIBRATED, {}, "request_invalid", "/calibration/storage"),
    (CALIBRATED, {"storage": "i8"}, "request_invalid", "/calibration/scheme"),
    (CALIBRATED, {"storage": "i8", "scheme": "litert", "method": "mse"}, "request_invalid", "/calibration/method"),
    (CALIBRATED, {"storage": "i8", "scheme": "litert", "axis": 0}, "request_invalid", "/calibration/axis"),
    (CALIBRATED, {"storage": "what", "scheme": "litert"}, "type_invalid", "/calibration/storage"),
    (CALIBRATED, {"storage": "i3", "scheme": "litert"}, "unsupported", "/calibration/storage"),
    (CALIBRATED, {"storage": "i8", "scheme": "litert", "epsilon": 1.0}, "unsupported", "/calibration/epsilon"),
]


def flat(calibration: dict[str, Any]) -> dict[str, str]:
    names = {"profile": "calibration_profile", "storage": "storage_type"}
    return {names.get(name, name): text_of(value) for name, value in calibration.items()}


def text_of(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_json(client: httpx.Client, output_type: str, calibration: dict[str, Any], x: NDArray[Any] = X) -> httpx.Response:
    values = [str(v).replace("nan", "NaN") if np.isnan(v) else v for v in x.ravel().tolist()]
    tensor = {"type": f"tensor<{'x'.join(map(str, x.shape))}xf32>", "values": values}
    return client.post("/v1/quantize", json={"input": tensor, "output_type": output_type, "calibration": calibration})


def in_npy(client: httpx.Client, output_type: str, calibration: dict[str, Any], x: NDArray[Any] = X) -> httpx.Response:
    query = {"output_type": output_type, **flat(calibration)}
    return client.post("/v1/npy/quantize", params=query, content=npy(x))


def in_form(client: httpx.Client, output_type: str, calibration: dict[str, Any], x: NDArray[Any] = X) -> httpx.Response:
    fields = {name: (None, text) for name, text in {"output_type": output_type, **flat(calibration)}.items()}
    return client.post("/v1/multipart/quantize", files={**fields, "x": npy(x)})


def in_v2(client: httpx.Client, output_type: str, calibration: dict[str, Any], x: NDArray[Any] = X) -> httpx.Response:
    numbers = {name: value for name, value in calibration.items() if isinstance(value, (int, float))}
    parameters = {"output_type": output_type, **flat(calibration), **numbers}
    body, headers = oip_wire.body_of([oip_wire.Input("x", x)], parameters=parameters)
    return client.post("/v2/models/quantize/infer", content=body, headers=headers)


def told(reply: httpx.Response) -> tuple[str, str | None]:
    problem = reply.json()
    assert reply.status_code in (400, 413, 422), reply.text
    return problem["code"], problem["errors"][0]["pointer"] if "errors" in problem else None


@pytest.mark.parametrize(("output_type", "calibration", "code", "pointer"), REFUSED)
def test_refusals(client: httpx.Client, output_type: str, calibration: dict[str, Any], code: str, pointer: str) -> None:
    assert told(in_json(client, output_type, calibration)) == (code, pointer)
    names = {"/calibration/profile": "/calibration_profile", "/calibration/storage": "/storage_type"}
    in_query = names.get(pointer, pointer.replace("/calibration", ""))
    assert told(in_npy(client, output_type, calibration)) == (code, in_query)
    assert told(in_form(client, output_type, calibration)) == (code, in_query)
    assert told(in_v2(client, output_type, calibration)) == (code, f"/parameters{in_query}")


@pytest.mark.parametrize("x", [np.array([1, np.nan], np.float32), np.empty((0, 3), np.float32)])
def test_data_without_a_range(client: httpx.Client, x: NDArray[Any]) -> None:
    code = "precondition_failed"
    assert told(in_json(client, OPEN, {}, x)) == (code, "/input")
    assert told(in_npy(client, OPEN, {}, x)) == (code, None)
    assert told(in_form(client, OPEN, {}, x)) == (code, "/x")
    assert told(in_v2(client, OPEN, {}, x)) == (code, "/inputs/0")


def test_a_scale_that_no_type_has(client: httpx.Client) -> None:
    """What `/v1/parameters/tensor` returns without a type cannot be quantized to."""
    zeros = np.zeros((2, 3), np.float32)
    tensor = {"type": "tensor<2x3xf32>", "values": [0.0] * 6}
    untyped = []
    for scheme in RANGE_RULES:
        found = client.post("/v1/parameters/tensor", json={"input": tensor, "storage": "u8", "scheme": scheme})
        if found.status_code == 200 and "untyped" in found.json():
            untyped.append(scheme)
            assert told(in_json(client, "!quant.any<u8:f32>", {"scheme": scheme}, zeros)) == (
                "precondition_failed",
                "/output_type",
            )
    assert untyped


def test_a_range_that_a_type_states(client: httpx.Client) -> None:
    calibration = {"storage": "u8", "scheme": "litert", "narrow": True}
    expected = client.post("/v1/parameters/range", json={"minimums": [-1.0], "maximums": [1.0], **calibration}).json()
    reply = in_json(client, CALIBRATED, calibration).json()
    assert reply["parameters"] == expected
    assert reply["output"]["type"] == f"tensor<2x3x{expected['type']}>"
    assert in_npy(client, CALIBRATED, calibration).headers["requant-type"] == reply["output"]["type"]
    found = in_v2(client, CALIBRATED, calibration).json()
    assert found["parameters"]["output_type"] == reply["output"]["type"]
    assert [each["data"] for each in found["outputs"]] == [
        reply["output"]["values"],
        expected["scales"],
        expected["zero_points"],
    ]


def test_every_option_of_json_is_one_of_the_flat_lists() -> None:
    names = {"profile": "calibration_profile", "storage": "storage_type"}
    assert CALIBRATION.group is not None
    ours = {names.get(each.name, each.name) for each in CALIBRATION.group.options}
    assert {option.name for option in CALIBRATION_OPTIONS} == ours


def test_outputs_of_a_model_that_a_call_has_not(client: httpx.Client) -> None:
    for output_type, names in ((OPEN, ["y", "scale", "zero_point"]), ("!quant.uniform<i8:f32, 0.5>", ["y"])):
        body, headers = oip_wire.body_of([oip_wire.Input("x", X)], parameters={"output_type": output_type})
        reply = client.post("/v2/models/quantize/infer", content=body, headers=headers).json()
        assert [output["name"] for output in reply["outputs"]] == names
    asked = {"parameters": {"output_type": "!quant.uniform<i8:f32, 0.5>"}, "outputs": [{"name": "scale"}]}
    body, headers = oip_wire.body_of([oip_wire.Input("x", X)], **asked)
    assert told(client.post("/v2/models/quantize/infer", content=body, headers=headers)) == (
        "request_invalid",
        "/outputs",
    )


def test_a_search_reserves_what_it_takes() -> None:
    """Input and output fit in the budget; with the copies of a search they do not."""
    app = ready_app(memory_bytes=3 << 20)
    file = npy(np.random.default_rng(1).normal(size=1 << 19).astype(np.float32))

    def asked(method: str) -> tuple[int, str]:
        query = {"output_type": OPEN, "method": method}
        reply = asyncio.run(post(app, "/v1/npy/quantize", query, [file], declared=len(file)))
        return reply.status, "" if reply.status == 200 else json.loads(reply.body)["code"]

    assert asked("min_max") == (200, "")
    assert asked("percentile") == (413, "limit_exceeded")
