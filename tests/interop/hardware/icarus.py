"""Icarus Verilog and Verilator, as `install` puts them into .iverilog, or as they are on the path."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / ".iverilog"


def simulate(directory: Path, *sources: str) -> str:
    """Compile modules in a directory and run them. Return what they print; they have to end with status 0."""
    status, printed = simulated(directory, *sources)
    assert status == 0, printed
    return printed


def simulated(directory: Path, *sources: str) -> tuple[int, str]:
    """Compile modules in a directory and run them. Return their status and what they print."""
    if not (ROOT / "done").exists():
        if shutil.which("iverilog") is None:
            pytest.fail("run tests/interop/hardware/install")
        _run(directory, ["iverilog", "-g2012", "-o", "simulation", *sources])
        return _end(directory, ["vvp", "-n", "simulation"])
    (libraries,) = (path.parent for path in ROOT.glob("usr/lib/*/ivl"))
    beside = ROOT / "lib" / libraries.name
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{beside}"}
    programs = ROOT / "usr/bin"
    compiler = [str(programs / "iverilog"), "-B", str(libraries / "ivl"), "-g2012", "-o", "simulation", *sources]
    _run(directory, compiler, environment)
    return _end(directory, [str(programs / "vvp"), "-n", "simulation"], environment)


def verilator() -> tuple[str, dict[str, str]]:
    """Return the program and its environment. Skip where it, or the compiler that it needs, is missing."""
    installed = ROOT / "usr/bin/verilator"
    found = str(installed) if installed.exists() else shutil.which("verilator")
    if found is None or shutil.which("g++") is None or shutil.which("make") is None:
        pytest.skip("there is no Verilator, g++ or make")
    root = {"VERILATOR_ROOT": str(ROOT / "usr/share/verilator")} if installed.exists() else {}
    return found, {**os.environ, **root}


def compile_and_run(directory: Path, source: str) -> tuple[int, str]:
    """Compile a C program with all warnings as errors and run it. Return its status and what it prints."""
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    _run(directory, ["gcc", *flags, "-o", "program", source])
    return _end(directory, ["./program"])


def _end(directory: Path, command: list[str], environment: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


def _run(directory: Path, command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
