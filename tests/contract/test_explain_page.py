"""docs/explain.md lists the kinds of steps, and shows an answer; this reads both."""

from __future__ import annotations

import json
import re

import httpx

from core.convert.explain.explanation import StepKind
from tests.conftest import ROOT
from tests.support.page_table import page_table

PAGE = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")


def test_the_table_has_every_kind_of_step() -> None:
    rows = page_table("explain.md", "Kinds of steps")
    assert {kind for row in rows for kind in re.findall(r"`(\w+)`", row[0])} == set(StepKind)


def test_the_example_is_answered_as_shown(client: httpx.Client) -> None:
    (request,) = re.findall(r"-d '(.*?)'\n", PAGE, re.DOTALL)
    (reply,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    found = client.post("/v1/explain/quantize", json=json.loads(request)).json()
    assert found == json.loads(reply)
    other = client.post("/v1/explain/quantize", json={**json.loads(request), "profile": "onednn"}).json()
    values = {step["symbol"]: step["value"] for step in other["elements"][0]["steps"]}
    assert (values["v"], values["w"], values["t"], values["q"]) == ("2.5", "5.5", "6", "6")
