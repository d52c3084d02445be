"""docs/casts.md names the profiles that cast, and shows an answer; this reads both."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from core.profiles import PROFILES

PAGE = (Path(__file__).parents[2] / "docs" / "casts.md").read_text()


def test_the_table_names_the_profiles_that_cast() -> None:
    assert re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE) == [
        name
        for name in ("onnx", "onnx_reference", "torch", "torch_2_14", "onednn", "stablehlo", "ml_dtypes")
        if PROFILES[name].casts is not None
    ]
    assert len(re.findall(r"^\| `", PAGE, re.MULTILINE)) == sum(each.casts is not None for each in PROFILES.values())


def test_the_example_is_answered_as_shown(client: httpx.Client) -> None:
    (request,) = re.findall(r"-d '(.*?)'\n", PAGE, re.DOTALL)
    (reply,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    assert client.post("/v1/quantize", json=json.loads(request)).text == reply
