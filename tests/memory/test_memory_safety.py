"""No kernel touches memory beyond its arrays, whatever the values are: every case in a process that may end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.memory.cases import CASES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="protected memory is Linux's here")

SECONDS = 3600
PROCESSES = 2
"""Each compiles the kernels that its cases call."""


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.memory.run", *options]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS
    )


def went_through(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The counts, or a failure that names the case."""
    lines = done.stdout.splitlines()
    last = lines[-1] if lines else "no case"
    assert done.returncode == 0, f"ended with {done.returncode} in: {last}\n{done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(last)
    return found


def test_an_access_out_of_bounds_ends_the_process() -> None:
    """One byte beyond an array is enough."""
    done = run("--case", "out_of_bounds")
    assert done.returncode < 0
    assert done.stdout.splitlines()[-1].startswith("out_of_bounds")


def test_a_sample() -> None:
    """The same cases every time."""
    found = went_through(run("--rounds", "20"))
    assert found["answered"] > 200


@pytest.mark.exhaustive
def test_every_kernel(tmp_path: Path) -> None:
    """Other cases each time, compiled with numba's own checks of every index too. Every specialisation is called."""
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    noticed = run("--case", "out_of_bounds", **checked)
    assert "IndexError" in noticed.stderr

    def share(first: int) -> dict[str, Any]:
        chosen = [option for name in list(CASES)[first::PROCESSES] for option in ("--case", name)]
        return went_through(run("--rounds", "800", "--seed", str(date.today().toordinal()), *chosen, **checked))

    with ThreadPoolExecutor(PROCESSES) as executor:
        found = list(executor.map(share, range(PROCESSES)))
    called = {name for each in found for name in each["called"]}
    assert sorted(set(found[0]["kernels"]) - called) == []
