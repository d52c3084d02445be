"""Vectors of calls: what is expected is what the call gives, of every operator, and reasons are facts."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import requant
from requant.command.main import main
from requant.operations import CALL_VECTORS
from requant.operators.description import Operator
from requant.operators.registry import OPERATORS
from requant_service.json_api.catalog.operators import route_path

MUL: dict[str, Any] = {
    "operation": "litert.MUL",
    "arguments": {
        "input1": {"type": "tensor<64x!quant.uniform<i8:f32, 0.5:3>>", "values": [5] * 64},
        "input2": {"type": "tensor<64x!quant.uniform<i8:f32, 0.25:-1>>", "values": [6] * 64},
        "output_type": "!quant.uniform<i8:f32, 16.0:5>",
    },
}


def asked(client: httpx.Client, **request: Any) -> list[dict[str, Any]]:
    reply = client.post("/v1/call_vectors", json=request)
    assert reply.status_code == 200, reply.text
    vectors: list[dict[str, Any]] = reply.json()["vectors"]
    return vectors


def of_request(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["name"]: {"type": each["type"], "values": each["values"]} for each in tensors if "type" in each}


@pytest.mark.sample(2)
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_what_is_expected_is_what_the_operator_gives(client: httpx.Client, operator: Operator) -> None:
    example = operator.example
    arguments = {**example["inputs"], **example.get("attributes", {})}
    if "opset" in example:
        arguments["opset"] = example["opset"]
    call = {"operation": operator.full_name, "arguments": arguments}
    vectors = asked(client, calls=[call], count=6)
    assert vectors[0]["why"][0] == "given"
    for each in vectors:
        reply = client.post(route_path(operator), json={**example, "inputs": of_request(each["inputs"])})
        assert reply.status_code == 200, reply.text
        outputs = reply.json()["outputs"]
        for expected in each["expected"]:
            assert outputs[expected["name"]] == {name: expected[name] for name in ("type", "values")}


def test_rules_that_differ_do() -> None:
    vectors = requant.call_vectors([in_process(MUL)], count=8)["vectors"]
    told = {name for each in vectors for name in each["differing"]}
    assert told == {"xnnpack"}
    for each in vectors:
        arrays = {one["name"]: np.array(one["values"], np.int8) for one in each["inputs"]}
        arguments = {**in_process(MUL)["arguments"], **arrays}
        [expected] = each["expected"]
        assert np.array_equal(requant.litert.MUL(**arguments), expected["values"])
        other = requant.litert.MUL(**arguments, kernel="xnnpack")
        assert ("xnnpack" in each["differing"]) == (not np.array_equal(other, expected["values"]))
        assert ("storage_maximum" in each["why"]) == (127 in expected["values"])
        assert [one["name"] for one in each["stages"]] == ["product", "scaled"]


@pytest.mark.parametrize(("size", "calls", "what"), [(64, 128, "elements in vectors"), (2, 64, "calls to compute")])
def test_limits(client: httpx.Client, size: int, calls: int, what: str) -> None:
    inputs = {"type": f"tensor<{size}x!quant.uniform<i8:f32, 0.5:3>>", "values": [5] * size}
    call = {**MUL, "arguments": {**MUL["arguments"], "input1": inputs, "input2": inputs}}
    reply = client.post("/v1/call_vectors", json={"calls": [call] * calls, "count": 64})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (413, "/count"), reply.text
    assert what in reply.json()["detail"]


def in_process(call: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, value in call["arguments"].items():
        if isinstance(value, dict):
            arguments[name], arguments[f"{name}_type"] = np.array(value["values"], np.int8), value["type"]
        else:
            arguments[name] = value
    return {**call, "arguments": arguments}


def test_the_same_seed_gives_the_same_vectors(client: httpx.Client) -> None:
    first = asked(client, calls=[MUL], count=16)
    assert first == asked(client, calls=[MUL], count=16)
    assert first != asked(client, calls=[MUL], count=16, seed=1)
    assert len({json.dumps(each["inputs"]) for each in first}) == 16


def test_a_table_of_256_is_seen_whole(client: httpx.Client) -> None:
    """16 elements a vector: all codes are among the vectors, before anything is repeated."""
    call = {
        "operation": "litert.RELU",
        "arguments": {
            "input": {"type": "tensor<64x!quant.uniform<i8:f32, 0.5:3>>", "values": [0] * 64},
            "output_type": "!quant.uniform<i8:f32, 0.5:3>",
        },
    }
    vectors = asked(client, calls=[call], count=32)
    assert {value for each in vectors for value in each["inputs"][0]["values"]} == set(range(-128, 128))


def test_floats_have_their_bounds(client: httpx.Client) -> None:
    call = {
        "operation": "quantize",
        "arguments": {
            "input": {"type": "tensor<16xf32>", "values": [1.0] * 16},
            "output_type": "!quant.uniform<i8:f32, 0.5:3>",
            "profile": "onnx",
        },
    }
    vectors = asked(client, calls=[call], count=4, files="npy")
    [bounds] = [each for each in vectors if each["why"][0] == "bounds"]
    assert {"NaN", "Infinity", "-Infinity"} <= set(map(str, bounds["inputs"][0]["values"]))
    array = np.load(io.BytesIO(base64.b64decode(bounds["inputs"][0]["file"])))
    assert np.array_equal(
        array, np.array([float(str(each)) for each in bounds["inputs"][0]["values"]], np.float32), equal_nan=True
    )


def test_what_is_wrong_with_a_call(client: httpx.Client) -> None:
    wrong = {**MUL, "arguments": {**MUL["arguments"], "output_type": "!quant.uniform<u8:f32, 16.0:5>"}}
    reply = client.post("/v1/call_vectors", json={"calls": [wrong]})
    assert reply.status_code == 422, reply.text


OWN = [name for name in CALL_VECTORS.calls.operations if "." not in name] if CALL_VECTORS.calls else []


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", OWN)
def test_every_operation_has_vectors(client: httpx.Client, name: str) -> None:
    """Of our own: without what chooses the arithmetic, or with an error that says what is missing."""
    assert CALL_VECTORS.calls is not None
    operation = CALL_VECTORS.calls.operations[name]
    chosen = {each.name for each in operation.options if each.chooses is not None and not each.required}
    arguments = {each: value for each, value in operation.example.items() if each not in chosen}
    [first, *others] = asked(client, calls=[{"operation": name, "arguments": arguments}])
    assert first["why"][0] == "given"
    assert first["expected"]
    assert others
    needed = {each.name for each in operation.options if each.chooses is not None and each.required}
    if needed:
        left = {each: value for each, value in arguments.items() if each not in needed}
        reply = client.post("/v1/call_vectors", json={"calls": [{"operation": name, "arguments": left}]})
        assert (reply.status_code, reply.json()["code"]) == (422, "parameter_invalid"), reply.text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.arange(-8, 8, dtype=np.int8))
    options = ["--input", str(tmp_path / "x.npy"), "--input-type", "!quant.uniform<i8:f32, 0.5:3>"]
    options += ["--output-type", "!quant.uniform<i8:f32, 0.25:-1>", "--count", "3", "--json"]
    assert main(["call_vectors", "litert.RELU", *options]) == 0
    assert len(json.loads(capsys.readouterr().out)["vectors"]) == 3
