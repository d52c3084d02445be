"""What every store promises (core/requant/checkpoint/storage/store.py)."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.object_store import ObjectStore
from requant.checkpoint.storage.store import Store, StoredFile
from requant.errors import SourceChangedError, StorageError


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "directory":
        return LocalStore(tmp_path / "models")
    return ObjectStore("memory://bucket", MemoryStore())


def contents(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def read(store: Store, file: StoredFile, offset: int = 0, length: int | None = None) -> bytes:
    target = bytearray(file.size - offset if length is None else length)
    store.read_into(file, offset, memoryview(target))
    return bytes(target)


def only(store: Store, name: str) -> StoredFile:
    (file,) = [file for file in store.files() if file.name == name]
    return file


# Several pieces of a read and several parts of an upload, none of them full; nothing at all.
@pytest.mark.parametrize("size", [0, 1, (20 << 20) + 7])
def test_what_is_written_in_any_order_is_read(store: Store, size: int) -> None:
    data = contents(size)
    starts = list(range(0, size, 3_000_001))
    random.Random(1).shuffle(starts)
    with store.create("model.safetensors", size) as writer, ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda start: writer.write(start, memoryview(data)[start : start + 3_000_001]), starts))
        assert [file.name for file in store.files() if not file.name.endswith(".part")] == []
        assert writer.commit() == hashlib.sha256(data).hexdigest()
    (file,) = store.files()
    assert (file.name, file.size) == ("model.safetensors", size)
    assert read(store, file) == data
    assert store.get(file.name) == data


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (0, 1), (99, 1), (100, 0), (17, 50), (0, 100)])
def test_a_range(store: Store, offset: int, length: int) -> None:
    store.put("a/b", contents(100))
    assert read(store, only(store, "a/b"), offset, length) == contents(100)[offset : offset + length]


def test_files_are_sorted_by_name(store: Store) -> None:
    for name in ("b", "a/c", "a-", "a/b", "é"):
        store.put(name, name.encode())
    assert [file.name for file in store.files()] == sorted(["b", "a/c", "a-", "a/b", "é"])
    assert [file.size for file in store.files()] == [len(file.name.encode()) for file in store.files()]
    assert [store.find(file.name) for file in store.files()] == list(store.files())
    assert store.find("a") is store.find("none") is None


def test_what_is_not_committed_leaves_nothing(store: Store) -> None:
    with store.create("a", 3) as writer:
        writer.write(0, b"abc")
    assert store.files() == ()
    assert store.get("a") is None


def test_a_commit_replaces_the_file(store: Store) -> None:
    store.put("a", b"old")
    before = only(store, "a")
    with store.create("a", 5) as writer:
        writer.write(0, b"newer")
        assert store.get("a") == b"old"
        writer.commit()
    assert store.get("a") == b"newer"
    with pytest.raises(SourceChangedError, match="make a new plan"):
        read(store, before)


@pytest.mark.parametrize("after", [b"xyz", b"ab", b"abcd", None])
def test_a_changed_file_is_noticed(store: Store, after: bytes | None) -> None:
    store.put("a", b"abc")
    before = only(store, "a")
    if after is None:
        store.remove("a")
    else:
        store.put("a", after)
    with pytest.raises(SourceChangedError) as caught:
        read(store, before, 0, 1)
    assert caught.value.file == "a"


def test_a_range_past_the_end(store: Store) -> None:
    store.put("a", b"abc")
    with pytest.raises(SourceChangedError):
        read(store, only(store, "a"), 1, 3)


def test_the_first_of_many_creates_it(store: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(lambda n: store.put("lease", str(n).encode(), only_if_absent=True), range(16)))
    assert sum(created) == 1
    assert store.get("lease") == str(created.index(True)).encode()
    assert store.put("lease", b"renewed")
    assert store.get("lease") == b"renewed"


def test_removing_what_is_not_there(store: Store) -> None:
    store.put("a", b"1")
    store.remove("a")
    store.remove("a")
    assert store.get("a") is None


def test_bytes_that_were_not_written(store: Store) -> None:
    with store.create("x", 10) as writer:
        writer.write(0, b"1234")
        writer.write(6, b"7890")
        with pytest.raises(StorageError, match="8 of 10 bytes"):
            writer.commit()
    assert store.files() == ()
