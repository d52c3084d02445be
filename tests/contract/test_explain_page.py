"""docs/explain.md lists the kinds of steps, and shows an answer; this reads both."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import httpx
import numpy as np
import pytest

from requant.convert.explain.explanation import StepKind
from tests.conftest import ROOT
from tests.support.page_table import page_table

PAGE = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")


def test_the_table_has_every_kind_of_step() -> None:
    rows = page_table("explain.md", "Kinds of steps")
    assert {kind for row in rows for kind in re.findall(r"`(\w+)`", row[0])} == set(StepKind)


def shortest(value: float, kept: type[np.floating[Any]]) -> Decimal:
    """The number of the fewest digits that is rounded to `value`."""
    candidates = (f"{value:.{digits}e}" for digits in range(20))
    return next(Decimal(text) for text in candidates if float(kept(text)) == value)


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "bf16", "f16", "f32"])
def test_decimals_are_the_shortest_as_the_page_says(client: httpx.Client, element: str) -> None:
    [said] = (row[1] for row in page_table("explain.md", "A step") if row[0] == "`value`")
    assert "reads back in `precision`, for `bf16` and small floats in `f32`" in said
    rng = np.random.default_rng(7)
    numbers = (rng.standard_normal(250) * 10.0 ** rng.integers(-6, 3, 250)).astype(np.float32)
    given = {"type": f"tensor<{numbers.size}xf32>", "values": [*map(float, numbers)]}
    target = element if element != "f32" else "!quant.uniform<i8:f32, 0.3:1>"
    reply = client.post("/v1/explain/quantize", json={"input": given, "output_type": target}).json()
    fractional = 0
    for step in (step for each in reply["elements"] for step in each["steps"]):
        text, precision = step["value"], step.get("precision")
        if precision != element or "." not in text or float(text).is_integer():
            continue
        kept = np.float16 if precision == "f16" else np.float32
        assert Decimal(text) == shortest(float(kept(text)), kept), step
        fractional += 1
    assert fractional > 50


def test_the_example_is_answered_as_shown(client: httpx.Client) -> None:
    (request,) = re.findall(r"-d '(.*?)'\n", PAGE, re.DOTALL)
    (reply,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    found = client.post("/v1/explain/quantize", json=json.loads(request)).json()
    assert found == json.loads(reply)
    other = client.post("/v1/explain/quantize", json={**json.loads(request), "profile": "onednn"}).json()
    values = {step["symbol"]: step["value"] for step in other["elements"][0]["steps"]}
    assert (values["v"], values["w"], values["t"], values["q"]) == ("2.5", "5.5", "6", "6")
