"""Parameters from data over HTTP: the vectors, core's numbers, types that the next call takes, and what is refused."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx
import numpy as np
import pytest

from requant.calibration.methods import CALIBRATION_METHODS
from requant.mlir import parse_type
from tests.oracles.quantization import from_bits
from tests.vector_cases import Array, calibration_cases, load

PATH = "/v1/parameters/tensor"
VALUES = [-1.5, -0.25, 0.0, 0.5, 0.75, 2.0]
INPUT = {"type": "tensor<2x3xf32>", "values": VALUES}
REQUEST = {"input": INPUT, "storage": "i8"}
JSON = {"Content-Type": "application/json"}
DTYPES = {"<f2": "f16", "<f4": "f32", "<f8": "f64"}


def tensor(array: Array, *, as_values: bool = False) -> dict[str, Any]:
    shape = "".join(f"{size}x" for size in array.shape)
    type_ = f"tensor<{shape}{DTYPES[array.dtype.str]}>"
    if as_values:
        return {"type": type_, "values": array.ravel().tolist()}
    return {"type": type_, "data": base64.b64encode(array.tobytes()).decode()}


def post(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(PATH, json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def refused(client: httpx.Client, body: dict[str, Any]) -> tuple[int, str, str]:
    reply = client.post(PATH, json=body)
    problem = reply.json()
    return reply.status_code, problem["code"], problem["errors"][0]["pointer"]


def test_vectors(client: httpx.Client) -> None:
    cases = calibration_cases()
    assert len(cases) == 70
    for index, case in enumerate(cases):
        tensors = [tensor(array, as_values=index % 2 == 0) for array in case.tensors]
        given = {"input": tensors[0]} if len(tensors) == 1 else {"inputs": tensors}
        found = post(client, {**given, "storage": "u8", "method": case.method, **case.options})
        assert (found["minimums"], found["maximums"]) == ([case.minimum], [case.maximum])
        assert (found["method"], found["left_out"]) == (case.method, 0)
        if case.scale is not None:
            assert (found["scheme"], found["scales"], found["zero_points"]) == (
                "torch_observer",
                [case.scale],
                [case.zero_point],
            )


def test_vectors_per_channel_and_in_blocks(client: httpx.Client) -> None:
    rows = load("choose_qparams")
    for row in rows["torch_per_channel"]:
        asked: dict[str, Any] = {"storage": "i8", "scheme": "torch_observer", "granularity": "per_axis", "axis": 0}
        if row["qscheme"] == "per_channel_symmetric":
            asked["symmetric"] = True
        check_row(client, row, row["x"], asked)
    for row in rows["ort_blocked"]:
        asked = {"storage": row["dtype"].replace("uint", "u").replace("int", "i"), "granularity": "sub_channel"}
        asked["block_sizes"] = [row["block"] if axis == row["axis"] else 1 for axis in range(2)]
        if row["symmetric"]:
            asked["symmetric"] = True
        check_row(client, row, row["w"], asked)


def check_row(client: httpx.Client, row: dict[str, Any], patterns: list[str], asked: dict[str, Any]) -> None:
    data = np.array([from_bits(pattern) for pattern in patterns], np.float32).reshape(row["shape"])
    found = post(client, {"input": tensor(data), **asked})
    assert found["scales"] == [from_bits(pattern) for pattern in row["scale"]]
    assert found["zero_points"] == row["zp"]


GRANULARITIES: dict[str, dict[str, Any]] = {
    "per_tensor": {},
    "per_axis": {"granularity": "per_axis", "axis": 1},
    "sub_channel": {"granularity": "sub_channel", "block_sizes": [2, 3]},
    "short_blocks": {"granularity": "sub_channel", "block_sizes": [3, 4]},
}


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_every_type_is_ready_for_the_next_call(client: httpx.Client, method: str, granularity: str) -> None:
    data = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    options: dict[str, Any] = GRANULARITIES[granularity]
    if method == "torch_histogram" and granularity != "per_tensor":
        assert (
            refused(client, {"input": tensor(data), "storage": "i8", "method": method, **options})[2] == "/granularity"
        )
        return
    if method == "mse":
        options = {**options, "profile": "onnx", "candidates": 10}
    found = post(client, {"input": tensor(data), "storage": "i8", "method": method, **options})
    count = {"per_tensor": 1, "per_axis": 6, "sub_channel": 4, "short_blocks": 4}[granularity]
    for name in ("scales", "zero_points", "minimums", "maximums"):
        assert len(found[name]) == count
    body = {"input": tensor(data), "output_type": found["type"], "profile": "onnx", "error": True}
    reply = client.post("/v1/quantize", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["report"]["error"]["sqnr_db"] > 3
    type_: Any = parse_type(found["type"])
    assert list(getattr(type_, "scales", None) or [type_.scale]) == found["scales"]


def test_several_tensors_and_forms(client: httpx.Client) -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(4, 6)).astype(np.float32) for _ in range(3)]
    expected = [min(array.min() for array in arrays)], [max(array.max() for array in arrays)]
    for as_values in (False, True):
        found = post(client, {"inputs": [tensor(array, as_values=as_values) for array in arrays], "storage": "i8"})
        assert (found["minimums"], found["maximums"]) == expected
    # A tie of f32 that only the literal decides is read from the right tensor.
    above = {"type": "tensor<1xf32>", "values": "TIE"}
    body = json.dumps({"inputs": [{"type": "tensor<1xf32>", "values": [0]}, above], "storage": "i8"})
    body = body.replace('"TIE"', "[1.000000059604644775390625000000001]")
    reply = client.post(PATH, content=body, headers={"content-type": "application/json"})
    assert reply.json()["maximums"] == [float(np.nextafter(np.float32(1), np.float32(2)))]


def test_large_tensor(client: httpx.Client) -> None:
    """As large as JSON can be: more than a million numbers, per tensor, per axis and in blocks."""
    data = np.random.default_rng(3).normal(size=(1024, 1280)).astype(np.float32)
    sent = tensor(data)
    found = post(client, {"input": sent, "storage": "i8"})
    assert (found["minimums"], found["maximums"]) == ([data.min()], [data.max()])
    found = post(client, {"input": sent, "storage": "i8", "granularity": "per_axis", "axis": 1, "method": "percentile"})
    assert len(found["scales"]) == 1280
    found = post(client, {"input": sent, "storage": "i4", "granularity": "sub_channel", "block_sizes": [1, 32]})
    assert found["maximums"] == data.reshape(-1, 32).max(axis=1).tolist()


def test_defaults(client: httpx.Client) -> None:
    found = post(client, REQUEST)
    assert (found["method"], found["scheme"], found["storage"]) == ("min_max", "onnxruntime", "i8")
    assert (found["minimums"], found["maximums"]) == ([-1.5], [2.0])
    blocks = {"granularity": "sub_channel", "block_sizes": [1, 3]}
    assert post(client, {**REQUEST, **blocks})["scheme"] == "onnxruntime_blocked"
    half = {"type": "tensor<2xf16>", "values": [-1, 2]}
    assert post(client, {"input": half, "storage": "i8"})["type"].startswith("!quant.uniform<i8:f16, ")
    assert post(client, {"input": half, "storage": "i8", "expressed": "f32"})["type"].startswith(
        "!quant.uniform<i8:f32"
    )


def test_options_of_the_rule(client: httpx.Client) -> None:
    found = post(client, {**REQUEST, "scheme": "onnxruntime", "symmetric": True})
    assert (found["storage"], found["zero_points"], found["scales"]) == (
        "i8<-127:127>",
        [0],
        [float(np.float32(2 / 127))],
    )
    zeros = {"type": "tensor<2xf32>", "values": [0, 0]}
    untyped = post(client, {"input": zeros, "storage": "i8", "scheme": "litert"})
    assert untyped["scales"] == [0.0]
    assert "type" not in untyped
    assert "scale 0" in untyped["untyped"]


def test_nan_is_counted(client: httpx.Client) -> None:
    holes = {"type": "tensor<6xf32>", "values": [*VALUES[:5], "NaN"]}
    assert post(client, {"input": holes, "storage": "i8", "method": "percentile"})["left_out"] == 1
    infinite = {"type": "tensor<6xf32>", "values": [*VALUES[:5], "Infinity"]}
    assert post(client, {"input": infinite, "storage": "i8", "method": "torch_histogram"})["left_out"] == 1
    reply = client.post(PATH, json={"inputs": [{"type": "tensor<6xf32>", "values": VALUES}, holes], "storage": "i8"})
    assert (reply.status_code, reply.json()["code"], reply.json()["index"]) == (422, "precondition_failed", 5)
    assert reply.json()["errors"][0]["pointer"] == "/inputs/1"


def test_torch_histogram_beyond_2_to_the_25(client: httpx.Client) -> None:
    """x - 1 and x + 1 are x there. torch counts between the neighbours of x; an index of 0 / 0 ended the process."""
    for bins in (2048, 2050):
        same = {"type": "tensor<1000xf32>", "values": [1e9] * 1000}
        found = post(client, {"input": same, "storage": "u8", "method": "torch_histogram", "bins": bins})
        assert (found["minimums"], found["maximums"], found["scales"]) == ([1e9], [1e9], [3921568.75])


REFUSED: list[tuple[dict[str, Any], tuple[int, str, str]]] = [
    ({"method": "nope"}, (422, "unknown_name", "/method")),
    ({"scheme": "nope"}, (422, "unknown_name", "/scheme")),
    ({"method": "mse", "profile": "nope"}, (422, "unknown_name", "/profile")),
    ({"method": "mse", "profile": "tosa"}, (422, "unsupported", "/storage")),
    (
        {"method": "mse", "storage": "i16", "scheme": "onnxruntime", "profile": "onednn"},
        (422, "unsupported", "/storage"),
    ),
    ({"storage": "i3"}, (422, "unsupported", "/storage")),
    ({"storage": "what"}, (422, "type_invalid", "/storage")),
    ({"expressed": "i8"}, (422, "unsupported", "/expressed")),
    ({"granularity": "per_channel"}, (422, "request_invalid", "/granularity")),
    ({"granularity": "per_axis"}, (422, "request_invalid", "/axis")),
    ({"granularity": "per_axis", "axis": 2}, (422, "type_does_not_fit", "/axis")),
    ({"granularity": "per_axis", "axis": -1}, (422, "request_invalid", "/axis")),
    ({"granularity": "per_tensor", "axis": 0}, (422, "request_invalid", "/axis")),
    ({"granularity": "sub_channel"}, (422, "request_invalid", "/block_sizes")),
    ({"granularity": "sub_channel", "block_sizes": [2]}, (422, "type_does_not_fit", "/block_sizes")),
    ({"granularity": "sub_channel", "block_sizes": [0, 1]}, (422, "request_invalid", "/block_sizes/0")),
    ({"granularity": "sub_channel", "block_sizes": [1, 2**63]}, (422, "request_invalid", "/block_sizes/1")),
    ({"granularity": "sub_channel", "block_sizes": [1, 2], "scheme": "onnxruntime"}, (422, "unsupported", "/scheme")),
    ({"scheme": "onnxruntime_blocked"}, (422, "unsupported", "/scheme")),
    ({"percentile": 99}, (422, "unsupported", "/percentile")),
    ({"method": "percentile", "percentile": 101}, (422, "parameter_invalid", "/percentile")),
    ({"method": "percentile", "bins": 10**18}, (422, "parameter_invalid", "/bins")),
    ({"method": "percentile", "bins": 10**40}, (422, "parameter_invalid", "/bins")),
    ({"method": "percentile", "bins": 1.5}, (422, "request_invalid", "/bins")),
    ({"method": "moving_average", "averaging_constant": 2}, (422, "parameter_invalid", "/averaging_constant")),
    ({"method": "mse", "candidates": 0}, (422, "parameter_invalid", "/candidates")),
    ({"method": "entropy", "bins": 5}, (422, "parameter_invalid", "/bins")),
    ({"narrow": True}, (422, "unsupported", "/narrow")),
    ({"scheme": "litert", "input": {"type": "tensor<2xf32>", "values": [1, 2]}}, (422, "parameter_invalid", "/scheme")),
    ({"input": {"type": "tensor<2xi32>", "values": [1, 2]}}, (422, "unsupported", "/input/type")),
    ({"input": {"type": "tensor<?xf32>", "values": [1, 2]}}, (422, "type_does_not_fit", "/input/type")),
    ({"input": {"type": "f32", "values": [1]}}, (422, "type_does_not_fit", "/input/type")),
    ({"input": {"type": "tensor<3xf32>", "values": [1]}}, (400, "tensor_data", "/input/values")),
    ({"input": {"type": "tensor<0xf32>", "values": []}}, (422, "precondition_failed", "/input")),
    ({"input": {"type": "tensor<2x0xf32>", "data": ""}}, (422, "precondition_failed", "/input")),
    (
        {"input": {"type": "tensor<2xf32>", "values": [-1.5e38, 1.5e38]}, "method": "torch_histogram"},
        (422, "precondition_failed", "/input"),
    ),
    (
        {"input": {"type": "tensor<1xf64>", "values": [1]}, "method": "torch_histogram"},
        (422, "unsupported", "/input/type"),
    ),
    (
        {"input": {"type": "tensor<4611686018427387904xf32>", "data": ""}, "granularity": "per_axis", "axis": 0},
        (413, "limit_exceeded", "/granularity"),
    ),
    ({"input": {"type": "tensor<4611686018427387904xf32>", "data": ""}}, (400, "tensor_data", "/input/data")),
]


@pytest.mark.parametrize(("change", "expected"), REFUSED)
def test_refusals(client: httpx.Client, change: dict[str, Any], expected: tuple[int, str, str]) -> None:
    assert refused(client, {**REQUEST, **change}) == expected


def test_one_of_input_and_inputs(client: httpx.Client) -> None:
    for body in ({"storage": "i8"}, {**REQUEST, "inputs": [INPUT]}):
        reply = client.post(PATH, json=body)
        assert (reply.status_code, reply.json()["errors"][0]["code"]) == (422, "input_form")
    assert refused(client, {"inputs": [], "storage": "i8"}) == (422, "request_invalid", "/inputs")
    assert refused(client, {"inputs": [INPUT] * 257, "storage": "i8"}) == (413, "limit_exceeded", "/inputs")
    other = {"type": "tensor<6xf32>", "values": VALUES}
    assert refused(client, {"inputs": [INPUT, other], "storage": "i8"}) == (422, "type_does_not_fit", "/inputs/1/type")
    short = {**INPUT, "values": [1.0]}
    assert refused(client, {"inputs": [INPUT, short], "storage": "i8"}) == (400, "tensor_data", "/inputs/1/values")
    assert refused(client, {"inputs": [INPUT, {**INPUT, "type": "tensor<2x3 x f32>"}], "storage": "u8", "bins": 3}) == (
        422,
        "unsupported",
        "/bins",
    )


def test_numbers_next_to_ties_round_once(client: httpx.Client) -> None:
    """The body is read again for them once, not once for each tensor: 4 MB of tensors that each have one."""
    above, below = "1.00000005960464477539062500000001", "1.00000005960464477539062499999999"
    ends = f'{{"type": "tensor<2xf32>", "values": [{below}, {above}]}}'
    found = client.post(PATH, content=f'{{"input": {ends}, "storage": "i8"}}', headers=JSON).json()
    assert (found["minimums"], found["maximums"]) == ([1.0], [1 + 2**-23])
    long = f'{{"type": "tensor<1000xf32>", "values": [{above}{", 0.123456789012" * 999}]}}'
    begin = time.perf_counter()
    reply = client.post(PATH, content=f'{{"inputs": [{", ".join([long] * 256)}], "storage": "i8"}}', headers=JSON)
    assert reply.json()["maximums"] == [1 + 2**-23]
    assert time.perf_counter() - begin < 8


def test_searches_are_bounded(client: httpx.Client) -> None:
    """The most work that is taken for little data: answered in seconds, while other requests go on."""
    small = {"type": "tensor<64xf32>", "values": np.random.default_rng(4).normal(size=64).astype(np.float32).tolist()}
    for change in (
        {"method": "torch_histogram", "bins": 4096, "storage": "i16"},
        {"method": "mse", "candidates": 1024},
        {"method": "entropy", "bins": 8192, "quantized_bins": 1},
        {"method": "entropy_model_optimizer", "bins": 8192, "first_bins": 1},
    ):
        begin = time.perf_counter()
        post(client, {"input": small, "storage": "i8", **change})
        assert time.perf_counter() - begin < 60, change
    wide = {"type": "tensor<1000x4xf32>", "data": base64.b64encode(np.ones(4000, "<f4").tobytes()).decode()}
    per_axis = {"input": wide, "storage": "i8", "granularity": "per_axis", "axis": 0}
    for change in ({"method": "entropy", "bins": 4096}, {"method": "mse", "candidates": 1024}):
        reply = client.post(PATH, json={**per_axis, **change})
        assert (reply.status_code, reply.json()["code"]) == (413, "limit_exceeded")
