"""In which order a run writes, makes durable and renames: what a loss of power leaves is what a kill leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.local import LocalStore
from tests.support.hand_made_plan import example


def test_every_name_stands_for_bytes_that_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, lock = tmp_path / "out", Lock()
    dirty: set[str] = set()
    unsynced_names: set[str] = set()
    named: list[str] = []
    real = {name: getattr(os, name) for name in ("pwrite", "ftruncate", "fsync", "rename", "link")}
    if hasattr(os, "copy_file_range"):
        real["copy_file_range"] = os.copy_file_range

    def path_of(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        with lock:
            dirty.add(path_of(descriptor))
        written: int = real["pwrite"](descriptor, data, offset)
        return written

    def copy_file_range(source: int, descriptor: int, *arguments: int) -> int:
        with lock:
            dirty.add(path_of(descriptor))
        copied: int = real["copy_file_range"](source, descriptor, *arguments)
        return copied

    def ftruncate(descriptor: int, size: int) -> None:
        with lock:
            dirty.add(path_of(descriptor))
        real["ftruncate"](descriptor, size)

    def fsync(descriptor: int) -> None:
        path = path_of(descriptor)
        real["fsync"](descriptor)
        with lock:
            dirty.discard(path)
            unsynced_names.difference_update({name for name in unsynced_names if str(Path(name).parent) == path})

    def given_name(call: str) -> Any:
        def give(part: str, name: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
            before, after = f"{path_of(src_dir_fd)}/{part}", f"{path_of(dst_dir_fd)}/{name}"
            with lock:
                assert before not in dirty, f"{after} is named before its bytes are on the disk"
                if after.endswith(".json") and "requant-progress" in after:
                    output = json.loads(Path(before).read_bytes())["name"]
                    assert output in named, f"{output} is recorded before it has its name"
                    assert str(out / output) not in unsynced_names, f"{output} is recorded before its name is durable"
                if name == "config.json":
                    assert not unsynced_names
                named.append(name)
                unsynced_names.add(after)
            real[call](part, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        return give

    for name, call in {"pwrite": pwrite, "ftruncate": ftruncate, "fsync": fsync}.items():
        monkeypatch.setattr(os, name, call)
    if hasattr(os, "copy_file_range"):
        monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    for name in ("rename", "link"):
        monkeypatch.setattr(os, name, given_name(name))
    made = example(tmp_path / "source", shards=2, rows=100)
    run_plan(made.plan, made.source, LocalStore(out))
    assert not unsynced_names
    assert not {path for path in dirty if not path.endswith(".requant.lock (deleted)")} - {str(out / ".requant.lock")}
    outputs = {task.output for task in made.plan.tasks} | {file.name for file in made.plan.carried}
    assert named[0] == "requant-manifest.json"
    assert outputs < set(named[:-3])
    assert named[-3:] == ["model.safetensors.index.json", "requant-manifest.json", "config.json"]
