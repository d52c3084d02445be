"""No kernel touches memory beyond its arrays, whatever the values are: every case in a process that may end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="protected memory is Linux's here")

SECONDS = 3600


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.memory.run", *options]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS
    )


def went_through(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """The counts, or a failure that names the case."""
    lines = done.stdout.splitlines()
    last = lines[-1] if lines else "no case"
    assert done.returncode == 0, f"ended with {done.returncode} in: {last}\n{done.stderr[-4000:]}"
    found: dict[str, object] = json.loads(last)
    return found


def test_an_access_out_of_bounds_ends_the_process() -> None:
    """One byte beyond an array is enough."""
    done = run("--case", "out_of_bounds")
    assert done.returncode < 0
    assert done.stdout.splitlines()[-1].startswith("out_of_bounds")


def test_a_sample() -> None:
    """The same cases every time."""
    found = went_through(run("--rounds", "20"))
    assert int(str(found["answered"])) > 200


@pytest.mark.exhaustive
def test_every_kernel(tmp_path: Path) -> None:
    """Other cases every day, compiled with numba's own checks of every index too. Every kernel there is, is called."""
    found = went_through(
        run(
            "--rounds",
            "400",
            "--seed",
            str(date.today().toordinal()),
            NUMBA_BOUNDSCHECK="1",
            NUMBA_CACHE_DIR=str(tmp_path),
        )
    )
    assert found["uncalled"] == []
