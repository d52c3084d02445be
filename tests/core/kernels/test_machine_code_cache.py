"""Kernels that come from the cache: the same machine code, or none that is not exactly what was written."""

from __future__ import annotations

import ast
import logging
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import config
from numba.core.registry import cpu_target

import requant.kernels.jit.warmup  # noqa: F401  # for all kernels
from requant.errors import SelfTestError
from requant.kernels.jit import baked, machine_code_cache
from requant.kernels.jit import jit as _jit
from requant.kernels.jit.cache_directory import cache_directory
from requant.kernels.jit.jit import kernel
from requant.kernels.jit.machine_code_cache import (
    MachineCodeCache,
    RefusedFileError,
    described,
)
from requant.kernels.jit.signature import I32, In, Out
from requant.kernels.jit.sources import FOLDER, SHARED_SOURCES, sources_digest
from requant.self_test.self_test import prepare_kernels
from tests.support.cases import EXHAUSTIVE, sample

ROOT = Path(__file__).parents[3]
# The format and the checksum.
START = 48
BITS = 4 if EXHAUSTIVE else 2

_PROGRAM = """
from __future__ import annotations

import numpy as np
from numba import types
from numba.core import config
from numba.core.registry import cpu_target
from requant.kernels.jit.jit import device, kernel
from requant.kernels.jit.signature import I32, In, Integer, Out

@device
def shifted(value):
    return value + 3

@kernel({Integer: types.int32}, {Integer: types.int16})
def shift(source: In[Integer], target: Out[I32]) -> None:
    for index in range(source.size):
        target[index] = shifted(source[index])

shift.compile()
assert shift.specialisations == 2
for dtype in (np.int32, np.int16):
    target = np.zeros(5, np.int32)
    shift(np.arange(5, dtype=dtype), target)
    print(target.tolist())
stats = shift._dispatcher.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def _started(program: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(program.parent / "cache")}
    return subprocess.Popen([sys.executable, program], env=environment, stdout=subprocess.PIPE, text=True)


def _run(program: Path) -> list[str]:
    return _lines(_started(program))


def _lines(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate()
    assert process.returncode == 0
    return output.splitlines()


@pytest.mark.exhaustive
def test_a_kernel_from_the_cache_is_the_one_that_was_compiled(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    assert _run(program) == ["[3, 4, 5, 6, 7]", "[3, 4, 5, 6, 7]", "0 2"]
    assert _run(program) == ["[3, 4, 5, 6, 7]", "[3, 4, 5, 6, 7]", "2 0"]
    found = sorted((tmp_path / "cache").glob("**/*.kernel"))
    assert len(found) == 2
    for path in found:
        (_, kind, (code, symbols)), *_ = pickle.loads(path.read_bytes()[START:])
        assert kind == "object"
        assert code.startswith(b"\x7fELF")
        assert len(symbols) < 4000


@pytest.mark.exhaustive
def test_the_compiler_is_not_made_ready_for_what_the_cache_has(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM + "import sys\nprint('numba.np.linalg' in sys.modules)\n")
    assert [_run(program)[-1] for _ in range(2)] == ["True", "False"]


@pytest.mark.exhaustive
def test_processes_share_a_directory(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    for process in [_started(program) for _ in range(4)]:
        assert _lines(process)[:2] == ["[3, 4, 5, 6, 7]", "[3, 4, 5, 6, 7]"]
    assert _run(program)[-1] == "2 0"
    assert len([path for path in (tmp_path / "cache").rglob("*") if path.is_file()]) == 2


@pytest.mark.exhaustive
def test_a_changed_source_is_compiled_anew(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    _run(program)
    program.write_text(_PROGRAM.replace("value + 3", "value + 4 "))
    assert _run(program) == ["[4, 5, 6, 7, 8]", "[4, 5, 6, 7, 8]", "0 2"]


_TEMPLATES = """
from __future__ import annotations

import numpy as np
from numba import types
from numba.core import config
from numba.core.registry import cpu_target
from requant.kernels.jit.jit import device, kernel
from requant.kernels.jit.signature import I32, In, Out

def shifting(by):
    @device
    def shifted(value):
        return value + by

    @device
    def twice(value):
        return shifted(shifted(value))

    @kernel()
    def shift(source: In[I32], target: Out[I32]) -> None:
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


@pytest.mark.exhaustive
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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and kernels of which nobody else learns."""
    monkeypatch.setattr(machine_code_cache, "cache_directory", lambda _: tmp_path)
    monkeypatch.setattr(baked, "in_use", None)
    monkeypatch.setattr(_jit, "_registry", [])
    monkeypatch.setattr(MachineCodeCache, "_keeps", True)
    monkeypatch.setattr(MachineCodeCache, "reads", True)
    monkeypatch.setattr(MachineCodeCache, "loaded", 0)
    return tmp_path


def _shift(by: int) -> _jit.Kernel:
    @kernel()
    def shift(source: In[I32], target: Out[I32]) -> None:
        for index in range(source.size):
            target[index] = source[index] + by

    return shift


def _used(by: int) -> str:
    """Where the machine code of a kernel comes from, which computes rightly."""
    made = _shift(by)
    target = np.zeros(3, np.int32)
    made(np.arange(3, dtype=np.int32), target)
    assert target.tolist() == [by, by + 1, by + 2]
    stats = made._dispatcher.stats
    assert sum(stats.cache_hits.values()) + sum(stats.cache_misses.values()) == 1
    return "cached" if sum(stats.cache_hits.values()) else "compiled"


def _file(cache: Path, by: int) -> Path:
    """Compile a kernel, and return its file."""
    before = set(cache.iterdir())
    assert _used(by) == "compiled"
    (path,) = set(cache.iterdir()) - before
    assert _used(by) == "cached"
    return path


def _truncated(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _without_content(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[:START])


def _emptied(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def _lengthened(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _flipped(path: Path, _: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


def _swapped(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _of_another_format(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"kernel 1", b"kernel 0", 1))


def _linked(path: Path, other: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def _piped(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _writable_by_all(path: Path, _: Path) -> None:
    path.chmod(0o666)


def _unpickled_to_an_error(path: Path, _: Path) -> None:
    """Only a defect of ours could write this: the checksum is right."""
    key, _name = _shift(1)._dispatcher._cache._key_and_name(_shift(1)._signatures[0], _target())
    machine_code_cache._write(path, key, pickle.dumps(("no", "machine", "code")))


def _target() -> str:
    return machine_code_cache._target(cpu_target.target_context.codegen())


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("damage", "reason"),
    sample(
        [
            (_truncated, "checksum"),
            (_without_content, "checksum"),
            (_emptied, "cut short"),
            (_lengthened, "checksum"),
            (_flipped, "checksum"),
            (_swapped, "another kernel"),
            (_of_another_format, "format"),
            (_linked, "symbolic link"),
            (_piped, "not a file"),
            (_writable_by_all, "others can write"),
            (_unpickled_to_an_error, "cannot be loaded"),
        ],
        4,
    ),
)
def test_a_file_that_is_not_as_written_is_compiled_anew_and_replaced(
    damage: Callable[[Path, Path], None], reason: str, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = _file(cache, 1), _file(cache, 2)
    damage(path, other)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert _used(1) == "compiled"
    (line,) = caplog.messages
    assert str(path) in line
    assert reason in line
    caplog.clear()
    assert (_used(1), _used(2)) == ("cached", "cached")
    assert not caplog.messages


def test_what_cannot_be_read_or_replaced_is_compiled(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _file(cache, 1)
    path.unlink()
    path.mkdir()
    assert _used(1) == "compiled"
    assert _used(2) == "compiled"
    assert [line for line in caplog.messages if "is not used" in line]
    # Once, and no file is left half-written.
    assert len([line for line in caplog.messages if "are not kept" in line]) == 1
    assert list(cache.iterdir()) == [path]


def test_any_flipped_bit_and_any_missing_end_is_refused(tmp_path: Path) -> None:
    path, key, content = tmp_path / "file", b"a kernel", bytes(range(40))
    machine_code_cache._write(path, key, content)
    assert machine_code_cache._read(machine_code_cache._Place(path, key)) == content
    written = path.read_bytes()
    for index in range(len(written)):
        for bit in sample(range(8), 2):
            path.write_bytes(written[:index] + bytes([written[index] ^ 1 << bit]) + written[index + 1 :])
            with pytest.raises(RefusedFileError):
                machine_code_cache._read(machine_code_cache._Place(path, key))
        path.write_bytes(written[:index])
        with pytest.raises(RefusedFileError):
            machine_code_cache._read(machine_code_cache._Place(path, key))


def test_flipped_machine_code_of_every_kernel_is_refused(tmp_path: Path) -> None:
    """Four bits of each, or two, one at a time: without the checksum a few of these end in wrong bits or a crash."""
    directory = cache_directory(FOLDER)
    if directory is None:
        pytest.skip("there is no cache")
    rng = random.Random(1)
    compared = 0
    for each in _jit._registry:
        each.compile()
        for signature in each._signatures:
            key, name = each._dispatcher._cache._key_and_name(signature, _target())
            written = (directory / name).read_bytes()
            for _ in range(BITS):
                place = rng.randrange(START, len(written))
                flipped = bytearray(written)
                flipped[place] ^= 1 << rng.randrange(8)
                (tmp_path / name).write_bytes(flipped)
                with pytest.raises(RefusedFileError, match="checksum"):
                    machine_code_cache._read(machine_code_cache._Place(tmp_path / name, key))
                compared += 1
            (tmp_path / name).unlink()
    assert compared > 100 * BITS


def test_the_digest_is_of_all_sources_and_their_places(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    below = kernels / "room" / "shelf"
    below.mkdir(parents=True)
    (kernels / "a.py").write_text("1")
    (tmp_path / "formats").mkdir()
    for name in SHARED_SOURCES:
        (tmp_path / name).write_text("0")
    seen = [sources_digest(tmp_path)]
    second = below / "b.py"
    for content in ("", "2", "3"):
        second.write_text(content)
        seen.append(sources_digest(tmp_path))
    second.rename(kernels / "room" / "b.py")
    seen.append(sources_digest(tmp_path))
    (kernels / "room" / "b.py").unlink()
    for name in SHARED_SOURCES:
        (tmp_path / name).write_text("1")
        seen.append(sources_digest(tmp_path))
        (tmp_path / name).write_text("0")
    assert len(set(seen)) == len(seen)
    assert sources_digest(tmp_path) == seen[0]
    (kernels / "__pycache__").mkdir()
    (kernels / "__pycache__" / "a.pyc").write_text("1")
    (tmp_path / "formats" / "elements.py").write_text("1")
    assert sources_digest(tmp_path) == seen[0]


def test_kernels_are_made_of_nothing_but_what_the_digest_covers() -> None:
    core = ROOT / "core" / "requant"
    shared = {f"requant.{name.removesuffix('.py').replace('/', '.')}" for name in SHARED_SOURCES}
    for path in [*(core / "kernels").rglob("*.py"), *(core / name for name in SHARED_SOURCES)]:
        imported = [
            node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        own = {name for name in imported if name.startswith("requant") and not name.startswith("requant.kernels")}
        assert own <= shared, path


@pytest.mark.parametrize("option", ["BOUNDSCHECK", "OPT", "CPU_FEATURES"])
def test_other_options_of_the_compiler_are_other_machine_code(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _jit._registry[0]
    before = made._dispatcher._cache._key_and_name(made._signatures[0], _target())
    machine_code_cache._described_target.cache_clear()
    monkeypatch.setattr(config, option, 1)
    after = made._dispatcher._cache._key_and_name(made._signatures[0], _target())
    machine_code_cache._described_target.cache_clear()
    assert before[0] != after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize("helps", [True, False])
@pytest.mark.parametrize("loaded", [0, 1])
@pytest.mark.parametrize("complete", [True, False])
def test_cached_code_that_computes_wrongly_is_compiled_anew_once(
    helps: bool, loaded: int, complete: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    begun: list[Any] = []
    answering: list[bool] = []

    def recompile() -> int:
        done.append("compiled anew")
        return 7

    def run_self_test() -> None:
        done.append("tested")
        if not (helps and "compiled anew" in done):
            raise SelfTestError("a kernel gives 1; it has to give 2")

    class Started:
        def __init__(self) -> None:
            self.complete = complete
            self.used_cache = bool(loaded)

        def finish(self) -> int:
            return 7

    class Check:
        run = staticmethod(run_self_test)

    monkeypatch.setattr("requant.self_test.self_test.start_compilation", lambda _: Started())
    monkeypatch.setattr("requant.self_test.self_test._run_what_is_compiled", lambda: [Check])
    monkeypatch.setattr("requant.self_test.self_test.recompile_kernels", recompile)
    monkeypatch.setattr("requant.self_test.self_test.run_self_test", run_self_test)
    if helps and loaded:
        assert prepare_kernels(2, begun.append, answering.append) == 7
    else:
        with pytest.raises(SelfTestError):
            prepare_kernels(2, begun.append, answering.append)
    assert len(begun) == 1
    assert answering == [True] * (not complete) + [False] * loaded
    assert done == ["tested", *(["compiled anew", "tested"] if loaded else [])]
    assert len(caplog.messages) == loaded


def test_compiling_anew_replaces_what_is_cached(cache: Path) -> None:
    path = _file(cache, 1)
    path.write_bytes(content := path.read_bytes())
    before = path.stat().st_ino
    made = _shift(1)
    made.compile()
    assert sum(made._dispatcher.stats.cache_hits.values()) == 1
    assert _jit.recompile_kernels() >= 1
    assert sum(made._dispatcher.stats.cache_misses.values()) == 1
    assert path.stat().st_ino != before
    assert len(path.read_bytes()) == len(content)
