"""Vectors over HTTP: all formats and protocols say the same, and what costs too much is refused quickly."""

from __future__ import annotations

import io
import json
import re
import time
from typing import Any

import httpx
import numpy as np
import pytest

from requant.convert.vectors.subject import ParameterReason, Reason
from requant.identification.call_vectors import DataReason
from requant.operators.vectors import OPERATIONS
from tests.conftest import ROOT
from tests.support.page_table import page_table

PAGE = (ROOT / "docs" / "vectors.md").read_text(encoding="utf-8")
RESCALE = {"operation": "tosa.RESCALE", "input_type": "i32", "output_type": "i8", "count": 64}
QUANTIZE = {"operation": "onnx.QuantizeLinear", "input_type": "f32", "output_type": "!quant.uniform<i8:f32, 0.1:3>"}


def test_all_formats_and_the_model_have_the_same_vectors(client: httpx.Client) -> None:
    reply = client.post("/v1/vectors", json=RESCALE)
    assert reply.content == client.post("/v1/vectors", json=RESCALE).content
    vectors = reply.json()["vectors"]
    inputs, expected = ([int(each[name]) for each in vectors] for name in ("input", "expected"))
    archive = np.load(io.BytesIO(client.post("/v1/vectors", json={**RESCALE, "format": "npz"}).content))
    assert archive["input"].tolist() == inputs
    assert archive["expected"].tolist() == expected
    assert [text.split(",") for text in archive["why"].tolist()] == [each["why"] for each in vectors]
    for symbol in ("v", "p", "y", "t"):
        values = [int(step["value"]) for each in vectors for step in each["steps"] if step["symbol"] == symbol]
        assert archive[f"stage_{symbol}"].tolist() == values
    header = client.post("/v1/vectors", json={**RESCALE, "format": "c_header"})
    assert header.headers["content-type"].startswith("text/x-c")
    arrays = dict(re.findall(r"tosa_rescale_(\w+)\[\w+\] = \{(.*?)\};", header.text, re.DOTALL))
    of_header = {name: [int(number) for number in re.findall(r"_C\((-?\d+)\)", text)] for name, text in arrays.items()}
    assert (of_header["input"], of_header["expected"]) == (inputs, expected)
    assert of_header["parameter_set"] == archive["parameter_set"].tolist()
    memory = client.post("/v1/vectors", json={**RESCALE, "format": "readmemh"}).text
    words = re.findall(r"^([0-9a-f]{30}) //", memory, re.MULTILINE)
    assert [int(word[-10:-2], 16) for word in words] == [number % 2**32 for number in inputs]
    assert [int(word[-2:], 16) for word in words] == [number % 256 for number in expected]
    for form in ("json", "c_header", "readmemh"):
        asked: dict[str, Any] = {"inputs": [], "parameters": {**RESCALE, "format": form}}
        found = client.post("/v2/models/vectors/infer", json=asked).json()
        assert [each["data"] for each in found["outputs"]] == [inputs, expected, of_header["parameter_set"]]
        if form == "json":
            assert json.loads(found["parameters"]["vectors"]) == vectors
        else:
            assert found["parameters"]["text"] == (header.text if form == "c_header" else memory)


@pytest.mark.parametrize(("change", "status", "pointer"), [
    ({"operation": "add"}, 422, "/operation"),
    ({"count": 1 << 30}, 422, "/count"),
    ({"count": 7}, 422, "/count"),
    ({"profile": "torch"}, 422, "/profile"),
    ({"profile": "tosa2"}, 422, "/profile"),
    ({"scheme": "litert"}, 422, "/scheme"),
    ({"output_type": ""}, 422, "/output_type"),
    ({"rounding": "stochastic"}, 422, "/rounding"),
    ({"input_type": "tensor<4xf32>"}, 422, "/input_type"),
    ({"input_type": "f32" * 400_000}, 413, "/input_type"),
    ({"output_type": "!quant.uniform<i8:f32:2000000000, {0.5,0.5}>"}, 413, "/output_type"),
    ({"output_type": "!quant.uniform<i8:f32:0, {" + ",".join(["0.5"] * 40_000) + "}>"}, 413, "/output_type"),
    ({"output_type": "!quant.uniform<i8:f32:0, {" + ",".join(["0.5"] * 64) + "}>"}, 413, "/count"),
    ({"output_type": f"!quant.uniform<!quant.quantile<i16:f32, {{{','.join(['0.5'] * 65_536)}}}>:f32, 0.5>"}, 413,
     "/output_type"),
    ({"multipliers": [{"multiplier": 1, "shift": 2}]}, 422, "/multipliers"),
    ({"operation": "tosa.RESCALE", "input_type": "i32", "output_type": "i8",
      "multipliers": [{"multiplier": 1, "shift": 2}, {"multiplier": 1, "shift": 63}]}, 422, "/multipliers/1/shift"),
    ({"operation": "tosa.RESCALE", "input_type": "i32", "output_type": "i8",
      "multipliers": [{"multiplier": 1, "shift": 2}] * 257}, 413, "/multipliers"),
    ({"operation": "tosa.RESCALE", "input_type": "ui8", "output_type": "ui8"}, 422, "/output_type"),
    ({"operation": "requantize", "input_type": "i32", "output_type": "i31"}, 422, "/output_type"),
    ({"operation": "tosa.RESCALE", "input_type": "i48", "output_type": "i8"}, 422, "/scale32"),
])  # fmt: skip
def test_invalid_requests_are_refused_quickly(
    change: dict[str, Any], status: int, pointer: str, client: httpx.Client
) -> None:
    started = time.monotonic()
    reply = client.post("/v1/vectors", json={**QUANTIZE, **change})
    assert reply.status_code == status, reply.text
    assert reply.json()["errors"][0]["pointer"] == pointer, reply.text
    assert time.monotonic() - started < 10


def test_an_error_about_scales_does_not_point_at_multipliers_that_were_not_given(client: httpx.Client) -> None:
    types = {"input_type": "!quant.uniform<i8:f32, 127.0>", "output_type": "!quant.uniform<i8:f32, 6.0e-30>"}
    asked = {"operation": "requantize", **types, "scheme": "tosa"}
    reply = client.post("/v1/vectors", json=asked)
    assert (reply.status_code, reply.json()["code"]) == (422, "parameter_invalid")
    assert "errors" not in reply.json()
    reply = client.post("/v1/vectors", json={**asked, "multipliers": [{"multiplier": 1 << 30, "shift": 63}]})
    assert reply.json()["errors"][0]["pointer"] == "/multipliers/0/shift"


def test_the_page_lists_all_reasons_and_operations() -> None:
    of_heading = {"Reasons": Reason, "Parameter sets": ParameterReason, "Of operators and products": DataReason}
    for heading, reasons in of_heading.items():
        rows = page_table("vectors.md", heading)
        listed = [word for row in rows for word in re.findall(r"`(\w+)`", row[0])]
        assert sorted(listed) == sorted(reasons)
    (row,) = re.findall(r"^\| `operation` \|(.*)$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`([\w.]+)`", row)) == set(OPERATIONS)
