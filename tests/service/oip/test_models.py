"""A model is its description: what is registered is served, in every form, and nothing of the face knows it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest

from requant_service.app import create_app
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES, datatype_of
from requant_service.oip.models import registry
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.registry import MODELS
from requant_service.oip.parameters import Kind, Parameter
from requant_service.oip.schemas import MAX_TENSORS
from requant_service.oip.tensors import OutputTensor
from requant_service.runtime.runtime import HealthStatus
from requant_service.runtime.settings import Settings
from tests.support.oip_wire import DTYPES, LENGTH, Input, body_of, read


def _plan_greater(call: Call) -> Job:
    a, b = call.inputs["a"], call.inputs.get("b")

    def run() -> Answer:
        other = np.zeros_like(a.data) if b is None else b.data
        greater = (a.data > other) ^ (call.parameters["not"] is True)
        output = OutputTensor("c", DATATYPES["BOOL"], a.shape, greater.view(np.uint8), "i1")
        return Answer((output,), {"version": call.version, "count": int(greater.sum())})

    return Job(run, a.data.nbytes)


GREATER = Model(
    name="onnx.Greater",
    versions=("7", "13"),
    description="a > b, element by element.",
    inputs=(
        Slot(name="a", description="One side.", datatypes=("INT16",)),
        Slot(name="b", description="The other. Default: 0.", datatypes=("INT16",), optional=True),
    ),
    outputs=(Slot(name="c", description="Whether it is.", datatypes=("BOOL",)),),
    parameters=(Parameter(name="not", description="Turn it round.", kind=Kind.BOOLEAN, default=False),),
    plan=_plan_greater,
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    models: Mapping[str, Model] = {**MODELS, GREATER.name: GREATER}
    monkeypatch.setattr(registry, "MODELS", models)


def ask(send: Callable[[httpx.AsyncClient], Any], status: HealthStatus = HealthStatus.READY) -> httpx.Response:
    app = create_app(Settings())
    app.state.runtime.status = status

    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            reply: httpx.Response = await send(client)
            return reply

    return asyncio.run(run())


A, B = np.array([[1, 5], [-3, 0]], np.int16), np.array([[0, 7], [-3, -1]], np.int16)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("path", ["", "/versions/7", "/versions/13"])
def test_a_registered_model_is_served(binary: bool, path: str) -> None:
    inputs = [Input("a", A), Input("b", B, data=None if binary else B.tolist())]
    body, headers = body_of(inputs, parameters={"binary_data_output": binary, "not": True})
    url = f"/v2/models/onnx.Greater{path}/infer"
    reply = read(ask(lambda client: client.post(url, content=body, headers=headers)))
    assert reply.outputs["c"].tolist() == [[False, True], [True, False]]
    version = path.removeprefix("/versions/") or "13"
    assert reply.head["model_version"] == version
    assert reply.head["parameters"] == {"version": version, "count": 2}
    if not binary:
        assert reply.head["outputs"][0]["data"] == [False, True, True, False]


@pytest.mark.usefixtures("registered")
def test_a_model_with_one_needed_input_takes_raw_requests() -> None:
    url = "/v2/models/onnx.Greater/infer"
    for query, expected in (({}, [True, True, False, False]), ({"not": "true"}, [False, False, True, True])):
        send = partial(httpx.AsyncClient.post, url=url, params=query, content=A.tobytes(), headers={LENGTH: "0"})
        reply = read(ask(send))
        assert reply.outputs["c"].tolist() == expected
    wrong = ask(lambda client: client.post(url, params={"not": "1"}, content=A.tobytes(), headers={LENGTH: "0"}))
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/parameters/not")


@pytest.mark.usefixtures("registered")
def test_a_registered_model_is_described() -> None:
    found = ask(lambda client: client.get("/v2/models/onnx.Greater")).json()
    assert found["versions"] == ["7", "13"]
    assert [(tensor["name"], tensor["datatype"]) for tensor in found["inputs"]] == [("a", "INT16"), ("b", "INT16")]
    assert found["request_parameters"] == [
        {"name": "not", "kind": "boolean", "required": False, "default": "false", "description": "Turn it round."}
    ]
    assert ask(lambda client: client.get("/v2/models/onnx.Greater/versions/8")).status_code == 404


WORKING = (HealthStatus.COMPILING, HealthStatus.READY, HealthStatus.DRAINING)


@pytest.mark.parametrize("status", [s for s in HealthStatus if s not in WORKING])
def test_until_ready_work_is_refused_and_the_process_is_live(status: HealthStatus) -> None:
    for path in ("/v2/health/ready", "/v2/models/quantize/ready", "/v2/models/quantize/versions/1/ready"):
        reply = ask(partial(httpx.AsyncClient.get, url=path), status)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert reply.json()["error"] == reply.json()["detail"]
    assert ask(lambda client: client.post("/v2/models/quantize/infer", content=b""), status).status_code == 503
    assert ask(lambda client: client.get("/v2/models/nope/ready"), status).status_code == 404
    for path in ("/v2", "/v2/health/live", "/v2/models", "/v2/models/quantize"):
        assert ask(partial(httpx.AsyncClient.get, url=path), status).status_code == 200
    index = ask(lambda client: client.post("/v2/repository/index"), status).json()
    assert {entry["state"] for entry in index} == {"UNAVAILABLE"}
    assert str(status) in index[0]["reason"]


def test_a_fault_of_the_service_has_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(call: Call) -> Job:
        raise RuntimeError("SECRET")

    monkeypatch.setattr(registry, "MODELS", {"quantize": replace(MODELS["quantize"], conversion=None, plan=fail)})
    app = create_app(Settings())
    app.state.runtime.status = HealthStatus.READY
    body, headers = body_of([Input("x", np.zeros(1, np.float32))], parameters={"output_type": "f32"})

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/v2/models/quantize/infer", content=body, headers=headers)

    reply = asyncio.run(run())
    assert reply.status_code == 500
    assert reply.json()["error"]
    assert "SECRET" not in reply.text


def test_the_datatypes_are_those_of_the_protocol() -> None:
    assert set(DATATYPES) == set(DTYPES)
    for name, datatype in DATATYPES.items():
        assert datatype.dtype.itemsize == np.dtype(DTYPES[name]).itemsize
        if name != "BOOL":
            assert datatype_of(datatype.element, datatype.dtype) == datatype


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_descriptions_are_sound(model: Model) -> None:
    """Names as the protocol and its clients take them: tritonclient refuses its own reserved parameters."""
    reserved = {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}
    for slots in (model.inputs, model.outputs):
        assert len({slot.name for slot in slots}) == len(slots) <= MAX_TENSORS
        assert all(set(slot.datatypes) <= set(DATATYPES) and len(slot.name) <= 64 for slot in slots)
    names = [parameter.name for parameter in model.parameters]
    assert len(set(names)) == len(names) <= 32
    assert not [name for name in names if name in reserved or name.startswith("triton_")]
    assert all(
        parameter.default is None or parameter.fault(parameter.default) is None for parameter in model.parameters
    )
    assert json.dumps([slot.description for slot in model.inputs])
