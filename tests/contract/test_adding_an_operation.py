"""docs/adding_an_operation.md: its file is added to a copy of the sources, and called as the page calls it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from requant.kernels.jit.cache_directory import CACHE_VARIABLE, cache_directory
from tests.conftest import ROOT, free_port
from tests.support.page_programs import DOCS, blocks

pytestmark = pytest.mark.exhaustive

BLOCKS = list(blocks((DOCS / "adding_an_operation.md").read_text()))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that finds the copied sources, to which the operation was added as the page says."""
    place = tmp_path_factory.mktemp("sources")
    for root in ("core", "service"):
        shutil.copytree(ROOT / root, place / root, ignore=shutil.ignore_patterns("__pycache__"))
    name, _, text = BLOCKS[0].text.partition("\n")
    (place / name.removeprefix("# ")).write_text(text)
    listed = place / "core/requant/operations/__init__.py"
    text = listed.read_text().replace("    ADD,\n", "    ADD,\n    RELU6,\n")
    listed.write_text(text.replace("\n_CALLED =", "\nfrom requant.operations.relu6 import RELU6\n\n_CALLED ="))
    programs = place / "bin"
    programs.mkdir()
    (programs / "requant").write_text(f'#!/bin/sh\nexec {sys.executable} -m requant "$@"\n')
    (programs / "requant").chmod(0o755)
    kept = cache_directory("kernels")
    return {
        **os.environ,
        "PYTHONPATH": f"{place / 'core'}:{place / 'service'}",
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        CACHE_VARIABLE: str(kept.parent if kept is not None else place),
    }


def printed(text: str, environment: dict[str, str], folder: Path) -> str:
    command = ["bash", "-euo", "pipefail", "-c", text]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


@contextmanager
def serving(environment: dict[str, str], folder: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "requant", "serve", "--port", str(port), "--drain-seconds", "0"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=8)) as client:
                while client.get("/healthz").status_code != 200:
                    assert process.poll() is None
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=60)


def test_the_operation_has_every_face(environment: dict[str, str], tmp_path: Path) -> None:
    (function,) = (each for each in BLOCKS if each.text.startswith("# as_function.py"))
    (tmp_path / "as_function.py").write_text(function.text)
    assert printed("python as_function.py", environment, tmp_path) == function.output
    command, *requests = [each for each in BLOCKS if each.language == "sh"]
    assert json.loads(printed(command.text, environment, tmp_path)) == json.loads(command.output or "")
    assert len(requests) == 2
    with serving(environment, tmp_path) as address:
        for each in requests:
            reply = json.loads(printed(each.text.replace("127.0.0.1:8080", address), environment, tmp_path))
            expected = json.loads(each.output or "")
            assert {name: reply[name] for name in expected} == expected
