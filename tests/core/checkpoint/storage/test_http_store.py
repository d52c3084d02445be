"""Directories of HTTP servers: what they lie about, and where they redirect to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from requant.checkpoint.storage import http_connections, http_store
from requant.checkpoint.storage.http_store import MAX_REDIRECTS, HttpStore
from requant.checkpoint.storage.remote_store import RETRY
from requant.checkpoint.storage.store import StoredFile
from requant.errors import SourceChangedError, StorageError
from tests.core.checkpoint.storage.http_files import HttpFiles, serving

if TYPE_CHECKING:
    from obstore.store import RetryConfig

BRIEF: RetryConfig = {
    **RETRY,
    "backoff": {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 2},
    "max_retries": 3,
}


@pytest.fixture
def server() -> Iterator[HttpFiles]:
    with serving(HttpFiles()) as served:
        yield served


MODEL = {
    "model/config.json": b"{}",
    "model/model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
    "model/model-00001-of-00002.safetensors": bytes(range(256)) * 40000,
    "model/model-00002-of-00002.safetensors": b"x" * 100,
}


@pytest.fixture
def directory(server: HttpFiles) -> HttpStore:
    server.files = dict(MODEL)
    server.etags = {name: f'"{len(data)}"' for name, data in MODEL.items()}
    return HttpStore(f"{server.url}/model/", retry=BRIEF)


def test_a_directory_of_an_http_server(directory: HttpStore) -> None:
    files = {file.name: file for file in directory.files()}
    assert {f"model/{name}": file.size for name, file in files.items()} == {n: len(d) for n, d in MODEL.items()}
    file = files["model-00001-of-00002.safetensors"]
    target = bytearray(9_000_000)
    directory.read_into(file, 77, memoryview(target))
    assert target == MODEL["model/model-00001-of-00002.safetensors"][77:9_000_077]


def test_an_http_file_changes(server: HttpFiles, directory: HttpStore) -> None:
    (file,) = [file for file in directory.files() if file.name == "model-00002-of-00002.safetensors"]
    server.etags["model/model-00002-of-00002.safetensors"] = '"other"'
    with pytest.raises(SourceChangedError, match="no longer the file of 100 bytes"):
        directory.read_into(file, 0, memoryview(bytearray(10)))


def test_an_http_server_without_ranges(server: HttpFiles, directory: HttpStore) -> None:
    server.ranges = False
    file = directory.files()[-1]
    with pytest.raises(StorageError, match=r"Range request not supported by"):
        directory.read_into(file, 1, memoryview(bytearray(10)))


def test_an_http_server_is_not_written(directory: HttpStore) -> None:
    for write in (
        directory.lock,
        lambda: directory.put("a", b""),
        lambda: directory.create("a", 1),
        lambda: directory.remove("config.json"),
    ):
        with pytest.raises(StorageError, match="HTTP is read-only"):
            write()


WEIGHT_MAPS: list[object] = [None, [], {"a": "../b"}, {"a": 1}, {"a": ""}, {str(n): str(n) for n in range(10_001)}]


@pytest.mark.parametrize(
    "index",
    [*(json.dumps({"weight_map": each}).encode() for each in WEIGHT_MAPS), b"\xff", b"[" * 100_000],
    ids=range(len(WEIGHT_MAPS) + 2),
)
def test_a_hostile_index(server: HttpFiles, directory: HttpStore, index: bytes) -> None:
    server.files["model/model.safetensors.index.json"] = index
    with pytest.raises(StorageError, match=r"model\.safetensors\.index\.json"):
        directory.files()


def test_an_http_directory_without_a_model(server: HttpFiles, directory: HttpStore) -> None:
    server.files = {}
    with pytest.raises(StorageError, match=r"neither config\.json nor model\.safetensors"):
        directory.files()


SECRET = b"what another service says"


def redirects(server: HttpFiles) -> dict[str, tuple[str, bool]]:
    """Places to redirect to, by their names, and whether they are below the root."""
    other = server.url.replace("127.0.0.1", "localhost")
    return {
        "below": (f"{server.url}/model/data", True),
        "relative": ("data", True),
        "twice": ("below", True),
        "beside": (f"{server.url}/secret", False),
        "relative beside": ("../secret", False),
        "dotted": (f"{server.url}/model/../secret", False),
        "escaped": (f"{server.url}/model/%2e%2e/secret", False),
        "backslash": (f"{server.url}/model/..\\secret", False),
        "prefix": (f"{server.url}/model-2", False),
        "host": (f"{other}/model/data", False),
        "user": (f"{server.url.replace('//', '//u@')}/model/data", False),
        "scheme": (f"{server.url.replace('http:', 'https:')}/model/data", False),
        "no host": ("//", False),
        "file": ("file:///etc/passwd", False),
        "half": ("http://[", False),
        "nothing": ("", False),
    }


@pytest.mark.parametrize("method", ["get", "find", "read_into"])
def test_redirects_stay_below_the_root(server: HttpFiles, method: str) -> None:
    kinds = redirects(server)
    server.files = {"model/data": b"weights", "secret": SECRET, "model-2": SECRET}
    server.redirects = {f"model/{name.replace(' ', '%20')}": target for name, (target, _) in kinds.items()}
    store = HttpStore(f"{server.url}/model", below=f"{server.url}/model", retry=BRIEF)

    def read(name: str) -> object:
        if method == "get":
            return store.get(name)
        if method == "find":
            found = store.find(name)
            assert found is not None
            return found.size
        target = bytearray(7)
        store.read_into(StoredFile(name, 7, ""), 0, memoryview(target))
        return bytes(target)

    for name, (_, followed) in kinds.items():
        server.requests.clear()
        if followed:
            assert read(name) in (b"weights", len(b"weights"))
        else:
            with pytest.raises(StorageError, match="the server redirects") as caught:
                read(name)
            assert SECRET.decode() not in str(caught.value)
            # Nothing was asked of the place itself.
            assert {path for _, path, _ in server.requests} == {f"/model/{name.replace(' ', '%20')}"}, name


def test_the_command_follows_redirects_to_other_hosts(server: HttpFiles) -> None:
    """Model hubs send those who download large files to another host."""
    server.files = {"cdn/data": b"weights"}
    server.redirects = {"model/data": f"{server.url.replace('127.0.0.1', 'localhost')}/cdn/data"}
    assert HttpStore(f"{server.url}/model", retry=BRIEF).get("data") == b"weights"


def test_redirects_in_a_circle(server: HttpFiles) -> None:
    server.redirects = {"model/a": "b", "model/b": "a"}
    with pytest.raises(StorageError, match=f"redirects more than {MAX_REDIRECTS} times"):
        HttpStore(f"{server.url}/model", retry=BRIEF).get("a")
    assert len(server.requests) == MAX_REDIRECTS + 1


def test_a_server_that_sends_more_than_was_asked_for(server: HttpFiles) -> None:
    server.files = {"model/a": bytes(1 << 20)}
    with pytest.raises(StorageError, match="sends more than 1000 bytes"):
        HttpStore(f"{server.url}/model", retry=BRIEF).get("a", 1000)


@pytest.mark.sample(1)
@pytest.mark.parametrize("stalls", ["head", "body", "nothing"])
def test_a_server_that_does_not_answer_in_time(server: HttpFiles, monkeypatch: pytest.MonkeyPatch, stalls: str) -> None:
    """Nothing, or a byte at a time, so that each wait is short."""
    monkeypatch.setattr(http_connections, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(http_store, "BODY_SECONDS", 0.2)
    server.files = {"model/a": b"abc"}
    if stalls == "nothing":
        server.delay = 1.0
    else:
        server.drips = stalls
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"cannot be reached.* \(tried 4 times\)"):
        HttpStore(f"{server.url}/model", retry=BRIEF).get("a")
    server.drips = ""
    assert time.monotonic() - began < 20


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(StorageError, match=r"cannot be reached: Connection refused \(tried 4 times\)$"):
        HttpStore("http://127.0.0.1:9/model", retry=BRIEF).get("a")


def test_throttled_requests_are_repeated(server: HttpFiles) -> None:
    server.files = {"model/a": b"abc"}
    server.faults = [(503, b""), (429, b""), (0, b"")]
    assert HttpStore(f"{server.url}/model", retry=BRIEF).get("a") == b"abc"
    assert len(server.requests) == 4


@pytest.mark.parametrize("stated", ["2", "4", "-1", "x", "9" * 30])
def test_a_length_that_is_not_that_of_the_body(server: HttpFiles, stated: str) -> None:
    server.files = {"model/a": b"abc"}
    server.lengths = {"model/a": stated}
    store = HttpStore(f"{server.url}/model", retry=BRIEF)
    if stated == "2":
        # What is left is no part of it.
        assert store.get("a") == b"ab"
        return
    with pytest.raises(StorageError):
        store.get("a")


@pytest.mark.parametrize("status", [204, 206, 304, 400, 403, 412, 416, 451])
def test_an_answer_that_is_no_file(server: HttpFiles, status: int) -> None:
    server.always = (status, b"")
    store = HttpStore(f"{server.url}/model", retry=BRIEF)
    for ask in (lambda: store.get("a"), lambda: store.find("a")):
        with pytest.raises(StorageError, match=f"the server answered {status}"):
            ask()
    assert len(server.requests) == 2


def test_connections_are_kept(server: HttpFiles, directory: HttpStore) -> None:
    files = directory.files()
    for _ in range(5):
        directory.read_into(files[0], 0, memoryview(bytearray(2)))
        directory.get("config.json")
    assert server.connections == 1


def test_a_host_that_is_none() -> None:
    with pytest.raises(StorageError, match="its host is none"):
        HttpStore(f"http://{'a' * 300}/model", retry=BRIEF).get("a")


def test_a_server_without_tls(server: HttpFiles) -> None:
    with pytest.raises(StorageError, match="no connection by TLS"):
        HttpStore(server.url.replace("http:", "https:"), retry=BRIEF).get("a")
