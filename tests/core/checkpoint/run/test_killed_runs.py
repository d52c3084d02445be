"""Runs that are killed at any moment, and runs that go on from what those left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.cases import EXHAUSTIVE


def test_a_run_goes_on_from_where_another_was_killed(tmp_path: Path) -> None:
    """Before each call of the operating system in the exhaustive form, before some of them otherwise."""
    first, step = (1, 1) if EXHAUSTIVE else (5, 23)
    command = [sys.executable, "-m", "tests.support.killed_runs", str(tmp_path), str(first), str(step)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    for way in json.loads(run.stdout).values():
        assert way["kills"] >= (100 if EXHAUSTIVE else 2)
        assert way["resumed"] >= way["last_call"] // step
