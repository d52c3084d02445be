"""Kernels that are compiled in processes of their own, while this one goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import EXHAUSTIVE

ROOT = Path(__file__).parents[3]

# Some small kernels are all there are, and none is in the cache.
_BEGIN = """
import threading
from requant.kernels.jit import compilation, jit, machine_code_cache, warmup
from requant.kernels.jit.machine_code_cache import MachineCodeCache
from requant.kernels.convert.packing import pack, unpack

small = [each for each in jit.all_kernels() if "packing" in each.name or "channel_order" in each.name]
assert len(small) > 3 and not any(each.is_cached() for each in small)
compilation.all_kernels = lambda: small
specialisations = sum(len(each._signatures) for each in small)
"""

_ASKED_FOR = (
    _BEGIN
    + """
# The last of the queue is asked for.
begun = compilation.start_compilation(2)
wanted = begun._queue[-1]
asker = threading.Thread(target=wanted.compiled)
asker.start()
asker.join()
assert wanted.ready
assert not begun.complete, "the one that was asked for had to wait for all"
assert compilation.start_compilation(2) is begun
compiled, total, left = begun.progress()
assert 0 < compiled < total == len(small) and left >= 0
assert begun.finish() == specialisations
assert begun.progress() == (total, total, 0)
# Nothing was compiled here, where the compiler would hold the GIL.
assert MachineCodeCache.loaded == specialisations
"""
)

_NOTHING_IS_KEPT = (
    _BEGIN
    + """
machine_code_cache._writable = lambda: None
begun = compilation.start_compilation(1)
directory = MachineCodeCache.handed_over
assert directory.is_dir() and directory.stat().st_mode & 0o777 == 0o700
assert begun.finish() == specialisations == MachineCodeCache.loaded
assert not directory.exists() and MachineCodeCache.handed_over is None
"""
)

_WORKERS_FAIL = (
    _BEGIN
    + """
compilation._WORKER = "this is no module"
reports = []
assert compilation.compile_kernels(lambda *report: reports.append(report)) == specialisations
assert reports[-1] == (len(small), len(small))
assert MachineCodeCache.loaded == 0
"""
)

_NOT_WAITED_FOR = (
    _BEGIN
    + """
with jit.without_waiting():
    try:
        pack.compiled()
    except jit.NotCompiledError as error:
        assert "packing.pack" in str(error)
    else:
        raise AssertionError("it was compiled")
pack.compiled()
with jit.without_waiting():
    pack.compiled()
"""
)


def run(program: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)


_PROGRAMS = {
    "others compile what is asked for first": _ASKED_FOR,
    "nothing is kept": _NOTHING_IS_KEPT,
    "not waited for": _NOT_WAITED_FOR,
}


@pytest.mark.parametrize("name", _PROGRAMS if EXHAUSTIVE else ["not waited for"])
def test_compilation(name: str, tmp_path: Path) -> None:
    done = run(_PROGRAMS[name], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.exhaustive
def test_without_workers_kernels_are_compiled_in_place(tmp_path: Path) -> None:
    done = run(_WORKERS_FAIL, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "A process that compiles kernels failed: it ended with 1." in done.stderr
