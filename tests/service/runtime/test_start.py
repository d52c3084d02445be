"""The start of the process: what it refuses to load code from, and what it logs before it knows how to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from requant.kernels.jit.baked import LEVELS
from requant.kernels.jit.sources import FOLDER
from tests.service.runtime.test_process_end import free_port, status

ROOT = Path(__file__).parents[3]

_EARLY = """
import logging
from requant.kernels.jit import warmup
from requant.self_test import self_test
warmup.start_compilation = lambda _: logging.getLogger("requant.kernels").warning("a file of the cache is not used")
self_test.prepare_kernels = lambda *_: 0
from requant_service.main import main
main()
"""


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "REQUANT_BAKED_KERNELS"])
def test_code_from_where_others_can_write_is_not_loaded(variable: str, tmp_path: Path) -> None:
    for level in LEVELS:
        (tmp_path / "kernels" / level).mkdir(parents=True)
    (tmp_path / "kernels").chmod(0o777)
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CPU_NAME"}
    environment[variable] = str(tmp_path / "kernels")
    run = subprocess.run(
        [sys.executable, "-m", "requant", "serve"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    assert run.stderr.startswith(f"{variable}: others can write to {tmp_path / 'kernels'} (mode 777)")
    assert run.stderr.count("\n") == 1


def test_a_folder_of_kernels_that_others_can_write_to_is_told(tmp_path: Path) -> None:
    """The folder inside of the directory that is named, which may be safe itself."""
    folder = tmp_path / "cache" / FOLDER
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    environment = {name: value for name, value in os.environ.items() if name != "REQUANT_BAKED_KERNELS"}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    run = subprocess.run(
        [sys.executable, "-m", "requant", "serve"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    assert run.stderr.startswith(f"NUMBA_CACHE_DIR: others can write to {folder} (mode 777)")
    assert run.stderr.count("\n") == 1


@pytest.mark.exhaustive
def test_what_is_logged_before_the_settings_are_read_has_their_form(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-c", _EARLY, "--port", str(port), "--log-format", "json"]
    with log.open("wb") as output, subprocess.Popen(command, cwd=ROOT, stderr=output) as process:
        try:
            while status(port, "/v2/health/ready") != 200:
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
        finally:
            process.wait(30)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert "a file of the cache is not used" in [line["message"] for line in lines]
