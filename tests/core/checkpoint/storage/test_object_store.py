"""Object stores whose server fails. `make interop` has an S3 server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from obstore.store import MemoryStore

from requant.checkpoint.storage import object_store
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.storage.object_store import ObjectStore, open_object_store
from requant.checkpoint.storage.remote_store import RETRY
from requant.checkpoint.storage.store import StoredFile
from requant.errors import SourceChangedError, StorageError
from tests.core.checkpoint.storage.http_files import HttpFiles, serving

if TYPE_CHECKING:
    from obstore.store import RetryConfig

SECRET = "the-secret-key"
BRIEF: RetryConfig = {
    **RETRY,
    "backoff": {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 2},
    "max_retries": 3,
}
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
DENIED = (
    b"<Error><Code>AccessDenied</Code><Message>User: alice is not authorized to perform: s3:PutObject</Message>"
    b"<AWSAccessKeyId>the-key</AWSAccessKeyId></Error>"
)
NO_BUCKET = b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"


@pytest.fixture
def server() -> Iterator[HttpFiles]:
    with serving(HttpFiles()) as served:
        yield served


@pytest.fixture
def bucket(server: HttpFiles, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A bucket of an S3 server, of which there is only what a test needs."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "the-key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return open_object_store("s3://bucket/model", retry=BRIEF)


def test_throttled_requests_are_repeated(server: HttpFiles, bucket: ObjectStore) -> None:
    server.files["bucket/model/a"] = b"abc"
    server.faults = [(503, SLOW_DOWN), (429, b""), (0, b"")]
    assert bucket.get("a") == b"abc"
    assert len(server.requests) == 4


def test_a_server_that_stays_throttled(server: HttpFiles, bucket: ObjectStore) -> None:
    server.always = (503, SLOW_DOWN)
    with pytest.raises(StorageError) as caught:
        bucket.get("a")
    assert str(caught.value) == (
        "s3://bucket/model/a cannot be read: the server answered 503 Service Unavailable, SlowDown: Please reduce your "
        "request rate. (tried 4 times); run fewer workers at a time"
    )
    assert caught.value.file == "a"


def test_access_denied(server: HttpFiles, bucket: ObjectStore) -> None:
    server.always = (403, DENIED)
    with pytest.raises(StorageError, match="403 Forbidden, AccessDenied: User: alice is not authorized") as caught:
        bucket.put("a", b"")
    assert "check the credentials" in str(caught.value)
    assert len(server.requests) == 1
    assert caught.value.__cause__ is None
    assert not {SECRET, "the-key"} & set(str(caught.value).split())
    for ask in (bucket.files, lambda: bucket.get("a"), lambda: bucket.remove("a")):
        with pytest.raises(StorageError, match="403 Forbidden"):
            ask()


def test_a_missing_bucket(server: HttpFiles, bucket: ObjectStore) -> None:
    server.always = (404, NO_BUCKET)
    # A missing file is none: a bucket that is missing is an error.
    for ask in (bucket.files, lambda: bucket.get("a"), lambda: bucket.put("a", b"")):
        with pytest.raises(StorageError, match="NoSuchBucket: The specified bucket does not exist"):
            ask()
    file = StoredFile("a", 1, '"1"')
    with pytest.raises(StorageError, match="NoSuchBucket"):
        bucket.read_into(file, 0, memoryview(bytearray(1)))
    server.always = (404, b"")
    assert bucket.get("a") is None
    with pytest.raises(SourceChangedError):
        bucket.read_into(file, 0, memoryview(bytearray(1)))


def test_a_range_is_asked_for_by_its_version(server: HttpFiles, bucket: ObjectStore) -> None:
    server.files["bucket/model/a"] = b"abc"
    server.etags["bucket/model/a"] = '"1"'
    target = bytearray(2)
    bucket.read_into(StoredFile("a", 3, '"1"'), 1, memoryview(target))
    assert target == b"bc"
    assert (server.requests, server.versions) == ([("GET", "/bucket/model/a", "bytes=1-2")], ['"1"'])


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch, bucket: ObjectStore) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"cannot be reached: Connection refused \(tried 4 times\)$"):
        open_object_store("s3://bucket", retry=BRIEF).files()


def test_an_upload_that_fails_is_aborted(
    server: HttpFiles, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "PART", 5 << 20)
    begun = b"<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>"
    server.faults = [(200, begun)]
    server.always = (403, DENIED)
    with bucket.create("a", 12 << 20) as writer:
        writer.write(0, bytes(12 << 20))
        with pytest.raises(StorageError, match="AccessDenied"):
            writer.commit()
    assert server.requests[0][:2] == ("POST", "/bucket/model/a?uploads=")
    assert ("DELETE", "/bucket/model/a?uploadId=7", None) in server.requests


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/model", "give a path, or a URL of file://, s3://, gs://, az://, https://, http://"),
        ("s3://key:secret@bucket/model", "a user, a query or a fragment"),
        ("https://host/model?token=secret", "a user, a query or a fragment"),
        ("s3:///model", "names no bucket"),
        ("https:///model", "names no host"),
        ("https://key:secret@[::1/model", "is not a URL"),
    ],
)
def test_urls_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(StorageError, match=message) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", f"not base64: {SECRET}")
    with pytest.raises(StorageError, match="az://container cannot be opened") as caught:
        open_object_store("az://container")
    assert SECRET not in str(caught.value)


def test_what_to_install() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from requant.checkpoint.storage.object_store import open_object_store\n"
        "open_object_store('s3://bucket')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stderr.strip().endswith(
        "s3://bucket: object stores need obstore: run pip install '.[stores]' in the repository"
    )


def test_a_spool_file_that_does_not_fit() -> None:
    with pytest.raises(StorageError, match=r"set TMPDIR to a directory with that much space"):
        ObjectStore("memory://", MemoryStore()).create("a", 1 << 60)


def test_a_gap_is_not_committed() -> None:
    store = ObjectStore("memory://bucket", MemoryStore())
    with store.create("a", 4) as writer:
        writer.write(1, b"abc")
        with pytest.raises(StorageError, match="3 of 4 bytes"):
            writer.commit()
    assert store.files() == ()


def test_bytes_past_the_end_are_refused() -> None:
    store = ObjectStore("memory://bucket", MemoryStore())
    with store.create("a", 4) as writer, pytest.raises(StorageError, match="up to 5"):
        writer.write(2, b"abc")


def test_a_prefix_of_more_than_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "MAX_FILES", 5)
    store = ObjectStore("memory://bucket", MemoryStore())
    for name in "abcdef":
        store.put(name, b"")
    with pytest.raises(StorageError, match="memory://bucket has more than 5 objects"):
        store.files()


def test_parts_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART", 10)
    monkeypatch.setattr(object_store, "MAX_PARTS", 4)
    store = ObjectStore("memory://", MemoryStore())
    with store.create("a", 101) as writer:
        writer.write(0, bytes(101))
        pieces = list(writer._parts(26, object_store.hashlib.sha256()))  # type: ignore[attr-defined]
        assert [len(each) for each in pieces] == [26, 26, 26, 23]
        writer.commit()
    assert store.get("a") == bytes(101)


def test_the_spool_directory_is_left_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ObjectStore("memory://", MemoryStore()).create("a", 100) as writer:
        writer.write(0, bytes(100))
        assert list(tmp_path.iterdir()) == []
