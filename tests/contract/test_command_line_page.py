"""docs/command_line.md, docs/python.md and what README.md shows of them: commands and scripts run as they stand."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from requant.command import exit_status
from requant.command.main import command_parser
from tests.conftest import ROOT
from tests.support.model_directory import make_model
from tests.support.page_programs import DOCS, blocks

_COMMAND_LINE = DOCS / "command_line.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model, and the command on its path."""
    make_model(tmp_path / "model")
    command = tmp_path / "bin" / "requant"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m requant "$@"\n')
    command.chmod(0o755)
    return tmp_path


def run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("verify", "report.html"),
        pytest.param("work", "model-W8A8/config.json", marks=pytest.mark.exhaustive),
    ],
)
def test_the_commands_do_what_they_say(folder: Path, command: str, made: str) -> None:
    shown = [block.text for block in blocks(_COMMAND_LINE.read_text()) if block.language == "sh"]
    (text,) = (each for each in shown if f"checkpoint {command}" in each)
    run(folder, "bash", "-euo", "pipefail", "-c", text)
    assert (folder / made).stat().st_size


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_scripts_print_what_stands_under_them(folder: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    monkeypatch.chdir(folder)
    scripts = [each for each in blocks((ROOT / page).read_text()) if "import requant" in each.text]
    assert scripts
    for script in scripts:
        with redirect_stdout(io.StringIO()) as printed:
            exec(script.text, {})
        assert script.output is None or printed.getvalue() == script.output
    if page == "docs/python.md":
        assert (folder / "model-W4A16" / "config.json").exists()


def test_the_page_has_all_commands_and_all_statuses() -> None:
    page = _COMMAND_LINE.read_text()
    usage = command_parser().format_help()
    assert "serve" in usage
    checkpoint = run(ROOT, sys.executable, "-m", "requant", "checkpoint", "--help")
    commands = set(re.findall(r"^    (\w+)", checkpoint, re.MULTILINE))
    assert set(re.findall(r"^\| `requant checkpoint (\w+)`", page, re.MULTILINE)) == commands
    statuses = {value for name, value in vars(exit_status).items() if name.isupper()}
    table = page[page.index("| exit status |") :].split("\n\n")[0]
    stated = {int(number) for row in table.splitlines()[2:] for number in re.findall(r"\d+", row.split("|")[1])}
    assert stated == statuses


@pytest.mark.exhaustive
def test_the_commands_of_certificates_run(folder: Path) -> None:
    shown = [block.text for block in blocks((DOCS / "certificates.md").read_text()) if block.language == "sh"]
    assert shown
    for text in shown:
        assert run(folder, "bash", "-euo", "pipefail", "-c", text)
    assert (folder / "certificate.json").stat().st_size
