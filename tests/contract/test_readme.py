"""The examples of the README and of the pages beside it: each prints what stands under it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import httpx
import pytest

from tests.conftest import ROOT, Server

PAGES = (
    "README.md",
    "docs/integer_operations.md",
    "docs/lowering.md",
    "docs/open_inference_protocol.md",
    "docs/parameters.md",
    "docs/types.md",
    "docs/upstream_examples.md",
)
_HOST = "http://127.0.0.1:8080"
_EXAMPLE = re.compile(r"```sh\n(curl -s http:[^`]*?)```\n+```(json|mlir)\n(.*?)```", re.DOTALL)
_SCRIPT = re.compile(r"```python\n([^`]*?)```\n+```\n(.*?)```", re.DOTALL)
_TIES = "!quant.uniform<i8:f32, 0.5:3>"


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
    assert set(found) == set(PAGES)
    assert len(found) >= 17


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


def test_the_table_of_ties_is_what_the_service_answers(client: httpx.Client) -> None:
    lines = [line.strip("|").split("|") for line in (ROOT / "README.md").read_text().splitlines() if line[:1] == "|"]
    head, _, *rows = lines
    values = [float(cell) for cell in head[1:-1]]
    assert 0.25 in values
    found = {}
    for name, *cells, _ in rows:
        profile = name.strip(" `")
        request = {"input": {"type": f"tensor<{len(values)}xf32>", "values": values}, "output_type": _TIES}
        reply = client.post("/v1/quantize", json={**request, "profile": profile})
        found[profile] = reply.json()["output"]["values"]
        assert found[profile] == [int(cell) for cell in cells]
    assert len(set(map(tuple, found.values()))) == len(found) == 4


@pytest.mark.parametrize("page", ["README.md", "docs/npy.md"])
def test_a_script_prints_what_stands_under_it(server: Server, page: str) -> None:
    ((script, expected),) = (found for found in _SCRIPT.findall((ROOT / page).read_text()) if _HOST in found[0])
    command = [sys.executable, "-c", script.replace(_HOST, server.url)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == expected
