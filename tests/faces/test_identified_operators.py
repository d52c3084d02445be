"""identify of operators: the kernels and implementations of a system are its candidates, in all protocols."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import requant
from requant.command.main import main
from requant.operators.description import Operator
from requant.operators.registry import OPERATORS
from requant_service.json_api.catalog.operators import route_path

IMAGE = np.array([[126, 127], [-127, -128], [1, 2], [0, 1]], np.int8).T.reshape(1, 2, 1, 4)
TYPE = "!quant.uniform<i8:f32, 0.1>"
MEAN: dict[str, Any] = {
    "input": IMAGE, "input_type": TYPE, "axis": np.array([1, 2], np.int32), "output_type": TYPE, "keep_dims": True
}  # fmt: skip

DEFAULTS = {"reference", "avx2", *(each.default_implementation for each in OPERATORS.values())}


def candidates(reply: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [group["candidates"] for group in reply["consistent"]]


def test_kernels_are_candidates() -> None:
    """Ties of MEAN go up in both integer kernels, and to even in XNNPACK's."""
    found = requant.litert.MEAN(**MEAN, kernel="xnnpack")
    reply = requant.identify([{"operation": "litert.MEAN", "arguments": MEAN, "observed": {"output": found}}])
    assert candidates(reply) == [[{"kernel": "xnnpack"}]]
    assert [each["candidates"] for each in reply["excluded"]] == [[{"kernel": "reference"}], [{"kernel": "optimized"}]]


@pytest.mark.exhaustive
def test_what_to_try_next() -> None:
    """One pixel, of which all kernels give the same: another image tells them apart, by the system's own answer."""
    arguments = MEAN | {"input": np.full((1, 2, 1, 4), 3, np.int8)}
    found = requant.litert.MEAN(**arguments)
    call = {"operation": "litert.MEAN", "arguments": arguments, "observed": {"output": found}}
    reply = requant.identify([call])
    assert len(candidates(reply)) == 2
    [probe] = reply["try_next"]
    asked = arguments | {
        each["name"]: np.array(each["values"], arguments[each["name"]].dtype).reshape(arguments[each["name"]].shape)
        for each in probe["tensors"]
    }
    for kernel, group in (("reference", 0), ("xnnpack", 1)):
        again = {
            "operation": "litert.MEAN",
            "arguments": asked,
            "observed": {"output": requant.litert.MEAN(**asked, kernel=kernel)},
        }
        assert {"kernel": kernel} in candidates(reply)[group]
        assert candidates(requant.identify([call, again])) == [candidates(reply)[group]]


@pytest.mark.sample(1)
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_every_example_identifies_its_operator(client: httpx.Client, operator: Operator) -> None:
    example = operator.example
    outputs = client.post(route_path(operator), json=dict(example)).json()["outputs"]
    arguments = {**example["inputs"], **example.get("attributes", {})}
    if "opset" in example:
        arguments["opset"] = example["opset"]
    observed = {each.name: outputs[each.name] for each in operator.outputs}
    call = {"operation": operator.full_name, "arguments": arguments, "observed": observed}
    reply = client.post("/v1/identify", json={"calls": [call]})
    assert reply.status_code == 200, reply.text
    consistent = [each for group in reply.json()["consistent"] for each in group["candidates"]]
    assert consistent
    default = {"kernel", "implementation"} & set(consistent[0])
    assert all(consistent[0][each] in DEFAULTS for each in default)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", IMAGE)
    np.save(tmp_path / "axis.npy", MEAN["axis"])
    np.save(tmp_path / "y.npy", requant.litert.MEAN(**MEAN, kernel="xnnpack"))
    options = ["--input", str(tmp_path / "x.npy"), "--input-type", TYPE, "--axis", str(tmp_path / "axis.npy")]
    options += ["--output-type", TYPE, "--keep-dims", "--observed", str(tmp_path / "y.npy"), "--json"]
    assert main(["identify", "litert.MEAN", *options]) == 0
    assert candidates(json.loads(capsys.readouterr().out)) == [[{"kernel": "xnnpack"}]]


def test_an_output_of_too_many_elements(client: httpx.Client) -> None:
    """Which the operands tell by their values, not by their sizes."""
    example = OPERATORS["litert.TRANSPOSE_CONV"].example
    arguments = {**example["inputs"], **example["attributes"]}
    arguments["output_shape"] = {"type": "tensor<4xi32>", "values": [1, 40_000, 40_000, 1]}
    call = {"operation": "litert.TRANSPOSE_CONV", "arguments": arguments, "observed": {"output": [1, 2]}}
    reply = client.post("/v1/identify", json={"calls": [call]})
    assert (reply.status_code, reply.json()["code"]) == (413, "limit_exceeded"), reply.text
