"""A directory of an HTTP server, to be read by ranges. HTTP knows no listing: files are asked for by name."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from requant.checkpoint.safetensors.reader import INDEX, parse_index
from requant.checkpoint.storage.remote_store import CONNECTIONS, RETRY, RemoteStore
from requant.checkpoint.storage.store import MAX_BYTES_OF_SMALL_FILE, FileWriter, StoredFile
from requant.checkpoint.storage.urls import HTTP_SCHEMES, lies_below, parts_of_url, url_without_secrets
from requant.errors import SafetensorsError, StorageError, excerpt
from requant.errors.cancellation import check_cancelled

if TYPE_CHECKING:
    from obstore.store import RetryConfig
    from urllib3 import BaseHTTPResponse, PoolManager


MAX_SHARDS = 10_000
# What the repositories of models on Hugging Face consist of, beside the files that the index names.
NAMES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "LICENSE",
    "merges.txt",
    "model.safetensors",
    INDEX,
    "preprocessor_config.json",
    "processor_config.json",
    "README.md",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


def names_in_http_directory(get: Callable[[str], bytes | None]) -> set[str]:
    """Return the names to ask for: `NAMES`, and the files of the index, which `get` reads. Raises StorageError."""
    index = get(INDEX)
    if index is None:
        return set(NAMES)
    try:
        shards = set(parse_index(index).values())
    except SafetensorsError as error:
        raise StorageError(f"{INDEX} has no weight_map that names the shards: {error.detail}", file=INDEX) from error
    if len(shards) > MAX_SHARDS:
        raise StorageError(f"{INDEX} names {len(shards)} shards; expected at most {MAX_SHARDS}", file=INDEX)
    # What is printable has no halves of surrogate pairs, which are not in URLs.
    if not all(name and name.isprintable() and "/" not in name and name not in (".", "..") for name in shards):
        raise StorageError(f"{INDEX} names shards that are not files of this directory", file=INDEX)
    return {*NAMES, *shards}


MAX_REDIRECTS = 5
CONNECT_SECONDS = 5.0
BODY_SECONDS = 30.0
"""Of a body: at most 4 MiB, unless it is an index."""
_PIECE = 256 << 10
_REDIRECTS = (301, 302, 303, 307, 308)
_MISSING = (404, 410)
_CHANGED = (412, 416)
_TRIED_AGAIN = (429, 500, 502, 503, 504)
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", re.ASCII)


class HttpStore(RemoteStore):
    """A directory by its URL."""

    def __init__(self, url: str, *, below: str | None = None, retry: RetryConfig = RETRY) -> None:
        """Ask nothing of the server yet.

        below: the URL below which redirects have to stay. None: they lead anywhere, but not from HTTPS to HTTP. Raises
        StorageError for what cannot be a URL, and where urllib3 is not installed.
        """
        parts = url_without_secrets(url)
        super().__init__(url)
        self._below, self._retry = below, retry
        self._connections = _connections(url, parts.hostname or "")

    def files(self) -> tuple[StoredFile, ...]:
        files = tuple(file for file in map(self.find, sorted(names_in_http_directory(self.get))) if file)
        if not files:
            raise StorageError(f"{self.url} has no model: neither config.json nor model.safetensors exists")
        return files

    def find(self, name: str) -> StoredFile | None:
        answer = self._answer("HEAD", name, expected=(200, *_MISSING))
        if answer.status in _MISSING:
            return None
        length = answer.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(length):
            raise self._error(name, "the server does not state its length")
        return StoredFile(name, int(length), _version(answer.headers))

    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        answer = self._answer("GET", name, expected=(200, *_MISSING), max_bytes=max_bytes)
        return None if answer.status in _MISSING else answer.body

    def _fetch(self, file: StoredFile, begin: int, end: int) -> memoryview:
        answer = self._answer(
            "GET",
            file.name,
            {"Range": f"bytes={begin}-{end - 1}"},
            expected=(206, *_MISSING, *_CHANGED),
            max_bytes=end - begin,
        )
        stated = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        same = stated is not None and tuple(map(int, stated.groups())) == (begin, end - 1, file.size)
        if not same or len(answer.body) != end - begin or _version(answer.headers) != file.version:
            raise self._changed(file)
        return memoryview(answer.body)

    def _answer(
        self,
        method: str,
        name: str,
        headers: Mapping[str, str] | None = None,
        *,
        expected: tuple[int, ...],
        max_bytes: int = 0,
    ) -> _Answer:
        """Return an answer of one of the statuses that are expected. Raises StorageError."""
        from urllib3.exceptions import HTTPError, SSLError

        tries, limit = 0, time.monotonic() + self._retry["retry_timeout"].total_seconds()
        while True:
            check_cancelled()
            tries += 1
            try:
                answer = self._request(method, name, {"Accept-Encoding": "identity", **(headers or {})}, max_bytes)
            except ValueError:
                raise self._error(name, "its host is none") from None
            except SSLError as error:
                raise self._error(name, f"no connection by TLS: {excerpt(str(error))}") from None
            except (HTTPError, HTTPException, OSError) as error:
                reason = f"the server cannot be reached{_system_reason(error)}"
            else:
                if answer.status in expected:
                    return answer
                reason = f"the server answered {answer.status} {excerpt(answer.reason)}".rstrip()
                if answer.status not in _TRIED_AGAIN:
                    raise self._error(name, reason)
            if tries > self._retry["max_retries"] or time.monotonic() > limit:
                raise self._error(name, f"{reason} (tried {tries} times)")
            backoff = self._retry["backoff"]
            wait = backoff["init_backoff"].total_seconds() * backoff["base"] ** (tries - 1)
            time.sleep(random.uniform(0, min(wait, backoff["max_backoff"].total_seconds())))

    def _request(self, method: str, name: str, headers: Mapping[str, str], max_bytes: int) -> _Answer:
        """Ask once, and again wherever a redirect leads. Raises StorageError for one that leads out, urllib3's
        errors.
        """
        from urllib3 import Timeout

        url = f"{self.url}/{quote(name)}"
        for _ in range(MAX_REDIRECTS + 1):
            timeout = Timeout(connect=CONNECT_SECONDS, read=BODY_SECONDS)
            response = self._connections.request(
                method, url, headers=headers, redirect=False, retries=False, preload_content=False, timeout=timeout
            )
            try:
                if response.status == 200 and "Range" in headers:
                    raise self._error(name, "Range request not supported by the server")
                if response.status not in _REDIRECTS:
                    if method == "HEAD":
                        response.drain_conn()
                    read = method != "HEAD" and response.status < 300
                    body = self._body(response, name, max_bytes) if read else b""
                    return _Answer(response.status, response.reason or "", response.headers, body)
                url = self._redirect_target(name, url, response.headers.get("Location", ""))
            finally:
                # What is left of a body is not waited for.
                response.close()
        raise self._error(name, f"the server redirects more than {MAX_REDIRECTS} times")

    def _body(self, response: BaseHTTPResponse, name: str, max_bytes: int) -> bytes:
        body, end = bytearray(), time.monotonic() + BODY_SECONDS
        while piece := response.read1(_PIECE, decode_content=False):
            body += piece
            if len(body) > max_bytes:
                raise self._error(name, f"the server sends more than {max_bytes} bytes")
            if time.monotonic() > end:
                raise TimeoutError("timed out")
        if response.headers.get("Content-Length", str(len(body))) != str(len(body)):
            raise self._error(name, "the server sends another number of bytes than it states")
        return bytes(body)

    def _redirect_target(self, name: str, url: str, location: str) -> str:
        """Return where a redirect leads. Raises StorageError for a place that it must not lead to."""
        try:
            target = urljoin(url, location)
            scheme = parts_of_url(target).scheme
        except (StorageError, ValueError):
            raise self._error(name, "the server redirects to what is not a URL") from None
        if self._below is not None and not lies_below(target, self._below):
            raise self._error(
                name, f"the server redirects to a place that is not below the configured root {self._below}"
            )
        if scheme not in HTTP_SCHEMES or (urlsplit(url).scheme, scheme) == ("https", "http"):
            raise self._error(name, "the server redirects to a URL that is neither HTTPS nor what it redirects from")
        return target

    def _error(self, name: str, reason: str) -> StorageError:
        return StorageError(f"{self.url}/{excerpt(name)} cannot be read: {reason}", file=name)

    def create(self, name: str, size: int) -> FileWriter:
        self._refuse_to_write(name)

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        self._refuse_to_write(name)

    def remove(self, name: str) -> None:
        self._refuse_to_write(name)

    def lock(self, *, shared: bool = False) -> AbstractContextManager[None]:
        self._refuse_to_write()

    def _refuse_to_write(self, name: str | None = None) -> NoReturn:
        place = f"{self.url}/{excerpt(name)}" if name else self.url
        raise StorageError(f"{place} cannot be written: HTTP is read-only", file=name)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


def _version(headers: Mapping[str, str]) -> str:
    return headers.get("ETag") or headers.get("Last-Modified") or ""


def _connections(url: str, host: str) -> PoolManager:
    """Return urllib3's connections, through the proxy that the environment names. Raises StorageError."""
    try:
        import urllib3

        from requant.checkpoint.storage.http_connections import POOLS
    except ModuleNotFoundError as error:
        raise StorageError(
            f"{url}: HTTP servers need urllib3: run pip install '.[stores]' in the repository"
        ) from error
    proxy = None if proxy_bypass(host) else getproxies().get(urlsplit(url).scheme)
    try:
        pools = (
            urllib3.PoolManager(maxsize=CONNECTIONS)
            if proxy is None
            else urllib3.ProxyManager(proxy, maxsize=CONNECTIONS)
        )
    except (urllib3.exceptions.HTTPError, ValueError):
        raise StorageError(f"{url} cannot be opened: the proxy in the environment is not a URL") from None
    pools.pool_classes_by_scheme = POOLS
    return pools


def _system_reason(error: BaseException | None) -> str:
    """Return what the operating system says of a connection, without addresses."""
    while error is not None:
        if isinstance(error, TimeoutError):
            break
        if isinstance(error, OSError) and error.strerror:
            return f": {excerpt(error.strerror)}"
        error = error.__cause__ or error.__context__
    return ", or did not answer in time"
