"""Parameters over HTTP: of ranges, tensors, biases and factors. Numbers as they are written, limits, and bad input."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from typing import Any

import httpx
import numpy as np
import pytest

from requant.calibration.bias import bias_rule_named
from requant.description import OperationCall
from requant.mlir import parse_storage, parse_type, print_type
from requant.mlir.types import TensorType
from requant.operations.bias import DERIVE_BIAS
from requant.operations.parameters import DERIVE_FROM_TENSOR
from requant.schemes import SCHEMES
from requant_service.runtime.settings import Settings
from tests.service.replies import encoded, refused

RANGE, TENSOR, BIAS = "/v1/parameters/range", "/v1/parameters/tensor", "/v1/parameters/bias"
FAKE_QUANTIZE, MULTIPLIER = "/v1/fake_quantize", "/v1/parameters/multiplier"
VALUES = [-1.5, -0.25, 0.0, 0.5, 0.75, 2.0]
INPUT = {"type": "tensor<2x3xf32>", "values": VALUES}
FAKE_INPUT = {"type": "tensor<4xf32>", "values": [-0.5, 0.1, 0.2, 3.0]}
REQUESTS: dict[str, dict[str, Any]] = {
    RANGE: {"minimums": [-1.0], "maximums": [2.0], "storage": "i8", "scheme": "litert"},
    TENSOR: {"input": INPUT, "storage": "i8"},
    BIAS: {"input_scale": 0.5, "weight_scales": [0.25, 0.125], "scheme": "litert"},
    FAKE_QUANTIZE: {"input": FAKE_INPUT, "minimums": [-1.0], "maximums": [1.0]},
    MULTIPLIER: {"scheme": "litert"},
}


def parse_tensor(text: str) -> TensorType:
    type_ = parse_type(text)
    assert isinstance(type_, TensorType)
    return type_


def post(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def post_text(client: httpx.Client, path: str, body: str) -> httpx.Response:
    return client.post(path, content=body.encode(), headers={"content-type": "application/json"})


HARD = [
    "0.1", "0.30000000000000004", "0.10000000000000000555111512312578270211815834045410156", "1e-46", "7e-46",
    "9007199254740993", "9007199254740992.9999999999999999", "1.00000000000000011102230246251565404236316680908203125",
    "1.00000000000000011102230246251565404236316680908203126", "1.000000059604644775390625",
    "1.0000000596046447753906250000000000000001", "2.4703282292062327e-324", "2.4703282292062328e-324", "5e-324",
    "1e-400", "0", "0.0", "1E+2", "123456789012345678901234567890", "1.7976931348623157e308",
    "-0", "-0.0", "-1", "1e400", "1.7976931348623159e308", "9" * 400, "0." + "1" * 200,
]  # fmt: skip


def of_written(client: httpx.Client, path: str, body: str) -> Any:
    reply = post_text(client, path, body)
    return reply.json() | {"request_id": reply.status_code}


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["litert", "onnxruntime", "litert_float"])
def test_a_number_means_what_the_text_of_the_same_characters_means(client: httpx.Client, scheme: str) -> None:
    answered = 0
    for written in HARD:
        for body in (
            {"factors": [0.5, "@"], "scheme": scheme},
            {"scales": [{"input": "@", "weight": 0.1, "output": 0.5}], "scheme": scheme},
            {"scales": [{"input": 1, "output": "@"}], "scheme": scheme},
        ):
            sent = json.dumps(body)
            number, text = (
                of_written(client, MULTIPLIER, sent.replace('"@"', each)) for each in (written, f'"{written}"')
            )
            assert number == text, (written, body)
            answered += "results" in number
            if "results" in number and "factors" in body:
                # The nearest double, of the decimal and not of a rounded one.
                assert float(number["results"][1]["factor"]) == float(Fraction(written))
    assert answered > 40


def test_a_global_scale_is_a_number_or_its_text(client: httpx.Client) -> None:
    values = [0.1 * step for step in range(16)]
    body = {"input": {"type": "tensor<16xf32>", "values": values}, "format": "nvfp4", "global_scale": "@"}
    found = set()
    for written in ("0.001", "1.000000059604644775390625", "1.0000000596046447753906250000000000000001", "-0", "1e-46"):
        text = json.dumps(body)
        number, quoted = (
            of_written(client, "/v1/blocks/quantize", text.replace('"@"', each)) for each in (written, f'"{written}"')
        )
        assert number == quoted, written
        found.add(number.get("global_scale"))
    # By way of the nearest double, which is a tie of f32, where the decimal itself is just above it.
    assert found == {"0.0010000000474974513", "1.0", None}


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "1" + "0" * 400, "-1e400", "1e-5000"])
@pytest.mark.parametrize("path", [RANGE, BIAS, FAKE_QUANTIZE])
def test_numbers_that_no_double_holds(client: httpx.Client, path: str, literal: str) -> None:
    field = "weight_scales" if path == BIAS else "minimums"
    reply = post_text(client, path, json.dumps({**REQUESTS[path], field: [111]}).replace("111", literal))
    if literal == "1e-5000":  # it is 0
        assert reply.status_code == 200, reply.text
    else:
        refused(reply, 422, "request_invalid")


def test_numbers_next_to_ties_round_once(client: httpx.Client) -> None:
    """The body is read again for them once, not once for each tensor: 4 MB of tensors that each have one."""
    above, below = "1.00000005960464477539062500000001", "1.00000005960464477539062499999999"
    ends = f'{{"type": "tensor<2xf32>", "values": [{below}, {above}]}}'
    found = post_text(client, TENSOR, f'{{"input": {ends}, "storage": "i8"}}').json()
    assert (found["minimums"], found["maximums"]) == ([1.0], [1 + 2**-23])
    long = f'{{"type": "tensor<1000xf32>", "values": [{above}{", 0.123456789012" * 999}]}}'
    begin = time.perf_counter()
    reply = post_text(client, TENSOR, f'{{"inputs": [{", ".join([long] * 256)}], "storage": "i8"}}')
    assert reply.json()["maximums"] == [1 + 2**-23]
    assert time.perf_counter() - begin < 8


def test_a_type_of_many_scales_is_printed_once() -> None:
    """Printing one takes most of the time of a request."""
    types, scales = {"bias": parse_tensor("tensor<2xf32>")}, np.array([0.5, 0.25])
    options = {"scheme": bias_rule_named("litert")}
    work = DERIVE_BIAS.plan(OperationCall(types, options, {"input_scale": np.array([0.5]), "weight_scales": scales}))
    output = work.run({"bias": np.ones(2, np.float32)}).outputs["output"]
    assert output.text == print_type(output.type) == output.type_text


def test_many_ranges_of_a_tensor_are_not_derived_on_the_event_loop(client: httpx.Client) -> None:
    tensor = {"type": "tensor<10000x1xf32>", "data": encoded(bytes(40000))}
    work = DERIVE_FROM_TENSOR.plan(
        OperationCall(
            {"input": parse_tensor("tensor<10000x1xf32>")},
            {each.name: each.resolve(each.default) for each in DERIVE_FROM_TENSOR.options}
            | {"storage": parse_storage("i8"), "axis": 0},
            counts={"input": 1},
        )
    )
    assert work.cost > Settings().inline_bytes
    assert len(post(client, TENSOR, {"input": tensor, "storage": "i8", "axis": 0})["scales"]) == 10000


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
        post(client, TENSOR, {"input": small, "storage": "i8", **change})
        assert time.perf_counter() - begin < 60, change
    wide = {"type": "tensor<1000x4xf32>", "data": encoded(np.ones(4000, "<f4"))}
    per_axis = {"input": wide, "storage": "i8", "granularity": "per_axis", "axis": 0}
    for change in ({"method": "entropy", "bins": 4096}, {"method": "mse", "candidates": 1024}):
        refused(client.post(TENSOR, json={**per_axis, **change}), 413, "limit_exceeded")


def test_an_element_that_is_not_a_number_is_named(client: httpx.Client) -> None:
    holes = {"type": "tensor<6xf32>", "values": [*VALUES[:5], "NaN"]}
    body = {"inputs": [{"type": "tensor<6xf32>", "values": VALUES}, holes], "storage": "i8"}
    assert refused(client.post(TENSOR, json=body), 422, "precondition_failed", "/inputs/1")["index"] == 5


def test_every_scheme_has_a_page(client: httpx.Client) -> None:
    pages = client.get("/v1/schemes").json()["schemes"]
    assert [page["name"] for page in pages] == list(SCHEMES)
    for page in pages:
        found = client.get(f"/v1/schemes/{page['name']}").json()
        assert found.pop("conformance").keys() == {"requantize"}
        assert found == page
        assert all(
            page[key]
            for key in ("summary", "source", "derivation", "convention", "formula", "rounding", "factor", "demands")
        )
        assert page["multipliers"]["lowest"] <= 0 or page["name"] == "xnnpack_cvt8"
    assert client.get("/v1/schemes/nosuch").status_code == 404


FINE = {"input": "1", "output": "1"}
OTHER = {"type": "tensor<6xf32>", "values": VALUES}
SHORT = {**INPUT, "values": [1.0]}


def of_scales(scheme: str, *triples: dict[str, Any]) -> dict[str, Any]:
    return {"scheme": scheme, "scales": list(triples)}


REFUSED: list[tuple[str, dict[str, Any], str, str | None]] = [
    (RANGE, {"scheme": "ours"}, "unknown_name", "/scheme"),
    (RANGE, {"storage": "i8:f32"}, "type_invalid", "/storage"),
    (RANGE, {"storage": "i33"}, "type_invalid", "/storage"),
    (RANGE, {"storage": "i8<3:3>"}, "type_invalid", "/storage"),
    (RANGE, {"storage": "f8E5M2"}, "unsupported", "/storage"),
    (RANGE, {"storage": "i4"}, "unsupported", "/storage"),
    (RANGE, {"storage": "x" * 300}, "request_invalid", "/storage"),
    (RANGE, {"expressed": "i8"}, "unsupported", "/expressed"),
    (RANGE, {"expressed": "f33"}, "type_invalid", "/expressed"),
    (RANGE, {"symmetric": True}, "unsupported", "/symmetric"),
    (RANGE, {"symmetric": 1}, "request_invalid", "/symmetric"),
    (RANGE, {"epsilon": 0.0, "scheme": "torch_observer"}, "parameter_invalid", "/epsilon"),
    (RANGE, {"minimum_real_range": -1.0, "scheme": "onnxruntime"}, "parameter_invalid", "/minimum_real_range"),
    (RANGE, {"minimums": [3.0]}, "parameter_invalid", "/minimums/0"),
    (RANGE, {"minimums": [-1.0, 3.0], "maximums": [2.0, 2.0], "axis": 0}, "parameter_invalid", "/minimums/1"),
    (RANGE, {"minimums": [1.0]}, "parameter_invalid", "/minimums/0"),
    (RANGE, {"minimums": [1e39], "maximums": [2e39], "scheme": "torch"}, "parameter_invalid", "/minimums/0"),
    (
        RANGE,
        {"minimums": [-3e38], "maximums": [3e38], "scheme": "torch_observer"},
        "precondition_failed",
        "/minimums/0",
    ),
    (RANGE, {"minimums": [-1.7e308], "maximums": [1.7e308]}, "precondition_failed", "/minimums/0"),
    (RANGE, {"minimums": ["NaN"]}, "request_invalid", "/minimums/0"),
    (RANGE, {"minimums": ["Infinity"]}, "request_invalid", "/minimums/0"),
    (RANGE, {"minimums": [True]}, "request_invalid", "/minimums/0"),
    (RANGE, {"minimums": [None]}, "request_invalid", "/minimums/0"),
    (RANGE, {"minimums": []}, "request_invalid", "/minimums"),
    (RANGE, {"minimums": [0.0, 0.0]}, "request_invalid", "/maximums"),
    (RANGE, {"minimums": [0.0, 0.0], "maximums": [1.0, 1.0]}, "request_invalid", "/axis"),
    (RANGE, {"axis": -1}, "request_invalid", "/axis"),
    (RANGE, {"axis": 0, "shape": [1], "block_sizes": [1]}, "request_invalid", "/axis"),
    (RANGE, {"shape": [], "block_sizes": []}, "request_invalid", "/shape"),
    (RANGE, {"block_sizes": [1]}, "request_invalid", "/shape"),
    (RANGE, {"shape": [4]}, "request_invalid", "/block_sizes"),
    (RANGE, {"shape": [4], "block_sizes": [0]}, "request_invalid", "/block_sizes/0"),
    (RANGE, {"shape": [4], "block_sizes": [2]}, "type_does_not_fit", "/minimums"),
    (RANGE, {"shape": [2**63 - 1] * 3, "block_sizes": [1] * 3}, "type_does_not_fit", "/minimums"),
    (RANGE, {"shape": [1] * 33, "block_sizes": [1] * 33}, "limit_exceeded", "/shape"),
    (RANGE, {"shape": [4], "block_sizes": [4], "scheme": "onnxruntime"}, "unsupported", "/scheme"),
    (RANGE, {"scheme": "onnxruntime_blocked"}, "unsupported", "/scheme"),
    (RANGE, {"scale": 1.0}, "request_invalid", "/scale"),
    (BIAS, {"scheme": "ours"}, "unknown_name", "/scheme"),
    (BIAS, {"input_scale": -0.5}, "parameter_invalid", "/input_scale"),
    (BIAS, {"weight_scales": [1.0, -1.0]}, "parameter_invalid", "/weight_scales/1"),
    (BIAS, {"weight_scales": [1.0, 1e39]}, "parameter_invalid", "/weight_scales/1"),
    (BIAS, {"weight_scales": []}, "request_invalid", "/weight_scales"),
    (BIAS, {"input_scale": 1e30, "weight_scales": [1.0, 1e30]}, "precondition_failed", "/weight_scales/1"),
    (BIAS, {"bias": {"type": "tensor<2xf64>", "values": [1, 2]}}, "unsupported", "/bias/type"),
    (BIAS, {"bias": {"type": "tensor<3xf32>", "values": [1, 2, 3]}}, "type_does_not_fit", "/bias/type"),
    (BIAS, {"bias": {"type": "tensor<?xf32>", "values": [1, 2]}}, "type_does_not_fit", "/bias/type"),
    (BIAS, {"bias": {"type": "tensor<2xf32>", "values": [1, "NaN"]}}, "parameter_invalid", "/bias"),
    (BIAS, {"bias": {"type": "tensor<2xf32>", "values": [1]}}, "tensor_data", "/bias/values"),
    (BIAS, {"bias": None}, "request_invalid", "/bias"),
    (FAKE_QUANTIZE, {"scheme": "ours"}, "unknown_name", "/scheme"),
    (FAKE_QUANTIZE, {"num_bits": 1}, "request_invalid", "/num_bits"),
    (FAKE_QUANTIZE, {"num_bits": 17}, "request_invalid", "/num_bits"),
    (FAKE_QUANTIZE, {"minimums": [1.0], "maximums": [1.0]}, "parameter_invalid", "/minimums/0"),
    (FAKE_QUANTIZE, {"minimums": [-3e38], "maximums": [3e38]}, "precondition_failed", "/minimums/0"),
    (FAKE_QUANTIZE, {"maximums": [1.0, 1.0]}, "parameter_invalid", "/minimums"),
    (FAKE_QUANTIZE, {"axis": 0}, "type_does_not_fit", "/input/type"),
    (FAKE_QUANTIZE, {"axis": 1}, "unsupported", "/input/type"),
    (FAKE_QUANTIZE, {"axis": 0, "scheme": "litert"}, "unsupported", "/input/type"),
    (FAKE_QUANTIZE, {"input": {"type": "tensor<1xf16>", "values": [1]}}, "unsupported", "/input/type"),
    (
        FAKE_QUANTIZE,
        {"input": {"type": "tensor<4x!quant.uniform<i8:f32, 1.0>>", "values": [1] * 4}},
        "unsupported",
        "/input/type",
    ),
    (TENSOR, {"method": "nope"}, "unknown_name", "/method"),
    (TENSOR, {"scheme": "nope"}, "unknown_name", "/scheme"),
    (TENSOR, {"method": "mse", "profile": "nope"}, "unknown_name", "/profile"),
    (TENSOR, {"method": "mse", "profile": "tosa"}, "unsupported", "/storage"),
    (
        TENSOR,
        {"method": "mse", "storage": "i16", "scheme": "onnxruntime", "profile": "onednn"},
        "unsupported",
        "/storage",
    ),
    (TENSOR, {"storage": "i3"}, "unsupported", "/storage"),
    (TENSOR, {"storage": "what"}, "type_invalid", "/storage"),
    (TENSOR, {"expressed": "i8"}, "unsupported", "/expressed"),
    (TENSOR, {"granularity": "per_channel"}, "request_invalid", "/granularity"),
    (TENSOR, {"granularity": "per_axis"}, "request_invalid", "/axis"),
    (TENSOR, {"granularity": "per_axis", "axis": 2}, "type_does_not_fit", "/axis"),
    (TENSOR, {"granularity": "per_axis", "axis": -1}, "request_invalid", "/axis"),
    (TENSOR, {"granularity": "per_tensor", "axis": 0}, "request_invalid", "/axis"),
    (TENSOR, {"granularity": "sub_channel"}, "request_invalid", "/block_sizes"),
    (TENSOR, {"granularity": "sub_channel", "block_sizes": [2]}, "type_does_not_fit", "/block_sizes"),
    (TENSOR, {"granularity": "sub_channel", "block_sizes": [0, 1]}, "request_invalid", "/block_sizes/0"),
    (TENSOR, {"granularity": "sub_channel", "block_sizes": [1, 2**63]}, "request_invalid", "/block_sizes/1"),
    (TENSOR, {"granularity": "sub_channel", "block_sizes": [1, 2], "scheme": "onnxruntime"}, "unsupported", "/scheme"),
    (TENSOR, {"scheme": "onnxruntime_blocked"}, "unsupported", "/scheme"),
    (TENSOR, {"percentile": 99}, "unsupported", "/percentile"),
    (TENSOR, {"method": "percentile", "percentile": 101}, "parameter_invalid", "/percentile"),
    (TENSOR, {"method": "percentile", "bins": 10**18}, "parameter_invalid", "/bins"),
    (TENSOR, {"method": "percentile", "bins": 10**40}, "parameter_invalid", "/bins"),
    (TENSOR, {"method": "percentile", "bins": 1.5}, "request_invalid", "/bins"),
    (TENSOR, {"method": "moving_average", "averaging_constant": 2}, "parameter_invalid", "/averaging_constant"),
    (TENSOR, {"method": "mse", "candidates": 0}, "parameter_invalid", "/candidates"),
    (TENSOR, {"method": "entropy", "bins": 5}, "parameter_invalid", "/bins"),
    (TENSOR, {"narrow": True}, "unsupported", "/narrow"),
    (
        TENSOR,
        {"scheme": "litert", "input": {"type": "tensor<2xf32>", "values": [1, 2]}},
        "parameter_invalid",
        "/scheme",
    ),
    (TENSOR, {"input": {"type": "tensor<2xi32>", "values": [1, 2]}}, "unsupported", "/input/type"),
    (TENSOR, {"input": {"type": "tensor<?xf32>", "values": [1, 2]}}, "type_does_not_fit", "/input/type"),
    (TENSOR, {"input": {"type": "f32", "values": [1]}}, "type_does_not_fit", "/input/type"),
    (TENSOR, {"input": {"type": "tensor<3xf32>", "values": [1]}}, "tensor_data", "/input/values"),
    (TENSOR, {"input": {"type": "tensor<0xf32>", "values": []}}, "precondition_failed", "/input"),
    (TENSOR, {"input": {"type": "tensor<2x0xf32>", "data": ""}}, "precondition_failed", "/input"),
    (
        TENSOR,
        {"input": {"type": "tensor<2xf32>", "values": [-1.5e38, 1.5e38]}, "method": "torch_histogram"},
        "precondition_failed",
        "/input",
    ),
    (
        TENSOR,
        {"input": {"type": "tensor<1xf64>", "values": [1]}, "method": "torch_histogram"},
        "unsupported",
        "/input/type",
    ),
    (
        TENSOR,
        {"input": {"type": "tensor<4611686018427387904xf32>", "data": ""}, "granularity": "per_axis", "axis": 0},
        "limit_exceeded",
        "/granularity",
    ),
    (TENSOR, {"input": {"type": "tensor<4611686018427387904xf32>", "data": ""}}, "tensor_data", "/input/data"),
    (TENSOR, {"inputs": [INPUT]}, "request_invalid", None),
]


@pytest.mark.parametrize(("path", "change", "code", "pointer"), REFUSED)
def test_bad_input(client: httpx.Client, path: str, change: dict[str, Any], code: str, pointer: str | None) -> None:
    status = {"limit_exceeded": 413, "tensor_data": 400}.get(code, 422)
    refused(client.post(path, json=REQUESTS[path] | change), status, code, pointer)


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({}, "request_invalid", None),
        ({"inputs": []}, "request_invalid", "/inputs"),
        ({"inputs": [INPUT] * 257}, "limit_exceeded", "/inputs"),
        ({"inputs": [INPUT, OTHER]}, "type_does_not_fit", "/inputs/1/type"),
        ({"inputs": [INPUT, SHORT]}, "tensor_data", "/inputs/1/values"),
        ({"inputs": [INPUT, {**INPUT, "type": "tensor<2x3 x f32>"}], "bins": 3}, "unsupported", "/bins"),
    ],
)
def test_bad_input_of_several_tensors(
    client: httpx.Client, body: dict[str, Any], code: str, pointer: str | None
) -> None:
    status = {"limit_exceeded": 413, "tensor_data": 400}.get(code, 422)
    refused(client.post(TENSOR, json={"storage": "i8", **body}), status, code, pointer)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"scheme": "litert"}, ""),
        ({"scheme": "litert", "factors": ["1"], "scales": []}, ""),
        (of_scales("litert", {"input": "1"}), "/scales/0/output"),
        (of_scales("litert", FINE, {"input": "1", "output": "0"}), "/scales/1/output"),
        (of_scales("litert", FINE, {"input": "x", "output": "1"}), "/scales/1/input"),
        (of_scales("litert", FINE | {"weight": "-1"}), "/scales/0/weight"),
        (of_scales("litert", FINE | {"weight": None}), "/scales/0/weight"),
        (of_scales("litert", FINE | {"bias": "1"}), "/scales/0/bias"),
        (of_scales("onnxruntime", {"input": "1e38", "output": "1e-38"}), "/scales/0"),
        (of_scales("tosa", {"input": "1e308", "output": "1e-308"}), "/scales/0"),
        ({"scheme": "xnnpack_fp32", "factors": ["1", "256"]}, "/factors/1"),
        ({"scheme": "cmsis_nn", "factors": ["-1"]}, "/factors/0"),
        ({"scheme": "nosuch", "factors": ["1"]}, "/scheme"),
        (of_scales("litert", *[FINE] * 5000), "/scales"),
    ],
)
def test_bad_factors(client: httpx.Client, body: dict[str, Any], pointer: str) -> None:
    reply = client.post(MULTIPLIER, json=body)
    refused(reply, 413 if pointer == "/scales" else 422, reply.json()["code"], pointer)


@pytest.mark.parametrize(
    ("path", "body", "places"),
    [
        (MULTIPLIER, {"factors": ["x", 0.5, "y"], "scheme": "cmsis-nn"}, ["/scheme", "/factors/0", "/factors/2"]),
        (
            MULTIPLIER,
            {"scales": [{"input": "x", "output": "y"}], "scheme": "litert"},
            ["/scales/0/input", "/scales/0/output"],
        ),
        (
            "/v1/quantize",
            {"input": {"type": "tensor<1xf3>", "values": [1]}, "output_type": "int8", "profile": "x"},
            ["/input/type", "/output_type", "/profile"],
        ),
    ],
)
def test_all_faults_are_named_at_once(client: httpx.Client, path: str, body: dict[str, Any], places: list[str]) -> None:
    reply = client.post(path, json=body).json()
    assert [each["pointer"] for each in reply["errors"]] == places
    assert reply["errors"][0]["detail"] == reply["detail"]
