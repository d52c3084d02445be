"""Bytes that the kernel copies from one file to another, and what happens where it does not."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.local import LocalStore
from requant.errors import SourceChangedError, StorageError
from tests.support.hand_made_plan import example
from tests.support.model_directory import contents

pytestmark = pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="Linux alone has copy_file_range")

DATA = bytes(range(256)) * 40


@pytest.fixture
def stores(tmp_path: Path) -> tuple[LocalStore, LocalStore]:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_bytes(DATA)
    return LocalStore(tmp_path / "source"), LocalStore(tmp_path / "target")


def test_bytes_are_where_they_belong(stores: tuple[LocalStore, LocalStore], monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = stores
    real = os.copy_file_range
    # However few the kernel copies at a time.
    monkeypatch.setattr(os, "copy_file_range", lambda a, b, size, begin, at: real(a, b, min(size, 1000), begin, at))
    (file,) = source.files()
    with target.create("b", 3000) as writer:
        writer.write(0, b"x" * 100)
        assert source.copy_into(file, 7, 2900, writer, 100)
        writer.commit()
    assert target.get("b") == b"x" * 100 + DATA[7:2907]


def test_a_source_that_changed(stores: tuple[LocalStore, LocalStore]) -> None:
    source, target = stores
    (file,) = source.files()
    with target.create("b", len(DATA)) as writer:
        (source.directory / "a").write_bytes(DATA[::-1] + b"!")
        with pytest.raises(SourceChangedError, match="changed after the plan"):
            source.copy_into(file, 0, len(DATA), writer, 0)


def test_a_source_that_ends_before_is_left_to_reading(stores: tuple[LocalStore, LocalStore]) -> None:
    source, target = stores
    (file,) = source.files()
    with target.create("b", len(DATA)) as writer:
        (source.directory / "a").write_bytes(DATA[:100])
        assert not source.copy_into(file, 0, len(DATA), writer, 0)
        (source.directory / "a").unlink()
        assert not source.copy_into(file, 0, len(DATA), writer, 0)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EIO, 0])
@pytest.mark.parametrize("number", [1, 2])
def test_where_the_kernel_does_not_copy_the_files_are_the_same(
    code: int, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = example(tmp_path / "source", shards=2, rows=60, columns=70)
    run_plan(made.plan, made.source, LocalStore(tmp_path / "reference"))
    real, calls = os.copy_file_range, 0

    def sometimes(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        if calls < number:
            return real(*arguments)
        if code:
            raise OSError(code, os.strerror(code))
        return 0

    monkeypatch.setattr(os, "copy_file_range", sometimes)
    run_plan(made.plan, made.source, LocalStore(tmp_path / "out"), threads=1)
    assert calls >= number
    assert contents(tmp_path / "out") == contents(tmp_path / "reference")


def test_a_full_disk_is_named(stores: tuple[LocalStore, LocalStore], monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = stores
    (file,) = source.files()

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    with target.create("b", len(DATA)) as writer, pytest.raises(StorageError, match="the disk is full"):
        source.copy_into(file, 0, len(DATA), writer, 0)
