"""Object stores on an S3 server: what every store promises, and uploads that end early."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from requant.checkpoint.storage.object_store import ObjectStore, open_object_store
from requant.checkpoint.storage.store import Store
from requant.errors import SourceChangedError, StorageError
from requant.errors.cancellation import cancellation_check
from tests.conftest import ROOT
from tests.core.checkpoint.storage.test_store_contract import *  # noqa: F403  # all its tests, with the store below
from tests.interop.workers.conftest import S3Server

pytestmark = pytest.mark.interop

MEBIBYTE = 1 << 20


@pytest.fixture  # type: ignore[no-redef]  # the one of the contract's tests
def store(bucket: str) -> Store:
    return open_object_store(f"s3://{bucket}/some/prefix")


def write(store: Store, name: str, data: bytes) -> None:
    with store.create(name, len(data)) as writer:
        writer.write(0, data)
        writer.commit()


def test_a_prefix_is_a_folder(bucket: str, s3_server: S3Server) -> None:
    inner, outer = open_object_store(f"s3://{bucket}/a/"), open_object_store(f"s3://{bucket}")
    s3_server.client.put_object(Bucket=bucket, Key="a/")  # a "folder" made in a console
    s3_server.client.put_object(Bucket=bucket, Key="ab", Body=b"1")
    inner.put("c", b"1")
    assert [file.name for file in inner.files()] == ["c"]
    assert [file.name for file in outer.files()] == ["a/c", "ab"]


def test_only_whole_objects_are_seen(store: Store, bucket: str, s3_server: S3Server) -> None:
    with store.create("model.safetensors", 20 * MEBIBYTE) as writer:
        writer.write(0, bytes(20 * MEBIBYTE))
        assert s3_server.names(bucket) == []
        writer.commit()
    assert s3_server.names(bucket) == ["some/prefix/model.safetensors"]
    assert s3_server.uploads(bucket) == []


def test_a_cancelled_upload_is_aborted(store: Store, bucket: str, s3_server: S3Server) -> None:
    checks = iter([None, None])

    def check() -> None:
        if next(checks, "end") == "end":
            raise KeyError

    token = cancellation_check.set(check)
    try:
        with pytest.raises(KeyError):
            write(store, "a", bytes(30 * MEBIBYTE))
    finally:
        cancellation_check.reset(token)
    assert s3_server.names(bucket) == []
    assert s3_server.uploads(bucket) == []


def test_a_worker_that_is_killed_while_it_uploads(store: Store, bucket: str, s3_server: S3Server) -> None:
    """Neither an object nor a spool file is left, and the next worker writes the same object."""
    program = f"""
import time
from requant.checkpoint.storage import object_store
from requant.checkpoint.storage.object_store import open_object_store
from requant.errors.cancellation import cancellation_check
parts = iter(range(100))
cancellation_check.set(lambda: time.sleep(600) if next(parts) == 2 else None)
with open_object_store("s3://{bucket}/some/prefix").create("a", {30 * MEBIBYTE}) as writer:
    writer.write(0, bytes({30 * MEBIBYTE}))
    writer.commit()
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env={**os.environ}) as process:
        deadline = time.monotonic() + 60
        while not s3_server.uploads(bucket):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert s3_server.names(bucket) == []
    write(store, "a", bytes(30 * MEBIBYTE))
    assert s3_server.names(bucket) == ["some/prefix/a"]


@pytest.mark.parametrize("other", [b"abc", b"xyz", b"ab"])
def test_another_program_writes_the_same_name(
    store: Store, bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, other: bytes
) -> None:
    import obstore

    put = obstore.put

    def overtaken(*arguments: Any, **options: Any) -> Any:
        sent = put(*arguments, **options)
        s3_server.client.put_object(Bucket=bucket, Key="some/prefix/a", Body=other)
        # Other stores give each write an ETag of its own.
        return {**sent, "e_tag": '"1"'}

    monkeypatch.setattr(obstore, "put", overtaken)
    if other == b"abc":
        write(store, "a", b"abc")
        return
    with pytest.raises(StorageError, match="not what was uploaded"):
        write(store, "a", b"abc")


def test_a_source_that_changes_between_two_ranges(store: Store) -> None:
    write(store, "a", bytes(20 * MEBIBYTE))
    (file,) = store.files()
    store.read_into(file, 0, memoryview(bytearray(MEBIBYTE)))
    write(store, "a", random.Random(1).randbytes(20 * MEBIBYTE))
    with pytest.raises(SourceChangedError):
        store.read_into(file, MEBIBYTE, memoryview(bytearray(10 * MEBIBYTE)))


def test_memory_does_not_grow_with_the_object(bucket: str) -> None:
    """160 MiB are written and read in pieces of 20 MiB, within 80 MiB more than before."""
    program = f"""
from pathlib import Path
from requant.checkpoint.storage.object_store import open_object_store
def peak():
    (kibibytes,) = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return int(kibibytes) >> 10
store = open_object_store("s3://{bucket}/some/prefix")
store.put("first", b"")
piece, before = bytearray({20 * MEBIBYTE}), peak()
with store.create("a", {160 * MEBIBYTE}) as writer:
    for offset in range(0, {160 * MEBIBYTE}, len(piece)):
        writer.write(offset, piece)
    writer.commit()
written = peak() - before
file, _ = store.files()
for offset in range(0, {160 * MEBIBYTE}, len(piece)):
    store.read_into(file, offset, memoryview(piece))
print(written, peak() - before)
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    written, read = map(int, run.stdout.split())
    assert 8 < written <= read < 80


def test_a_missing_bucket(s3_server: S3Server, bucket: str) -> None:
    missing: ObjectStore = open_object_store("s3://no-such-bucket/model")
    with pytest.raises(StorageError, match="NoSuchBucket"):
        missing.files()
    with pytest.raises(StorageError, match="NoSuchBucket"):
        write(missing, "a", bytes(10 * MEBIBYTE))
