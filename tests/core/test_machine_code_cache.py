"""Kernels that come from the cache: the same machine code, without the code that it was made from."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import core.warmup  # noqa: F401  # for all kernels
from core.kernels import _jit
from core.kernels.machine_code_cache import described

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import numpy as np
from numba import types
from core.kernels._jit import device, kernel, readable, writable

@device
def shifted(value):
    return value + 3

@kernel([readable(types.int32), writable(types.int32)], [readable(types.int16), writable(types.int32)])
def shift(source, target):
    for index in range(source.size):
        target[index] = shifted(source[index])

assert shift.compile() == 2
for dtype in (np.int32, np.int16):
    target = np.zeros(5, np.int32)
    shift(np.arange(5, dtype=dtype), target)
    print(target.tolist())
stats = shift._dispatcher.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def _run(program: Path) -> list[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(program.parent / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_a_kernel_from_the_cache_is_the_one_that_was_compiled(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    assert _run(program) == ["[3, 4, 5, 6, 7]", "[3, 4, 5, 6, 7]", "0 2"]
    assert _run(program) == ["[3, 4, 5, 6, 7]", "[3, 4, 5, 6, 7]", "2 0"]
    found = sorted((tmp_path / "cache").glob("**/*.nbc"))
    assert len(found) == 2
    for path in found:
        (_, kind, (code, symbols)), *_ = pickle.loads(path.read_bytes())
        assert kind == "object"
        assert code.startswith(b"\x7fELF")
        assert len(symbols) < 4000


def test_a_changed_source_is_compiled_anew(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    _run(program)
    program.write_text(_PROGRAM.replace("value + 3", "value + 4 "))
    assert _run(program) == ["[4, 5, 6, 7, 8]", "[4, 5, 6, 7, 8]", "0 2"]


_TEMPLATES = """
import numpy as np
from numba import types
from core.kernels._jit import device, kernel, readable, writable

def shifting(by):
    @device
    def shifted(value):
        return value + by

    @device
    def twice(value):
        return shifted(shifted(value))

    @kernel([readable(types.int32), writable(types.int32)])
    def shift(source, target):
        for index in range(source.size):
            target[index] = twice(source[index])

    return shift

kernels = [shifting(by) for by in (1, 10)]
for each in kernels:
    target = np.zeros(3, np.int32)
    each(np.arange(3, dtype=np.int32), target)
    print(target.tolist())
print([sum(each._dispatcher.stats.cache_hits.values()) for each in kernels])
"""


def test_kernels_of_a_template_are_told_apart_by_what_they_capture(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_TEMPLATES)
    assert _run(program) == ["[2, 3, 4]", "[20, 21, 22]", "[0, 0]"]
    assert _run(program) == ["[2, 3, 4]", "[20, 21, 22]", "[1, 1]"]


def test_every_kernel_is_known_by_a_description_of_its_own() -> None:
    found = [f"{described(each._dispatcher.py_func)} {each._signatures}" for each in _jit._registry]
    assert len(found) > 80
    assert len(set(found)) == len(found)
    assert not [each for each in found if "0x" in each]


def test_what_has_no_description_is_not_captured() -> None:
    with pytest.raises(TypeError, match="captures"):
        described([1])
