"""docs/casts.md names the profiles that cast, and shows an answer; this reads both."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from requant.profiles import PROFILES

PAGE = (Path(__file__).parents[2] / "docs" / "casts.md").read_text()


def test_the_table_names_the_profiles_that_cast() -> None:
    names = re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE)
    assert names == ["onnx", "onnx_1_32", "onnx_reference", "torch", "torch_2_14", "onednn", "stablehlo", "ml_dtypes"]
    rules = [each.casts for each in PROFILES.values() if each.casts is not None]
    assert all(any(PROFILES[name].casts == rule for name in names) for rule in rules)


def test_the_example_is_answered_as_shown(client: httpx.Client) -> None:
    (request,) = re.findall(r"-d '(.*?)'\n", PAGE, re.DOTALL)
    (reply,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    assert client.post("/v1/quantize", json=json.loads(request)).text == reply
