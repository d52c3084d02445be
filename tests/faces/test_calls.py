"""Operations on calls of other operations: the same answer in every protocol, and hostile calls answered at once."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import requant
from requant.command.main import main
from requant.description import (
    CallsInput,
    Member,
    Operation,
    OperationCall,
    PlannedWork,
    Result,
)
from requant.functions import function_of
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from requant_service.http.json_document import JsonDocument
from requant_service.json_api.calls import read_calls
from requant_service.json_api.schemas.described import request_model
from requant_service.oip.models.described import model_of
from requant_service.runtime.settings import Settings
from tests.requests.catalog import CATALOG
from tests.requests.inference import inference

ROUTE = "/v1/identify"
EXAMPLE: dict[str, Any] = json.loads(json.dumps(OPERATIONS["identify"].example))
assert OPERATIONS["identify"].calls is not None
CALLED = OPERATIONS["identify"].calls.operations
INPUT, OUTPUT = np.array([585, 7984, -12], np.int32), np.array([1, 31, -1], np.int8)
INPUT_TYPE, OUTPUT_TYPE = "!quant.uniform<i32:f32, 0.001>", "!quant.uniform<i8:f32, 0.25:-1>"
ARGUMENTS = {"input": INPUT, "input_type": INPUT_TYPE, "output_type": OUTPUT_TYPE}
CALL = {"operation": "requantize", "arguments": ARGUMENTS, "observed": {"output": OUTPUT}}
Change = Callable[[dict[str, Any], dict[str, Any]], object]


def in_base64(array: np.ndarray[Any, Any]) -> str:
    return b64encode(array.tobytes()).decode()


def changed(change: Change) -> dict[str, Any]:
    """The example, after a change of the request and of its call."""
    body = deepcopy(EXAMPLE)
    change(body, body["calls"][0])
    return body


@pytest.fixture
def answer(client: httpx.Client) -> dict[str, Any]:
    reply = client.post(ROUTE, json=EXAMPLE)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    assert [each["candidates"][0] for each in found["consistent"]] == [
        {"profile": "litert"},
        {"profile": "litert_xnnpack"},
    ]
    return found


@pytest.mark.parametrize(
    "observed",
    [
        [[1, 31, -1]],
        {"values": [1, 31, -1]},
        {"data": in_base64(OUTPUT)},
        {"type": f"tensor<3x{OUTPUT_TYPE}>", "values": [1, 31, -1]},
        {"type": "tensor<3xi32>", "data": in_base64(OUTPUT.astype(np.int32))},
    ],
    ids=json.dumps,
)
def test_an_output_is_a_tensor_in_any_form(client: httpx.Client, answer: dict[str, Any], observed: Any) -> None:
    body = changed(lambda _, call: call.update(observed={"output": observed}))
    assert client.post(ROUTE, json=body).json() == answer


def test_an_input_in_base64(client: httpx.Client, answer: dict[str, Any]) -> None:
    tensor = {"type": EXAMPLE["calls"][0]["arguments"]["input"]["type"], "data": in_base64(INPUT)}
    body = changed(lambda _, call: call["arguments"].update(input=tensor))
    assert client.post(ROUTE, json=body).json() == answer


def test_the_function_answers_the_same(answer: dict[str, Any]) -> None:
    assert requant.identify([CALL], suspects=EXAMPLE["suspects"]) == answer


def test_the_model_answers_the_same(client: httpx.Client, answer: dict[str, Any]) -> None:
    found = inference(CATALOG["identify"], EXAMPLE)
    reply = client.post("/v2/models/identify/infer", json=found.in_json())
    assert reply.status_code == 200, reply.text
    assert as_members(reply.json()["parameters"]) == answer


def as_members(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a reply that a model gives as parameters."""
    return {name: json.loads(each) if isinstance(each, str) else each for name, each in parameters.items()}


def test_the_subcommand_answers_the_same(
    answer: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", INPUT)
    np.save(tmp_path / "y.npy", OUTPUT)
    tensor = {"type": f"tensor<3x{INPUT_TYPE}>", "file": "x.npy"}
    files = changed(lambda _, call: (call["arguments"].update(input=tensor), call.update(observed={"output": "y.npy"})))
    forms = [EXAMPLE, files, changed(lambda _, call: call.update(observed={"output": {"data": in_base64(OUTPUT)}}))]
    for index, form in enumerate(forms):
        (file := tmp_path / f"{index}.json").write_text(json.dumps(form))
        assert main(["identify", str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == answer
    types = ["--input-type", INPUT_TYPE, "--output-type", OUTPUT_TYPE]
    direct = ["identify", "requantize", "--input", str(tmp_path / "x.npy"), *types]
    direct += ["--observed", str(tmp_path / "y.npy"), "--suspects", *EXAMPLE["suspects"]]
    assert main([*direct, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer
    assert main(direct) == 0
    assert "- candidates: profile=litert_xnnpack" in capsys.readouterr().out.splitlines()


def test_records_and_numbers_are_observed_by_name(client: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    observed = {"multiplier": [1690499128], "shift": [-6]}
    call = {"operation": "derive_multiplier", "arguments": {"factors": ["0.0123"]}, "observed": observed}
    reply = client.post(ROUTE, json={"calls": [call]}).json()
    assert {"scheme": "litert"} in reply["consistent"][0]["candidates"]
    assert main(
        ["identify", "derive_multiplier", "--factors", "0.0123", "--json", "--observed",
         "multiplier=[1690499128]", "shift=[-6]"]
    ) == 0  # fmt: skip
    assert json.loads(capsys.readouterr().out)["consistent"] == reply["consistent"]
    arguments = {"minimums": [-1.0], "maximums": [2.0], "storage": "i8"}
    texts = {"scales": ["0.011764706"], "zero_points": [-43]}
    call = {"operation": "derive_from_range", "arguments": arguments, "observed": texts}
    assert client.post(ROUTE, json={"calls": [call]}).json()["consistent"]


def small_floats(element: str) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """A call of quantize to a small float, without what was observed, and the numbers that it gives."""
    given = [1.0, 2.5, -0.1, 0.3]
    arguments = {"input": {"type": "tensor<4xf32>", "values": given}, "output_type": element}
    real = requant.dequantize(requant.quantize(np.array(given, np.float32), element), input_type=element)
    return {"operation": "quantize", "arguments": arguments}, real


@pytest.mark.sample(1)
@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2FNUZ", "f4E2M1FN", "f6E2M3FN", "bf16", "f16"])
def test_small_floats_are_observed_as_numbers_or_as_their_reply(client: httpx.Client, element: str) -> None:
    call, numbers = small_floats(element)
    reply = client.post("/v1/quantize", json=call["arguments"]).json()
    answers = [
        client.post(ROUTE, json={"calls": [{**call, "observed": each}]}).json()["consistent"]
        for each in (reply, {"output": {"values": numbers.tolist()}}, {"output": reply["output"]["values"]})
    ]
    assert {"profile": "stablehlo"} in answers[0][0]["candidates"]
    assert answers[1:] == answers[:1] * 2


@pytest.mark.parametrize("element", ["f8E4M3FN", "bf16"])
def test_a_model_s_own_reply_is_observed(client: httpx.Client, element: str) -> None:
    given = {"datatype": "FP32", "shape": [3], "data": [1.0, 2.5, -0.1]}
    body = {"inputs": [{**given, "name": "x"}], "parameters": {"output_type": element}}
    [output] = client.post("/v2/models/quantize/infer", json=body).json()["outputs"]
    arguments = {"input": "tensor_0", "output_type": element}
    calls = json.dumps([{"operation": "quantize", "arguments": arguments, "observed": {"output": "tensor_1"}}])
    inputs = [{**given, "name": "tensor_0"}, {**output, "name": "tensor_1"}]
    for each in inputs:
        each.pop("parameters", None)
    reply = client.post("/v2/models/identify/infer", json={"inputs": inputs, "parameters": {"calls": calls}})
    consistent = as_members(reply.json()["parameters"])["consistent"]
    assert {"profile": "stablehlo"} in consistent[0]["candidates"]


def test_a_number_that_is_too_large_for_a_small_float(client: httpx.Client) -> None:
    call, _ = small_floats("f8E4M3FN")
    reply = client.post(ROUTE, json={"calls": [{**call, "observed": {"output": {"values": [1.5, 1e5, 0.0, "NaN"]}}}]})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (400, "/calls/0/observed/output/values/1")


# What is compared has no rules to tell apart. Operators: test_identified_operators.py.
OBSERVABLE = sorted(name for name in CALLED if name != "compare" and "." not in name)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", OBSERVABLE)
def test_an_operation_s_own_reply_is_observed(
    client: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    entry, operation = CATALOG[name], CALLED[name]
    reply = client.post(entry.route, json=entry.example).json()
    choosing = [each.name for each in operation.options if each.chooses is not None]
    arguments = {key: each for key, each in entry.example.items() if key not in choosing}
    chosen = {key: each for key, each in entry.example.items() if key in choosing}
    if "profile" in reply.get("report", {}) and not chosen:
        chosen = {"profile": reply["report"]["profile"]}
    body = {"calls": [{"operation": name, "arguments": arguments, "observed": reply}], "max_compute_seconds": 1}
    if chosen:
        body["suspects"] = [each for each in chosen.values() if isinstance(each, str)]
    answer = client.post(ROUTE, json=body).json()
    candidates = [each for group in answer["consistent"] for each in group["candidates"]]
    assert any(chosen.items() <= each.items() for each in candidates), answer
    (file := tmp_path / "calls.json").write_text(json.dumps(body))
    assert main(["identify", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["consistent"] == answer["consistent"]


def test_what_a_function_gives_is_observed() -> None:
    given: dict[str, dict[str, Any]] = {
        "derive_multiplier": {"factors": [0.0123, 0.5]},
        "derive_from_range": {"minimums": [-1.0], "maximums": [2.0], "storage": "i8"},
    }
    for name, arguments in given.items():
        reply = getattr(requant, name)(**arguments, scheme="litert")
        call = {"operation": name, "arguments": arguments, "observed": reply}
        assert {"scheme": "litert"} in requant.identify([call])["consistent"][0]["candidates"]
    assert requant.identify([{**CALL, "observed": OUTPUT}]) == requant.identify([CALL])


def test_unknown_scales_are_read_as_their_storage(client: httpx.Client) -> None:
    body = changed(lambda _, call: call["arguments"].update(output_type="!quant.any<i8:f32>"))
    parameters = client.post(ROUTE, json=body).json()["parameters"]
    assert {each["consistent"] for each in parameters} == {0, 1}
    assert any(float(each["lowest"]) <= 0.25 <= float(each["highest"]) for each in parameters)
    stored = np.arange(-60, 60, dtype=np.int8)
    observed = requant.requantize(stored, "!quant.uniform<i8:f32, 0.5:3>", OUTPUT_TYPE, profile="litert")
    call = {
        "operation": "requantize",
        "arguments": {"input": {"type": "tensor<120x!quant.any<i8:f32>>", "data": in_base64(stored)},
                      "output_type": OUTPUT_TYPE},
        "observed": {"output": {"data": in_base64(observed)}},
    }  # fmt: skip
    parameters = client.post(ROUTE, json={"calls": [call], "suspects": ["litert"]}).json()["parameters"]
    assert any(
        each["zero_point"] == 3 and float(each["lowest"]) <= 0.5 <= float(each["highest"]) for each in parameters
    )


def test_a_budget_leaves_candidates(client: httpx.Client) -> None:
    reply = client.post(ROUTE, json={**EXAMPLE, "max_compute_seconds": 1e-9}).json()
    assert reply["not_tried"]
    assert not reply["consistent"]
    assert requant.identify([CALL], max_compute_seconds=1e-9)["not_tried"]


WRONG: dict[str, tuple[Change, int, str]] = {
    "an unknown operation": (lambda _, call: call.update(operation="requantiz"), 422, "/calls/0/operation"),
    "itself": (lambda _, call: call.update(operation="identify"), 422, "/calls/0/operation"),
    "no argument": (lambda _, call: call.update(arguments={}), 422, "/calls/0/arguments/input"),
    "an unknown argument": (lambda _, call: call["arguments"].update(inpt=1), 422, "/calls/0/arguments/inpt"),
    "arguments in a list": (lambda _, call: call.update(arguments=[]), 422, "/calls/0/arguments"),
    "a wrong type": (
        lambda _, call: call["arguments"].update(output_type="!quant.nope"),
        422,
        "/calls/0/arguments/output_type",
    ),
    "one value too many": (
        lambda _, call: call["arguments"]["input"]["values"].append(1),
        400,
        "/calls/0/arguments/input/values",
    ),
    "a value of another kind": (
        lambda _, call: call["arguments"]["input"].update(values=[1, "x", 2]),
        400,
        "/calls/0/arguments/input/values/1",
    ),
    "too few bytes": (
        lambda _, call: call["arguments"].update(input={"type": "tensor<3xi32>", "data": "AAAA"}),
        400,
        "/calls/0/arguments/input/data",
    ),
    "an unknown output": (lambda _, call: call.update(observed={"otput": [1]}), 422, "/calls/0/observed/otput"),
    "no output": (lambda _, call: call.update(observed={}), 422, "/calls/0/observed"),
    "an output out of range": (
        lambda _, call: call.update(observed={"output": [1, 300, 2]}),
        400,
        "/calls/0/observed/output/1",
    ),
    "an output of lists that differ": (
        lambda _, call: call.update(observed={"output": [[1, 2], [3]]}),
        400,
        "/calls/0/observed/output",
    ),
    "an output of texts": (
        lambda _, call: call.update(observed={"output": {"values": ["a", "b", "c"]}}),
        400,
        "/calls/0/observed/output/values/0",
    ),
    "a huge output": (lambda _, call: call.update(observed={"output": [1] * 100_000}), 413, "/calls/0/observed/output"),
    "an unknown suspect": (lambda body, _: body.update(suspects=["nope"]), 422, "/suspects"),
    "no time": (lambda body, _: body.update(max_compute_seconds=0), 422, "/max_compute_seconds"),
    "10000 calls": (lambda body, _: body.update(calls=body["calls"] * 10_000), 413, "/calls"),
    "no call": (lambda body, _: body.update(calls=[]), 422, "/calls"),
    "a call that is none": (lambda body, _: body.update(calls=[7]), 422, "/calls/0"),
    "a deep argument": (
        lambda _, call: call["arguments"].update(input=json.loads("[" * 150 + "]" * 150)),
        422,
        "/calls/0/arguments/input",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_pointed_at(client: httpx.Client, what: str) -> None:
    change, status, pointer = WRONG[what]
    body = json.dumps(changed(change))
    begun = time.perf_counter()
    reply = client.post(ROUTE, content=body, headers={"content-type": "application/json"})
    assert time.perf_counter() - begun < 5
    assert reply.status_code == status, reply.text
    assert reply.json()["errors"][0]["pointer"].startswith(pointer), reply.text


@pytest.mark.parametrize("text", ["[" * 100_000, '{"calls":' * 5000, '{"calls": [' + '{"a":' * 300, "[]", "7", "null"])
def test_what_is_no_request_is_refused(client: httpx.Client, text: str) -> None:
    reply = client.post(ROUTE, content=text, headers={"content-type": "application/json"})
    assert 400 <= reply.status_code < 500


TEXTS = {
    "no JSON": "nope",
    "no list": "{}",
    "no call": "[7]",
    "none": "[]",
    "deep": "[" * 150 + "]" * 150,
    "too deep": "[" * 5000,
    "an unknown operation": '[{"operation": "nope", "arguments": {}, "observed": {"output": [1]}}]',
    "an unknown input": '[{"operation": "quantize", "arguments": {"input": "x", "output_type": "i8"}, '
    '"observed": {"output": [1]}}]',
    "a tensor that is none": '[{"operation": "quantize", "arguments": {"input": [[1], [2, 3]], "output_type": "i8"}, '
    '"observed": {"output": [1]}}]',
    "a missing option": '[{"operation": "quantize", "arguments": {"input": "tensor"}, "observed": {"output": [1]}}]',
    "10000 calls": json.dumps([{"operation": "add", "arguments": {}, "observed": {"output": [1]}}] * 10_000),
    "a long type": json.dumps(
        [{"operation": "add", "arguments": {"lhs_type": "i" * 2_000_000}, "observed": {"output": [1]}}]
    ),
}


@pytest.mark.parametrize("what", TEXTS)
def test_wrong_calls_of_a_model_point_at_the_parameter(client: httpx.Client, what: str) -> None:
    inputs = [{"name": "tensor", "datatype": "FP32", "shape": [1], "data": [0.5]}]
    reply = client.post("/v2/models/identify/infer", json={"inputs": inputs, "parameters": {"calls": TEXTS[what]}})
    assert 400 <= reply.status_code < 500, reply.text
    assert {each["pointer"] for each in reply.json()["errors"]} == {"/parameters/calls"}


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (7, "calls takes a list of calls, each a dictionary"),
        ([], "calls takes a list of calls, each a dictionary"),
        ([7], "a call is a dictionary of operation, arguments, observed"),
        ([{**CALL, "observed": {}}], "observed outputs are a dictionary of arrays by the names of the outputs"),
        ([{**CALL, "observed": {"output": ["a"]}}], "output is no array of numbers"),
        ([{**CALL, "arguments": {"input": INPUT}}], "requantize has no output_type"),
        ([{**CALL, "arguments": {**ARGUMENTS, "input": ["a"]}}], "input is no array of numbers"),
        (
            [{**CALL, "arguments": {**ARGUMENTS, "input": np.ones(1, np.float32)}}],
            "input is an array of float32 (f32), and its type has elements of i32",
        ),
    ],
    ids=str,
)
def test_wrong_calls_of_the_function(calls: Any, said: str) -> None:
    with pytest.raises(requant.RequantError) as raised:
        requant.identify(calls)
    assert str(raised.value) == said


def test_wrong_files_of_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("nope", "[]", '{"cals": []}', '{"calls": 7}', '{"calls": [7]}', json.dumps({"calls": [{}]})):
        (file := tmp_path / "calls.json").write_text(text)
        assert main(["identify", str(file)]) in (1, 2)
    body = changed(lambda _, call: call["arguments"].update(input={"type": "tensor<3xi32>", "file": "absent.npy"}))
    file.write_text(json.dumps(body))
    assert main(["identify", str(file)]) == 1
    assert "absent.npy cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["identify", "requantize", "--input", "x.npy"])


def _plan_pair(call: OperationCall) -> PlannedWork:
    def run(_: Mapping[str, Any]) -> Result:
        outputs = [each.result(each.planned()).outputs["output"].data for each in call.calls]
        return Result(report={"differ": int(np.count_nonzero(outputs[0] != outputs[1]))})

    return PlannedWork(operands={}, run=run, byte_count=0)


PAIR = Operation(
    name="pair",
    title="Pair",
    group="ops",
    summary="Count the elements that two calls give otherwise.",
    request="",
    source="the test",
    inputs=(
        CallsInput(
            name="pair", description="Two calls.", operations={each.name: each for each in CONVERSIONS.values()}
        ),
    ),
    options=(),
    reply=(Member(name="differ", description="How many differ."),),
    reply_title="PairReply",
    reply_description="How many differ.",
    plan=_plan_pair,
    example={"pair": [{"operation": "quantize", "arguments": {}}] * 2},
)


def test_calls_may_have_nothing_that_was_observed() -> None:
    """An operation on calls without observed outputs, by its description alone."""
    told_apart = np.array([-19625], np.int32)
    tensor = {"type": f"tensor<1x{INPUT_TYPE}>", "values": told_apart.tolist()}
    body = {
        "pair": [
            {
                "operation": "requantize",
                "arguments": {"input": tensor, "output_type": OUTPUT_TYPE, "profile": profile},
            }
            for profile in ("litert", "litert_xnnpack")
        ]
    }
    given = PAIR.calls
    assert given is not None
    request = request_model(PAIR).model_validate(body)
    calls = read_calls(given, request, JsonDocument(json.dumps(body).encode()), Settings())
    assert PAIR.plan(OperationCall({}, {}, calls=calls)).run({}).report == {"differ": 1}
    with pytest.raises(ValueError, match="observed"):
        request_model(PAIR).model_validate({"pair": [{**body["pair"][0], "observed": {"output": [1]}}]})
    arrays = [
        {"operation": "requantize", "arguments": {**ARGUMENTS, "input": told_apart, "profile": profile}}
        for profile in ("litert", "litert_xnnpack")
    ]
    assert function_of(PAIR)(arrays) == {"differ": 1}
    model = model_of(PAIR)
    assert [slot.name for slot in model.inputs] == ["tensor"]
    assert [each.name for each in model.parameters] == ["pair"]
