"""Modules over HTTP: passes, limits and refusals."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

MODULE = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n"


def refused(reply: httpx.Response, status: int, code: str, pointer: str | None = None) -> dict[str, Any]:
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    found: dict[str, Any] = reply.json()
    if pointer is not None:
        assert found["errors"][0]["pointer"] == pointer
    return found


def test_the_documented_example_of_lower(client: httpx.Client) -> None:
    body = client.get("/openapi.json").json()["paths"]["/v1/lower"]["post"]["requestBody"]
    reply = client.post("/v1/lower", json=body["content"]["application/json"]["example"])
    assert reply.status_code == 200
    assert reply.json()["module"].count("arith.divf") == 1
    assert "@main(%x: tensor<2xf32>) -> tensor<2xi8>" in reply.json()["module"]


def test_no_passes_print_the_module(client: httpx.Client) -> None:
    printed = client.post("/v1/lower", json={"module": MODULE}).json()["module"]
    assert client.post("/v1/lower", json={"module": printed, "passes": []}).json() == {"module": printed}


def test_wrong_modules_have_a_place(client: httpx.Client) -> None:
    wrong = MODULE.replace("return", "%0 = stablehlo.foo %x : tensor<2xf32>\n  return")
    found = refused(client.post("/v1/lower", json={"module": wrong}), 422, "module_invalid", "/module")
    assert (found["line"], found["column"], found["caret"].split("\n")[1]) == (2, 3, "  ^")


@pytest.mark.parametrize("module", ["", "{" * 100_000, "x" * 200_000, "(" * 63 + "loc(" * 1000, '"' * 1000, "\ud800"])
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
