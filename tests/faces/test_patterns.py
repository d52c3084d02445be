"""What people read in the place of the names of patterns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from requant.command.main import main
from requant.identification.patterns import WORDS, in_words

ROOT = Path(__file__).parents[2]
ANSWER = ROOT / "service/requant_service/playground/static/identification/answer.js"


def test_every_pattern_has_words() -> None:
    assert in_words("constant_offset: 3") == "each differs from what is computed by 3"
    assert in_words("ties") == WORDS_BY_NAME["ties"]


WORDS_BY_NAME = {str(name): words for name, words in WORDS.items()}


def test_the_playground_and_the_page_have_these_words() -> None:
    table = ANSWER.read_text().partition("const PATTERNS = {")[2].partition("};")[0]
    assert dict(re.findall(r'(\w+): "(.*)",', table)) == WORDS_BY_NAME
    page = (ROOT / "docs/identify.md").read_text()
    for name, words in re.findall(r"^\| `(\w+)(?:: [^`]*)?` \| (.*) \|$", page, re.MULTILINE):
        if name in WORDS_BY_NAME:
            assert words.startswith(WORDS_BY_NAME[name].partition("{")[0])
    assert all(f"`{name}" in page for name in WORDS_BY_NAME)


def test_the_command_says_words_and_json_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = [0.5, 1.0, 2.0, 3.0]
    arguments = {
        "input": {"type": "tensor<4xf32>", "values": values},
        "output_type": "!quant.uniform<i8:f32, 0.5>",
    }
    request = {"calls": [{"operation": "quantize", "arguments": arguments, "observed": {"output": [8, 9, 11, 13]}}]}
    (file := tmp_path / "calls.json").write_text(json.dumps(request))
    assert main(["identify", str(file), "--json"]) == 0
    assert "constant_offset: 7" in json.loads(capsys.readouterr().out)["patterns"]
    assert main(["identify", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "each differs from what is computed by 7" in printed
    assert "constant_offset" not in printed
