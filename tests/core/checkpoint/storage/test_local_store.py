"""A directory as a store: what it lists, reads and writes, and what the operating system may do meanwhile."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from requant.checkpoint.storage import local
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.storage.store import StoredFile
from requant.errors import DestinationError, SourceChangedError, StorageError


def read(store: LocalStore, file: StoredFile, offset: int, size: int) -> bytes:
    target = bytearray(size)
    store.read_into(file, offset, memoryview(target))
    return bytes(target)


def test_files_and_folders_and_links(tmp_path: Path) -> None:
    """The cache of Hugging Face: a folder of links to blobs beside it."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "a1"
    blobs.mkdir()
    (snapshot / "1_Pooling").mkdir(parents=True)
    (blobs / "0f").write_bytes(b"weights")
    (blobs / "1e").write_bytes(b"{}")
    (snapshot / "model.safetensors").symlink_to("../../blobs/0f")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/1e")
    os.mkfifo(snapshot / "pipe")
    store = LocalStore(snapshot)
    found = store.files()
    assert [(file.name, file.size) for file in found] == [("1_Pooling/config.json", 2), ("model.safetensors", 7)]
    assert read(store, found[1], 2, 3) == b"igh"
    (blobs / "0f").write_bytes(b"WEIGHTS")
    os.utime(blobs / "0f", ns=(1, 1))
    with pytest.raises(SourceChangedError, match="was changed after the plan was made"):
        read(store, found[1], 0, 1)


def test_links_that_lead_nowhere_or_in_circles(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to("missing")
    with pytest.raises(StorageError, match=r"broken: it does not exist"):
        LocalStore(tmp_path).files()
    with pytest.raises(StorageError, match=r"broken: it does not exist"):
        LocalStore(tmp_path).find("broken")
    (tmp_path / "broken").rename(tmp_path / ".#broken")
    assert LocalStore(tmp_path).files() == ()
    (tmp_path / "up").symlink_to(".")
    with pytest.raises(StorageError, match="link to a directory above"):
        LocalStore(tmp_path).files()


def test_a_folder_that_another_process_removes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers write to a folder, and remove it when it is empty."""
    store, mkdir = LocalStore(tmp_path), os.mkdir
    removed: list[str] = []

    def made_and_removed(name: str, *, dir_fd: int) -> None:
        mkdir(name, dir_fd=dir_fd)
        if len(removed) < 3:
            os.rmdir(name, dir_fd=dir_fd)
            removed.append(name)

    monkeypatch.setattr(os, "mkdir", made_and_removed)
    store.put("records/a", b"abc")
    removed.clear()
    with store.create("others/b", 0) as writer:
        writer.commit()
    assert len(removed) == 3
    assert [file.name for file in store.files()] == ["others/b", "records/a"]


@pytest.mark.parametrize("only_if_absent", [False, True])
def test_an_unfinished_file_that_another_process_removes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_if_absent: bool
) -> None:
    """A worker that finishes a destination removes the folder of records, where others take leases."""
    store, fsync = LocalStore(tmp_path), os.fsync
    removed: list[str] = []

    def all_removed(descriptor: int) -> None:
        fsync(descriptor)
        if len(removed) < 3:
            for file in store.files():
                store.remove(file.name)
                removed.append(file.name)

    monkeypatch.setattr(os, "fsync", all_removed)
    assert store.put("records/a", b"abc", only_if_absent=only_if_absent)
    assert len(set(removed)) == 3
    assert store.get("records/a") == b"abc"
    assert [file.name for file in store.files()] == ["records/a"]


def test_one_file_is_found_whatever_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "up").symlink_to(".")
    (tmp_path / "broken").symlink_to("missing")
    (tmp_path / "folder").mkdir()
    (tmp_path / "x").write_bytes(b"abc")
    store = LocalStore(tmp_path)
    found = store.find("x")
    assert found is not None
    assert read(store, found, 0, 3) == b"abc"
    assert store.find("folder") is None
    assert store.find("none") is None


def test_only_a_file_or_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("x")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    store = LocalStore(tmp_path)
    for name, what in (("folder", "a directory"), ("pipe", "a FIFO, a socket or a device")):
        with pytest.raises(DestinationError, match=f"{name} is {what}: remove it, or choose another name") as refused:
            store.create(name, 1)
        assert refused.value.file == name
        with pytest.raises(DestinationError, match=f"{name} is {what}: remove it, or choose another name"):
            store.put(name, b"1")
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe", "x"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with store.create("link", 1) as writer:
        writer.write(0, b"1")
        writer.commit()
    assert store.get("link") == b"1"
    assert store.get("x") == b"abc"


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    assert LocalStore(tmp_path / "missing").files() == ()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file is a file: name a directory"):
        LocalStore(tmp_path / "file").files()
    for place in ("file/below", "file"):
        with pytest.raises(StorageError, match="is not a directory"), LocalStore(tmp_path / place).lock():
            pass


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../x", "a//b", ".", "a\0b"])
def test_names_stay_below_the_directory(tmp_path: Path, name: str) -> None:
    store = LocalStore(tmp_path / "store")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: store.get(name),
        lambda: store.put(name, b""),
        lambda: store.create(name, 1),
        lambda: store.remove(name),
        lambda: read(store, StoredFile(name, 1, ""), 0, 1),
    )
    for call in calls:
        with pytest.raises(StorageError, match="is not the name of a file in"):
            call()


def test_reading_past_the_end(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    store = LocalStore(tmp_path)
    (file,) = store.files()
    assert read(store, file, 5, 0) == b""
    with pytest.raises(SourceChangedError, match="ends at byte 5, but bytes up to 6 are needed"):
        read(store, file, 4, 2)


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    old = os.umask(0o027)
    try:
        with store.create("a/x", 6) as writer:
            writer.write(3, b"def")
            assert [file.name for file in store.files()] == ["a/x.part"]
            writer.write(0, memoryview(b"abc"))
            assert writer.commit() == hashlib.sha256(b"abcdef").hexdigest()
        store.put("small", b"1")
    finally:
        os.umask(old)
    assert [file.name for file in store.files()] == ["a/x", "small"]
    assert store.get("a/x") == b"abcdef"
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a/x", "small")} == {0o640}
    with store.create("y", 3) as writer:
        writer.write(0, b"abc")
    assert [file.name for file in store.files()] == ["a/x", "small"]


def test_bytes_beyond_the_stated_size(tmp_path: Path) -> None:
    with LocalStore(tmp_path).create("x", 3) as writer:
        writer.write(2, b"abc")
        with pytest.raises(StorageError, match="has 5 bytes, not 3"):
            writer.commit()
    assert not list(tmp_path.iterdir())


def test_put_only_if_absent(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert store.put("x", b"1", only_if_absent=True)
    assert not store.put("x", b"2", only_if_absent=True)
    assert store.get("x") == b"1"
    assert store.put("x", b"3")
    assert store.get("x") == b"3"
    assert [file.name for file in store.files()] == ["x"]


def test_remove(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a/b/x", b"")
    store.put("a/y", b"")
    store.remove("a/b/x")
    store.remove("a/b/x")
    assert not (tmp_path / "a" / "b").exists()
    store.remove("a/y")
    assert tmp_path.exists()
    assert not list(tmp_path.iterdir())


def test_short_writes_and_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read_vector = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:7], at))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: read_vector(fd, [buffers[0][:5]], at))
    data = bytes(range(256)) * 3
    store = LocalStore(tmp_path)
    with store.create("x", len(data)) as writer:
        writer.write(100, data[100:])
        writer.write(0, data[:100])
        assert writer.commit() == hashlib.sha256(data).hexdigest()
    store.put("y", data)
    assert [read(store, file, 0, len(data)) for file in store.files()] == [data, data]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "the disk is full: free some space and run it again"),
        (errno.EDQUOT, "quota is exceeded: free some space and run it again"),
        (errno.EROFS, "mounted read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EIO, "input/output error"),
    ],
)
@pytest.mark.parametrize("call", ["pwrite", "fsync", "rename", "open"])
def test_what_the_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str, call: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    store = LocalStore(tmp_path)

    def write() -> None:
        with store.create("x", 3) as writer:
            writer.write(0, b"abc")
            writer.commit()

    for work in (write, lambda: store.put("y", b"abc")):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(StorageError, match=message) as caught:
                work()
        assert caught.value.file in ("x", "y")
        assert not list(tmp_path.iterdir())


def test_a_file_larger_than_the_process_may_write(tmp_path: Path) -> None:
    program = f"""
import resource
from requant.checkpoint.storage.local import LocalStore
from requant.errors import StorageError
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, {resource.RLIM_INFINITY}))
for size, at in ((10000, 0), (4000, 4000)):
    try:
        with LocalStore({str(tmp_path)!r}).create("x", size) as writer:
            writer.write(at, bytes(3000))
            writer.commit()
    except StorageError as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.count("larger than the file system or the limit of the process") == 2
    assert not list(tmp_path.iterdir())


def test_one_writer_of_a_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.create("x", 1) as writer:
        with pytest.raises(DestinationError, match=r"another process writes .*x\.part"):
            store.create("x", 1)
        writer.write(0, b"1")
        writer.commit()
    (tmp_path / "x.part").write_text("what a killed process left")
    with store.create("x", 2) as writer:
        writer.write(0, b"22")
        writer.commit()
    assert store.get("x") == b"22"


def test_a_part_that_gets_its_name_while_another_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    first = store.create("x", 3)
    first.write(0, b"abc")
    opened = os.open

    def open_then_commit(path: Any, *rest: Any, **options: Any) -> int:
        descriptor = opened(path, *rest, **options)
        if path != "x.part":
            return descriptor
        monkeypatch.setattr(os, "open", opened)
        first.commit()
        return descriptor

    monkeypatch.setattr(os, "open", open_then_commit)
    with store.create("x", 3):
        assert store.get("x") == b"abc"
    assert store.get("x") == b"abc"


def test_locks(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path / "x"), LocalStore(tmp_path / "x")
    with first.lock():
        for shared in (True, False):
            with pytest.raises(DestinationError, match="another run writes to"), second.lock(shared=shared):
                pass
    assert not list((tmp_path / "x").iterdir())
    with first.lock(shared=True), second.lock(shared=True), pytest.raises(DestinationError), first.lock():
        pass
    with second.lock():
        pass
    assert not list((tmp_path / "x").iterdir())


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(StorageError, match="has no locks"), LocalStore(tmp_path).lock():
        pass


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for location in (tmp_path / "a b", str(tmp_path / "a b"), "a b", f"file://{tmp_path}/a%20b"):
        assert open_store(location).url == str(tmp_path / "a b")
    for location in ("gopher://x/y", "file://host/x"):
        with pytest.raises(StorageError):
            open_store(location)


def test_links_that_multiply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 folders with two links each to the next one: 2^40 paths."""
    monkeypatch.setattr(local, "MAX_FOLDERS", 200)
    for number in range(40):
        (tmp_path / "folders" / str(number)).mkdir(parents=True)
        for name in "ab":
            (tmp_path / "folders" / str(number) / name).symlink_to(f"../{number + 1}")
    (tmp_path / "folders" / "40").mkdir()
    with pytest.raises(StorageError, match="more than 200 folders"):
        LocalStore(tmp_path / "folders" / "0").files()
