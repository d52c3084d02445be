"""Completion of the command in a shell: in bash as a user has it, in zsh and fish where they are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from requant.command.main import main
from requant.schemes import SCHEMES

_BASH = """
source {script}
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_requant
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
_CASES: list[tuple[list[str], set[str]]] = [
    (["che"], {"checkpoint"}),
    (["litert.SOF"], {"litert.SOFTMAX"}),
    (["checkpoint", "att"], {"attest"}),
    (["checkpoint", "plan", "model", "--js"], {"--json"}),
    (["checkpoint", "quantize", "model", "out", "--scheme", "Q4_K"], {"Q4_K_S", "Q4_K_M"}),
    (["checkpoint", "quantize", "model", "out", "--engine", ""], {"threads", "ray"}),
    (["requantize", "x.npy", "--scheme", ""], set(SCHEMES)),
    (["completion", ""], {"bash", "zsh", "fish"}),
    # Names of files: the shell's own.
    (["checkpoint", "quantize", ""], set()),
    (["quantize", "x.npy", "-o", ""], set()),
    # A word that is a subcommand elsewhere.
    (["checkpoint", "verify", "checkpoint", "--so"], {"--source"}),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, made = tmp_path_factory.mktemp("completion"), {}
    for shell in ("bash", "zsh", "fish"):
        made[shell] = folder / shell
        with pytest.MonkeyPatch.context() as patch, made[shell].open("w") as file:
            patch.setattr(sys, "stdout", file)
            assert main(["completion", shell]) == 0
    return made


@pytest.mark.parametrize(("words", "expected"), _CASES)
def test_bash_completes(scripts: dict[str, Path], words: list[str], expected: set[str]) -> None:
    program = _BASH.format(script=scripts["bash"])
    command = ["bash", "-uo", "pipefail", "-c", program, "-", "requant", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert set(ran.stdout.split()) == expected
    assert ran.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
@pytest.mark.parametrize(("words", "expected"), [each for each in _CASES if each[1]])
def test_fish_completes(scripts: dict[str, Path], words: list[str], expected: set[str]) -> None:
    line = " ".join(["requant", *words])
    command = ["fish", "--no-config", "-c", f"source {scripts['fish']}; complete -C '{line}'"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert {each.split("\t")[0] for each in ran.stdout.splitlines()} == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_scripts(scripts: dict[str, Path], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n", scripts[shell]], timeout=60, check=True)
