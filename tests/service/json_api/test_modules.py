"""Modules over HTTP: passes, limits and refusals."""

from __future__ import annotations

import base64
import time
from typing import Any

import httpx
import pytest

from tests.service.replies import refused

MODULE = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n"


def test_wrong_modules_have_a_place(client: httpx.Client) -> None:
    wrong = MODULE.replace("return", "%0 = stablehlo.foo %x : tensor<2xf32>\n  return")
    found = refused(client.post("/v1/lower", json={"module": wrong}), 422, "module_invalid", "/module")
    assert (found["line"], found["column"], found["caret"].split("\n")[1]) == (2, 3, "  ^")


@pytest.mark.parametrize("module", ["", "{" * 100_000, "x" * 100_000, "(" * 63 + "loc(" * 1000, '"' * 1000, "\ud800"])
def test_odd_texts(client: httpx.Client, module: str) -> None:
    body = '{"module": "' + module.replace('"', '\\"').replace("\ud800", "\\ud800") + '"}'
    reply = client.post("/v1/lower", content=body, headers={"content-type": "application/json"})
    assert reply.status_code in (400, 422), reply.text
    assert len(reply.content) < 4000


def test_limits_and_names(client: httpx.Client) -> None:
    refused(client.post("/v1/lower", json={"module": " " * 300_000}), 413, "limit_exceeded", "/module")
    many = MODULE.replace("return", "stablehlo.add %x, %x : tensor<2xf32>\n" * 5000 + "return")
    refused(client.post("/v1/lower", json={"module": many}), 413, "limit_exceeded", "/module")
    refused(client.post("/v1/lower", json={"module": MODULE, "passes": ["x"] * 17}), 413, "limit_exceeded", "/passes")
    passes = ["lower-quant-ops", "lower-quant-op"]
    found = refused(
        client.post("/v1/lower", json={"module": MODULE, "passes": passes}), 422, "unknown_name", "/passes/1"
    )
    assert "strip-func-quant-types" in found["detail"]


def test_a_pass_that_cannot(client: httpx.Client) -> None:
    module = MODULE.replace("return", "%q = quant.qcast %x : tensor<2xf32> to tensor<2x!quant.any<i8:f32>>\n  return")
    request = {"module": module, "passes": ["lower-quant-ops"]}
    found = refused(client.post("/v1/lower", json=request), 422, "lowering_failed", "/module")
    assert (found["line"], found["column"]) == (2, 3)


ECHO = "func.func @main(%x: tensor<2xf32>, %y: i1) -> (i1, tensor<2xf32>) { return %y, %x : i1, tensor<2xf32> }"


def test_inputs_and_outputs(client: httpx.Client) -> None:
    inputs = [{"type": "tensor<2xf32>", "values": [0.5, "NaN"]}, {"type": "tensor<i1>", "values": [1]}]
    reply = client.post("/v1/evaluate", json={"module": ECHO, "inputs": inputs})
    assert reply.json() == {"outputs": [inputs[1], inputs[0]]}
    inputs = [{"type": "tensor<2xf32>", "data": "AAAAPwAAwH8="}, {"type": "tensor<i1>", "data": "AQ=="}]
    assert client.post("/v1/evaluate", json={"module": ECHO, "inputs": inputs}).json() == {"outputs": inputs[::-1]}


@pytest.mark.parametrize(
    ("change", "status", "code", "pointer"),
    [
        ({"function": "other"}, 422, "unknown_name", "/function"),
        ({"inputs": []}, 422, "parameter_invalid", None),
        ({"inputs": [{"type": "tensor<3xf32>", "values": [1, 2, 3]}]}, 422, "type_does_not_fit", "/inputs/0/type"),
        ({"inputs": [{"type": "tensor<2xi8>", "values": [1, 2]}]}, 422, "type_does_not_fit", "/inputs/0/type"),
        ({"inputs": [{"type": "tensor<2xf32>", "values": [1]}]}, 400, "tensor_data", "/inputs/0/values"),
        ({"inputs": [{"type": "tensor<?xf32>", "values": [1]}]}, 422, "type_does_not_fit", "/inputs/0/type"),
        ({"inputs": [{"type": "f8E5M2", "values": [1]}]}, 422, "type_does_not_fit", "/inputs/0/type"),
        ({"inputs": [{"type": "tensor<1xf8E5M2>", "values": [1]}]}, 422, "unsupported", "/inputs/0/type"),
    ],
)
def test_wrong_inputs(
    client: httpx.Client, change: dict[str, Any], status: int, code: str, pointer: str | None
) -> None:
    request = {"module": MODULE, "inputs": [{"type": "tensor<2xf32>", "values": [1, 2]}]} | change
    refused(client.post("/v1/evaluate", json=request), status, code, pointer)


def evaluated(client: httpx.Client, lines: str) -> httpx.Response:
    module = MODULE.replace("return", f"{lines}\n  return")
    return client.post("/v1/evaluate", json={"module": module, "inputs": [{"type": "tensor<2xf32>", "values": [1, 2]}]})


def test_what_evaluation_costs_is_bounded(client: httpx.Client) -> None:
    huge = "%0 = stablehlo.iota dim = 0 : tensor<99999999x9999xi64>"
    refused(evaluated(client, huge), 413, "limit_exceeded", "/module")
    grows = "%z = stablehlo.constant dense<0.0> : tensor<f32>\n  %0 = stablehlo.pad %x, %z, low = [0], "
    grows += "high = [9999999999], interior = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<?xf32>"
    refused(evaluated(client, grows), 413, "limit_exceeded", "/module")
    recursive = MODULE.replace("return", "%0 = call @main(%x) : (tensor<2xf32>) -> tensor<2xf32>\n  return")
    request = {"module": recursive, "inputs": [{"type": "tensor<2xf32>", "values": [1, 2]}]}
    refused(client.post("/v1/evaluate", json=request), 413, "limit_exceeded", "/module")
    assert evaluated(client, "").status_code == 200


def test_operations_that_are_not_evaluated_or_do_not_fit(client: httpx.Client) -> None:
    found = refused(
        evaluated(client, '%0 = "stablehlo.cholesky"(%x) : (tensor<2xf32>) -> tensor<2xf32>'),
        422, "lowering_failed", "/module",
    )  # fmt: skip
    assert (found["line"], "not evaluated" in found["detail"]) == (2, True)
    wrong = "%0 = stablehlo.transpose %x, dims = [5] : (tensor<2xf32>) -> tensor<2xf32>"
    refused(evaluated(client, wrong), 422, "lowering_failed", "/module")
    wrong = "%0 = stablehlo.reshape %x : (tensor<2xf32>) -> tensor<3xf32>"
    refused(evaluated(client, wrong), 422, "lowering_failed", "/module")
    poison = "%0 = arith.constant 3.0e+02 : f32\n  %1 = arith.fptosi %0 : f32 to i8"
    assert (
        "MLIR defines no result" in refused(evaluated(client, poison), 422, "precondition_failed", "/module")["detail"]
    )


_EMPTY = "%e = tensor.empty() : tensor<2xf32>\n  "
_GENERIC = (
    "%0 = linalg.generic {{indexing_maps = [affine_map<(d0) -> ({})>, affine_map<(d0) -> (d0)>], "
    'iterator_types = ["parallel"]}} ins(%x : tensor<2xf32>) outs(%e : tensor<2xf32>) '
    "{{ ^bb0(%a: f32, %b: f32): linalg.yield %a : f32 }} -> tensor<2xf32>"
)


@pytest.mark.parametrize(
    ("lines", "status", "code"),
    [
        ('"' + "a" * 200, 422, "module_invalid"),
        ('"' + "a" * 200 + '\\q"', 422, "module_invalid"),
        (_EMPTY + _GENERIC.format("d0 floordiv 0"), 422, "module_invalid"),
        (_EMPTY + _GENERIC.format("d0 + " * 5000 + "d0"), 422, "module_invalid"),
        (f"%0 = arith.constant 0x{'F' * 100_000} : i16777215", 422, "lowering_failed"),
        ("%c = arith.constant 200000000 : index\n  %0 = tensor.empty(%c) : tensor<?xi64>", 413, "limit_exceeded"),
        ('%0 = "scf.while"(%x) : (tensor<2xf32>) -> tensor<2xf32>', 422, "module_invalid"),
    ],
)
def test_hostile_modules(client: httpx.Client, lines: str, status: int, code: str) -> None:
    began = time.monotonic()
    reply = evaluated(client, lines)
    found = refused(reply, status, code, "/module")
    assert time.monotonic() - began < 5
    assert len(reply.content) < 4000
    if code == "module_invalid":
        assert {"line", "column", "caret"} <= found.keys()
    if code == "lowering_failed":
        module = MODULE.replace("return", f"{lines}\n  return")
        refused(client.post("/v1/lower", json={"module": module}), status, code, "/module")


@pytest.mark.parametrize("op", ["chlo.broadcast_add", "stablehlo.add"])
def test_operands_are_not_spread_beyond_the_budget(client: httpx.Client, op: str) -> None:
    types = ("tensor<?x1xf32>", "tensor<1x?xf32>") if op.startswith("chlo") else ("tensor<?x?xf32>",) * 2
    module = f"""func.func @main(%x: {types[0]}, %y: {types[1]}) -> tensor<?x?xf32> {{
  %0 = {op} %x, %y : ({types[0]}, {types[1]}) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}}"""
    data = base64.b64encode(bytes(400_000)).decode()
    inputs = [{"type": f"tensor<{shape}xf32>", "data": data} for shape in ("100000x1", "1x100000")]
    reply = client.post("/v1/evaluate", json={"module": module, "inputs": inputs})
    if op.startswith("chlo"):
        refused(reply, 413, "limit_exceeded", "/module")
    else:
        refused(reply, 422, "lowering_failed", "/module")


def test_aliases_and_calls_that_double(client: httpx.Client) -> None:
    aliases = "\n".join(["!a0 = tuple<i8>", *(f"!a{n + 1} = tuple<!a{n}, !a{n}>" for n in range(60))])
    module = f"{aliases}\nfunc.func private @f(!a60)"
    refused(client.post("/v1/lower", json={"module": module}), 413, "limit_exceeded", "/module")
    recursive = MODULE.replace("@main", "@other").replace(
        "return", "%0 = call @main(%x) : (tensor<2xf32>) -> tensor<2xf32>\n  return"
    )
    both = recursive + recursive.replace("@main", "@x").replace("@other", "@main").replace("@x", "@other")
    request = {"module": both, "function": "main", "inputs": [{"type": "tensor<2xf32>", "values": [1, 2]}]}
    refused(client.post("/v1/evaluate", json=request), 413, "limit_exceeded", "/module")
