"""The commands of the README and of pages beside it: each gives the reply that stands under it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import httpx
import pytest

from tests.conftest import ROOT

PAGES = ("README.md", "docs/integer_operations.md", "docs/page_examples.md")
_HOST = "http://127.0.0.1:8080"
_EXAMPLE = re.compile(r"```sh\n(curl -s http:[^`]*?)```\n+```(json|mlir)\n(.*?)```", re.DOTALL)


def examples() -> list[tuple[str, str, str, str]]:
    return [
        (page, match[1], match[2], match[3]) for page in PAGES for match in _EXAMPLE.finditer((ROOT / page).read_text())
    ]


def reply_to(client: httpx.Client, command: str) -> str:
    """What a command prints: curl's request, sent by our own client, and a Python behind it."""
    tokens = shlex.split(command)
    end = tokens.index("|") if "|" in tokens else len(tokens)
    curl, behind = tokens[2:end], tokens[end + 1 :]
    headers = {"Content-Type": "application/json"} if "-H" in curl else {}
    assert curl[0].startswith(_HOST)
    body = curl[curl.index("-d") + 1]
    printed = client.post(curl[0].removeprefix(_HOST), content=body.encode(), headers=headers).text
    if behind:
        assert behind[0] == ".venv/bin/python"
        done = subprocess.run([sys.executable, *behind[1:]], input=printed, capture_output=True, text=True, check=True)
        printed = done.stdout
    return printed


def test_there_are_examples() -> None:
    found = [page for page, *_ in examples()]
    assert found.count("README.md") >= 9


@pytest.mark.parametrize(("page", "command", "language", "expected"), examples())
def test_a_command_prints_what_stands_under_it(
    client: httpx.Client, page: str, command: str, language: str, expected: str
) -> None:
    printed = reply_to(client, command)
    if language == "mlir":
        assert printed.strip() == expected.strip()
        return
    ours, stated = json.loads(printed), json.loads(expected)
    for each in (ours, stated):
        each.pop("request_id", None)
    assert ours == stated
