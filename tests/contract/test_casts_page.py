"""docs/casts.md names the profiles that cast, and shows an answer; this reads both."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx

from requant.profiles import PROFILES, Rounding, floats
from tests.support.page_table import page_table

PAGE = (Path(__file__).parents[2] / "docs" / "casts.md").read_text()


def test_the_table_names_the_profiles_that_cast() -> None:
    names = re.findall(r"^\| `(\w+)`", PAGE.partition("\n## Every rounding\n")[0], re.MULTILINE)
    first = ["onnx", "onnx_1_32", "onnx_reference", "torch", "torch_2_14", "onednn", "stablehlo", "ml_dtypes"]
    assert names == [*first, *(profile.name for profile in floats.PROFILES)]
    rules = [each.casts for each in PROFILES.values() if each.casts is not None]
    assert all(any(PROFILES[name].casts == rule for name in names) for rule in rules)


def test_the_table_of_roundings() -> None:
    """A cell that is empty is a rounding that the profile has for no format; one that says so has it for some."""
    rows = [
        row for row in page_table("casts.md", "Every rounding") if row[0] in {f"`{rounding}`" for rounding in Rounding}
    ]
    assert [row[0] for row in rows] == [f"`{each}`" for each in PROFILES["ofp8"].cast_rule().roundings_to("f8E5M2")]
    for name, *cells in rows:
        for profile, cell in zip(floats.PROFILES, cells, strict=True):
            rule = profile.cast_rule()
            having = {each for each in rule.formats if Rounding(name.strip("`")) in rule.roundings_to(each)}
            said = set(re.findall(r"\bb?f\d+\b", cell)) or (set(rule.formats) if cell else set())
            assert having == said, (name, profile.name)


def test_the_example_is_answered_as_shown(client: httpx.Client) -> None:
    (request,) = re.findall(r"-d '(.*?)'\n", PAGE, re.DOTALL)
    (reply,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    assert client.post("/v1/quantize", json=json.loads(request)).text == reply
