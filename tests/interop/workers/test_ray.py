"""A plan on Ray with two workers, of which one is killed; then a command whose tasks fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.interop.workers.model import contents, make_model, requant

pytestmark = pytest.mark.interop

FILES = 6

# Each task writes a file with the number of its process, and the first one waits until it is killed.
DRIVER = """
import os, sys, time
import ray
from requant.engines import ray as engine
from requant.checkpoint.workers import read_plan_file

begun = sys.argv[2]
make_output = engine._make_output

def slow(file, index, threads):
    with open(f"{begun}/{os.getpid()}-{index}-{time.monotonic_ns()}", "x"):
        pass
    if index == 0 and len([name for name in os.listdir(begun) if name.split("-")[1] == "0"]) == 1:
        time.sleep(600)
    return make_output(file, index, threads)

engine._make_output = slow
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
report = engine.run_on_ray(read_plan_file(sys.argv[1]))
print(len(report.files), sorted(report.kept))

from requant.command.main import main
engine._make_output = make_output
os.mkdir("other")
open("other/notes.txt", "x").close()
print("exit status", main(["checkpoint", "quantize", "model", "other", "--scheme", "W4A16", "--engine", "ray"]))
"""


def test_ray(tmp_path: Path) -> None:
    make_model(tmp_path / "model", files=FILES, side=128)
    requant("quantize", tmp_path / "model", tmp_path / "alone", "--scheme", "W4A16")
    plan = tmp_path / "plan.json"
    places = (tmp_path / "model", "--destination", tmp_path / "W4A16", "--output", plan)
    requant("plan", *places, "--scheme", "W4A16")
    begun = tmp_path / "begun"
    begun.mkdir()
    command = [sys.executable, "-c", DRIVER, str(plan), str(begun)]
    # Ray keeps a token of the cluster in the home directory.
    variables = {**os.environ, "HOME": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=variables, text=True, stdout=pipe, stderr=pipe) as driver:
        deadline = time.monotonic() + 120
        while not (waiting := [name for name in os.listdir(begun) if name.split("-")[1] == "0"]):
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(int(waiting[0].split("-")[0]), signal.SIGKILL)
        output, errors = driver.communicate(timeout=200)
    # Ray says in between that a worker died.
    assert f"{FILES + 3} []" in output.splitlines()
    tasks = [name.split("-")[1] for name in os.listdir(begun)]
    assert sorted(tasks) == sorted(["0", *map(str, range(FILES))])
    found, expected = contents(tmp_path / "W4A16"), contents(tmp_path / "alone")
    assert json.loads(found["requant-manifest.json"]) == json.loads(expected["requant-manifest.json"])
    assert found == expected
    # The error of a task is that of the command.
    assert "exit status 1" in output.splitlines()
    assert "holds files that do not belong to this conversion, such as 'notes.txt'" in errors
    assert "Traceback" not in errors
