"""Operators over HTTP: every example, the pages, the models, and bad input."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from requant.operators.description import Operator
from requant.operators.registry import OPERATORS
from requant_service.json_api.catalog.operators import route_path
from tests.requests.catalog import CATALOG
from tests.requests.inference import inference
from tests.service.replies import refused
from tests.support import oip_wire
from tests.support.oip_wire import Input, body_of

PATH = "/v1/onnx/QuantizeLinear"
ONE: dict[str, Any] = {
    "opset": 21,
    "inputs": {
        "x": {"type": "tensor<3xf32>", "values": [0.5, 1.5, -300]},
        "y_scale": {"type": "tensor<f32>", "values": [1.0]},
        "y_zero_point": {"type": "tensor<i8>", "values": [3]},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The request with one member replaced, or dropped for ...."""
    found = {**ONE, "inputs": dict(ONE["inputs"])}
    *place, last = path.split("/")
    parent = found
    for key in place:
        parent[key] = dict(parent.get(key, {}))
        parent = parent[key]
    if value is ...:
        del parent[last]
    else:
        parent[last] = value
    return found


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    reply = client.post(PATH, json=ONE)
    assert reply.json() == {"outputs": {"y": {"type": "tensor<3xi8>", "values": [3, 5, -128]}}}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_every_example_works_and_every_operator_has_a_page(client: httpx.Client, operator: Operator) -> None:
    reply = client.post(route_path(operator), json=dict(operator.example))
    assert reply.status_code == 200, reply.text
    assert list(reply.json()["outputs"]) == [output.name for output in operator.outputs]
    page = client.get(f"/v1/operators/{operator.full_name}").json()
    assert page.pop("conformance").keys() == {"run"}
    assert page in client.get("/v1/operators").json()["operators"]
    assert page["path"] == route_path(operator)
    assert [each["name"] for each in page["inputs"]] == [each.name for each in operator.inputs]
    model = client.get(f"/v2/models/{operator.full_name}").json()
    assert model["versions"] == ([str(version) for version in operator.versions] or ["1"])


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_every_operator_takes_attributes_and_an_implementation(client: httpx.Client, operator: Operator) -> None:
    path = route_path(operator)
    expected = client.post(path, json=dict(operator.example)).json()
    request = {"attributes": {}, **operator.example}
    names = client.get(f"/v1/operators/{operator.full_name}").json()["implementations"]
    for implementation in names:
        reply = client.post(path, json={**request, "implementation": implementation})
        assert reply.status_code == 200, reply.text
        assert implementation != names[0] or reply.json() == expected
    reply = client.post(path, json={**request, "implementation": "tvm"})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/implementation")
    assert f"available: {', '.join(names)}" in reply.json()["detail"]
    reply = client.post(path, json={**request, "attributes": {**request["attributes"], "tvm": 1}})
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/attributes/tvm")


@pytest.mark.parametrize("system", sorted({operator.system for operator in OPERATORS.values()}))
def test_the_operators_of_a_system_have_the_same_implementations(client: httpx.Client, system: str) -> None:
    listed = client.get("/v1/operators").json()["operators"]
    found = {tuple(each["implementations"]) for each in listed if each["system"] == system}
    assert len(found) == 1
    assert all(found)


def test_an_operator_that_is_not_there(client: httpx.Client) -> None:
    for name in ("onnx.Relu", "QuantizeLinear", "x" * 300):
        reply = client.get(f"/v1/operators/{name}")
        assert (reply.status_code, reply.json()["code"]) == (404, "unknown_name")
    assert client.post("/v1/onnx/Relu", json=ONE).status_code == 404


@pytest.mark.parametrize(
    ("path", "value", "status", "code", "pointer"),
    [
        ("opset", ..., 422, "request_invalid", "/opset"),
        ("opset", None, 422, "request_invalid", "/opset"),
        ("opset", "21", 422, "request_invalid", "/opset"),
        ("opset", 10**400, 422, "request_invalid", "/opset"),
        ("opset", 9, 422, "unsupported", "/opset"),
        ("opset", 13, 422, "unsupported", "/attributes/block_size"),
        ("implementation", "tvm", 422, "unknown_name", "/implementation"),
        ("inputs", ..., 422, "request_invalid", "/inputs"),
        ("inputs/x", ..., 422, "request_invalid", "/inputs/x"),
        ("inputs/z", {"type": "tensor<f32>", "values": [1]}, 422, "request_invalid", "/inputs/z"),
        ("inputs/y_zero_point", None, 422, "request_invalid", "/inputs/y_zero_point"),
        ("inputs/x", {"type": "f32", "values": [1]}, 422, "type_does_not_fit", "/inputs/x/type"),
        ("inputs/x", {"type": "tensor<?xf32>", "values": [1]}, 422, "type_does_not_fit", "/inputs/x/type"),
        ("inputs/x", {"type": "tensor<1xtf32>", "values": [1]}, 422, "unsupported", "/inputs/x/type"),
        ("inputs/x", {"type": "tensor<1xindex>", "values": [1]}, 422, "unsupported", "/inputs/x/type"),
        ("inputs/x", {"type": "tensor<1xi8>", "values": [1]}, 422, "unsupported", "/inputs/x"),
        ("inputs/x", {"type": "tensor<2xf32>", "values": [1]}, 400, "tensor_data", "/inputs/x/values"),
        ("inputs/x", {"type": "tensor<2xf32>", "data": "AAAA"}, 400, "tensor_data", "/inputs/x/data"),
        ("inputs/x", {"type": "tensor<2xf32>", "data": "!"}, 400, "base64", "/inputs/x/data"),
        ("inputs/x", {"type": "tensor<99999999999x9999999999xf32>", "data": ""}, 400, "tensor_data", "/inputs/x/data"),
        ("inputs/y_zero_point", {"type": "tensor<i4>", "values": [9]}, 400, "tensor_data", "/inputs/y_zero_point"),
        ("attributes/axis", 1.5, 422, "request_invalid", "/attributes/axis"),
        ("attributes/axis", 2**63, 422, "request_invalid", "/attributes/axis"),
        ("attributes/block_size", -1, 422, "request_invalid", "/attributes/block_size"),
        ("attributes/block_size", 2**62, 422, "type_does_not_fit", "/inputs/y_scale"),
        ("attributes/Axis", 1, 422, "request_invalid", "/attributes/Axis"),
    ],
)
def test_bad_requests(client: httpx.Client, path: str, value: Any, status: int, code: str, pointer: str) -> None:
    request = changed(path, value)
    if pointer == "/attributes/block_size":
        request = {**request, "attributes": {"block_size": 1 if code == "unsupported" else value}}
    refused(client.post(PATH, json=request), status, code, pointer)


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_of_several_wrong_operands_the_first_is_named(client: httpx.Client, operator: Operator) -> None:
    wrong = {each.name: {"type": "tensor<1xi8>", "values": [1, 2]} for each in operator.inputs}
    body = {**operator.example, "inputs": dict(reversed(wrong.items()))}
    [error] = client.post(route_path(operator), json=body).json()["errors"]
    assert error["pointer"] == f"/inputs/{operator.inputs[0].name}/values"


def test_a_version_is_told_from_which_on(client: httpx.Client) -> None:
    request = changed("inputs/y_zero_point", {"type": "tensor<i2>", "values": [1]})
    assert "y_zero_point of i2 from opset 25" in client.post(PATH, json=request).json()["detail"]
    assert client.post(PATH, json={**request, "opset": 25}).status_code == 200


def test_replies_have_the_form_of_the_request(client: httpx.Client) -> None:
    request = changed("inputs/x", {"type": "tensor<3xf32>", "data": "AAAAPwAAwD8AAJbD"})
    reply = client.post(PATH, json=request).json()
    assert reply == {"outputs": {"y": {"type": "tensor<3xi8>", "data": "AwWA"}}}


OUTER = {
    "A": {"type": "tensor<4096x1xui8>", "data": "AAAA" * 1365 + "AA=="},
    "B": {"type": "tensor<1x40960xui8>", "data": "AAAA" * 13653 + "AA=="},
}
CUBE = {
    "x": {"type": "tensor<1x1x2x2x2xui8>", "values": [0] * 8},
    "w": {"type": "tensor<1x1x1x1x1xui8>", "values": [1]},
}


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "limit"),
    [
        ("MatMulInteger", OUTER, None, "max_sums"),
        ("ConvInteger", CUBE, {"pads": [2**31 - 1] * 6}, "max_sums"),
        ("ConvInteger", CUBE, {"pads": [10**30] * 6}, None),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_computed(
    client: httpx.Client, operator: str, inputs: Any, attributes: Any, limit: str | None
) -> None:
    request = {"opset": 10, "inputs": inputs} | ({} if attributes is None else {"attributes": attributes})
    reply = client.post(f"/v1/onnx/{operator}", json=request)
    if limit is None:
        assert (reply.status_code, reply.json()["code"]) == (422, "request_invalid")
        return
    assert (reply.status_code, reply.json()["code"]) == (413, "limit_exceeded"), reply.text
    assert reply.json()["limit"] == client.get("/v1/info").json()["limits"][limit]


def test_a_model_is_limited_too(client: httpx.Client) -> None:
    sides = [Input("A", np.zeros((40_000, 1), np.uint8)), Input("B", np.zeros((1, 40_000), np.uint8))]
    body, headers = body_of(sides)
    reply = client.post("/v2/models/onnx.MatMulInteger/infer", content=body, headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (413, "limit_exceeded"), reply.text


def call_model(client: httpx.Client, inputs: list[Input], version: str = "", **parameters: Any) -> httpx.Response:
    body, headers = body_of(inputs, parameters={"binary_data_output": True, **parameters})
    path = f"/versions/{version}" if version else ""
    return client.post(f"/v2/models/onnx.QuantizeLinear{path}/infer", content=body, headers=headers)


X, SCALE = np.array([[0.5, 1.5], [-7.0, 9.0]], np.float32), np.array([1.0, 0.5], np.float32)


@pytest.mark.parametrize(
    ("version", "parameters", "pointer"),
    [
        ("10", {"axis": 0}, "/parameters/axis"),
        ("13", {"y_zero_point_type": "i4", "axis": 0}, "/inputs/2"),
        ("21", {"axis": 5}, "/parameters/axis"),
        ("21", {"implementation": "tvm"}, "/parameters/implementation"),
        ("21", {"y_zero_point_type": "i16"}, "/inputs/2/datatype"),
        ("21", {"block_size": -1}, "/parameters/block_size"),
    ],
)
def test_models_point_at_their_own_places(
    client: httpx.Client, version: str, parameters: dict[str, Any], pointer: str
) -> None:
    inputs = [Input("x", X), Input("y_scale", SCALE), Input("y_zero_point", np.array([3, 0], np.int8))]
    reply = call_model(client, inputs, version, **parameters)
    assert reply.status_code in (400, 422), reply.text
    assert reply.json()["errors"][0]["pointer"] == pointer, reply.text
    assert call_model(client, inputs, "12").status_code == 404


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if operator.stages])
def test_a_trace_is_beside_the_outputs(client: httpx.Client, name: str) -> None:
    operator = OPERATORS[name]
    plain = client.post(route_path(operator), json=operator.example).json()
    attributes = {**operator.example.get("attributes", {}), "trace": True}
    traced = client.post(route_path(operator), json={**operator.example, "attributes": attributes}).json()
    assert traced["outputs"] == plain["outputs"]
    assert plain.keys() == {"outputs"}
    assert traced["trace"].keys() <= {each.name for each in operator.stages}
    model = inference(CATALOG[name], {**operator.example, "attributes": attributes})
    parameters = {**model.parameters, "binary_data_output": True}
    found = oip_wire.read(oip_wire.infer(client, model.path, model.inputs, parameters=parameters))
    assert [*found.outputs] == [*traced["outputs"], *traced["trace"]]
