"""The operating system refuses one call of a run: what is left is no model, and the next run goes on from it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.local import LocalStore
from requant.errors import StorageError
from tests.support.cases import sample
from tests.support.hand_made_plan import Example, example

CALLS = (
    *("pwrite", "fsync", "rename", "link", "ftruncate", "makedirs", "mkdir"),
    *(("copy_file_range",) if hasattr(os, "copy_file_range") else ()),
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def failing(call: Callable[..., Any], number: int, code: int) -> tuple[Callable[..., Any], list[int]]:
    """Return the call, which fails when it is called for that time, and how often it was called."""
    lock, count = Lock(), [0]

    def maybe(*arguments: Any, **options: Any) -> Any:
        with lock:
            count[0] += 1
            fails = count[0] == number
        if fails:
            raise OSError(code, os.strerror(code))
        return call(*arguments, **options)

    return maybe, count


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return example(tmp_path_factory.mktemp("model") / "source", shards=2, rows=60, columns=70)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_fails(made: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    reference = tmp_path / "reference"
    with monkeypatch.context() as patch:
        counting, calls = failing(getattr(os, name), 0, 0)
        patch.setattr(os, name, counting)
        run_plan(made.plan, made.source, LocalStore(reference), threads=2)
    expected = contents(reference)
    assert calls[0]
    # The first two would write into the lock file who holds it, which may fail.
    first = 2 if name in ("ftruncate", "pwrite") else 1
    for number in sample(range(first, calls[0] + 1), 8):
        out = tmp_path / str(number)
        code = errno.EIO if name == "fsync" else errno.ENOSPC
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), number, code)[0])
            with pytest.raises(
                StorageError,
                match=r"input/output error|the disk is full: free some space and run it "
                r"again",
            ):
                run_plan(made.plan, made.source, LocalStore(out), threads=2)
        left = contents(out) if out.exists() else {}
        # A failure after config.json got its name is that of making the name durable: all else is there.
        assert "config.json" not in left or left == expected
        assert {file: data for file, data in left.items() if file in made.expected} == {
            file: data for file, data in expected.items() if file in left and file in made.expected
        }
        assert not [file for file in left if file.endswith((".part", ".lock"))]
        run_plan(made.plan, made.source, LocalStore(out), threads=2)
        assert contents(out) == expected


def test_what_is_finished_before_a_file_that_is_too_large_stays(made: Example, tmp_path: Path) -> None:
    """With a real limit of the system, in a process of its own."""
    program = f"""
import resource, sys
from pathlib import Path
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.local import LocalStore
from requant.errors import StorageError
from tests.support.hand_made_plan import example
made = example(Path({str(tmp_path / "source")!r}), shards=2, rows=60, columns=70)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    run_plan(made.plan, made.source, LocalStore({str(tmp_path / "out")!r}), threads=2)
except StorageError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
run_plan(made.plan, made.source, LocalStore({str(tmp_path / "out")!r}), threads=2)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "larger than the file system or the limit of the process (ulimit -f) allows" in run.stdout
    assert (tmp_path / "out" / "config.json").exists()


def test_a_disk_that_is_too_small_is_noticed_before_anything_is_written(
    made: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStore, "free_bytes", lambda _: 1000)
    with pytest.raises(StorageError, match=r"1000 bytes free, but \d+ remain to be written"):
        run_plan(made.plan, made.source, LocalStore(tmp_path / "out"))
    assert not list((tmp_path / "out").glob("*.safetensors*"))
