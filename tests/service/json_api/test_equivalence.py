"""Equivalence over HTTP: what fits a request, and jobs for what does not."""

from __future__ import annotations

import time
from typing import Any

import httpx

from tests.service.replies import refused

PATH = "/v1/equivalence"
BODY = {
    "operation": "requantize",
    "input_type": "!quant.uniform<i32:f32, 0.001>",
    "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
    "first": {"profile": "stablehlo"},
}
TENSORS = ("tensor<4x!quant.uniform<i32:f32, 0.001>>", "tensor<4x!quant.uniform<i8:f32, 0.25:-1>>")
MODULE = (
    f"func.func @main(%x: {TENSORS[0]}) -> {TENSORS[1]} {{\n  %q = stablehlo.uniform_quantize %x : ({TENSORS[0]}) -> "
    f"{TENSORS[1]}\n  return %q : {TENSORS[1]}\n}}\n"
)


def ended(client: httpx.Client, path: str) -> dict[str, Any]:
    for _ in range(600):
        found: dict[str, Any] = client.get(path).json()
        if found["state"] != "running":
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def test_what_takes_longer_than_a_request_is_a_job(client: httpx.Client) -> None:
    body = {**BODY, "module": MODULE}
    found = refused(client.post(PATH, json=body), 413, "limit_exceeded")
    assert "in a job" in found["detail"]
    begun = client.post(f"{PATH}/jobs", json=body)
    assert begun.status_code == 202
    place = begun.headers["location"]
    # The same request is the same job, and another one has to wait for it.
    assert client.post(f"{PATH}/jobs", json=body).headers["location"] == place
    busy = client.post(f"{PATH}/jobs", json={**BODY, "second": {"profile": "litert"}})
    assert (busy.status_code, busy.json()["code"]) == (503, "overloaded")
    for _ in range(600):
        if int((found := client.get(place).json())["inputs"]):
            break
        time.sleep(0.05)
    assert (found["state"], found["total_inputs"]) == ("running", str(1 << 32))
    assert 0 < int(found["inputs"]) < 1 << 32
    client.post(f"{place}/cancel")
    assert ended(client, place)["state"] == "cancelled"

    body = {**BODY, "second": {"profile": "litert"}}
    decided = ended(client, client.post(f"{PATH}/jobs", json=body).headers["location"])
    assert (decided["state"], decided["inputs"]) == ("finished", str(1 << 32))
    assert decided["result"] == client.post(PATH, json=body).json()


def test_jobs_that_cannot_be(client: httpx.Client) -> None:
    refused(client.post(f"{PATH}/jobs", json={**BODY, "second": {"profile": "litrt"}}), 422, "unknown_name", "/second")
    failed = ended(client, client.post(f"{PATH}/jobs", json={**BODY, "module": "x"}).headers["location"])
    assert (failed["state"], failed["error"]["code"]) == ("failed", "module_invalid")
    for reply in (client.get(f"{PATH}/jobs/0"), client.post(f"{PATH}/jobs/0/cancel")):
        assert (reply.status_code, reply.json()["code"]) == (404, "unknown_name")


def test_short_functions_fit_a_request(client: httpx.Client) -> None:
    short = {**BODY, "input_type": BODY["input_type"].replace("i32", "i16"), "module": MODULE.replace("i32", "i16")}  # type: ignore[attr-defined]
    found = client.post(PATH, json=short).json()
    assert (found["equal"], found["inputs"]) == (True, str(1 << 16))
