"""A prefix of an object store: S3, Google Cloud Storage, Azure Blob Storage.

Read by ranges and written by multipart uploads, through obstore, which is imported when the first store is opened. An
object store takes the parts of an object in order only, while tensors are finished in any order: a file is written into
a local one without a name, and uploaded in order when it is whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from requant.checkpoint.storage.remote_store import RETRY, RemoteStore
from requant.checkpoint.storage.store import MAX_BYTES_OF_SMALL_FILE, FileWriter, StoredFile
from requant.checkpoint.storage.urls import url_without_secrets
from requant.errors import StorageError, excerpt
from requant.errors.cancellation import cancellation_check, check_cancelled, checked

if TYPE_CHECKING:
    from obstore import Bytes, GetOptions, GetResult, ObjectMeta
    from obstore.store import AzureStore, GCSStore, MemoryStore, RetryConfig, S3Store

    Client = S3Store | GCSStore | AzureStore | MemoryStore

# obstore's texts have the request's whole URL, which may carry a signature, and Rust's view of the error. Of them are
# taken only the status, and the code and the message of S3's, Azure's and Google's XML.
_STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,400})")
_ATTEMPTS = re.compile(r"after (\d+) retries")
_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_NO_CERTIFICATES = "No CA certificates were loaded"
# What the operating system says of a connection.
_SYSTEM_REASON = re.compile(r'message: "([A-Z][\w ,-]{1,80})"')
# Reasons that obstore states without a status.
_STATED = re.compile(
    r"Generic \w+ error: (?!Error performing)(?P<sentence>[^\n]+)"
    r"|Operation not supported: (?P<operation>[^\n]+)"
    r"|HTTP error: (?P<connection>[^\n]+)"
)
_HINTS = {
    "401": "check the credentials in the environment",
    "403": "check the credentials in the environment and the permissions of their account",
    "429": "run fewer workers at a time",
    "503": "run fewer workers at a time",
}


@contextmanager
def storage_errors(
    url: str, action: str, name: str | None = None, *, expected: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise StorageError for what obstore raises: `url`, or the file `name` below it, and `action` ("cannot be read").

    Errors of the classes `expected` are left as they are, except for FileNotFoundError where it is the bucket that is
    missing.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        text = str(error)
        code = _CODE.search(text)
        if isinstance(error, expected) and not (code and code.group(1) in _MISSING_BUCKET):
            raise
        place = f"{url}/{name}" if name else url
        # The error itself, with all that is left out here, does not go along.
        raise StorageError(f"{place} {action}: {_reason(text)}", file=name) from None


def _reason(text: str) -> str:
    """Return the actionable part of the text of an obstore error."""
    status, code, message, attempts = (each.search(text) for each in (_STATUS, _CODE, _MESSAGE, _ATTEMPTS))
    tries = f" (tried {int(attempts.group(1)) + 1} times)" if attempts else ""
    if status:
        details = ": ".join(excerpt(found.group(1)) for found in (code, message) if found)
        hint = _HINTS.get(status.group(1)[:3])
        answer = f"the server answered {status.group(1).strip()}" + (f", {details}" if details else "")
        return answer + tries + (f"; {hint}" if hint else "")
    if _NO_CERTIFICATES in text:
        return "there are no CA certificates on this machine: install ca-certificates, or set SSL_CERT_FILE"
    stated = _STATED.search(text)
    if stated is None:
        return f"the server gave no reason{tries}"
    if stated["connection"]:
        system = _SYSTEM_REASON.search(text)
        return "the server cannot be reached" + (f": {system[1]}" if system else ", or did not answer in time") + tries
    return excerpt(stated["sentence"] or stated["operation"]) + tries


def client_of(url: str, retry: RetryConfig) -> Client:
    """Return a client. Raises StorageError."""
    parts = url_without_secrets(url)
    try:
        from obstore import store as clients
    except ModuleNotFoundError as error:
        raise StorageError(
            f"{url}: object stores need obstore: run pip install '.[stores]' in the repository"
        ) from error

    bucket, prefix = parts.netloc, parts.path.strip("/") or None
    with storage_errors(url, "cannot be opened"):
        if parts.scheme == "s3":
            return clients.S3Store(bucket, prefix=prefix, retry_config=retry)
        if parts.scheme == "gs":
            return clients.GCSStore(bucket, prefix=prefix, retry_config=retry)
        return clients.AzureStore(bucket, prefix=prefix, retry_config=retry)


# The parts of an upload, of which up to three are under way while the next one is read: 32 MiB in memory.
PART = 8 << 20
CONCURRENT_PARTS = 3
# S3 takes 10,000 parts.
MAX_PARTS = 10_000


class SpooledUpload(FileWriter):
    """An object of `size` bytes. Its spool file lies in the directory for temporary files (`TMPDIR`).

    The spool file has no name, so that nothing is left of it when the process dies. The object appears whole or not at
    all. An upload that fails is aborted; one whose process is killed stays in the store, invisible, until a lifecycle
    rule of the bucket removes it.
    """

    def __init__(self, client: Client, url: str, name: str, size: int) -> None:
        self._client = client
        self._url = url
        self._name = name
        self._size = size
        self._written = 0
        self._lock = threading.Lock()
        try:
            self._spool = tempfile.TemporaryFile(prefix="requant-", buffering=0)  # noqa: SIM115  # closed by discard
        except OSError as error:
            raise self._spool_error(error) from error
        try:
            if size:
                # A full disk is noticed now, and not after an hour.
                os.posix_fallocate(self._spool.fileno(), 0, size)
        except OSError as error:
            self._spool.close()
            raise self._spool_error(error) from error

    def _spool_error(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self._url}/{self._name} cannot be prepared: its {self._size} bytes are first written into a file in "
            f"{tempfile.gettempdir()} ({error.strerror}); set TMPDIR to a directory with that much space",
            file=self._name,
        )

    def write(self, offset: int, data: bytes | memoryview) -> None:
        left = memoryview(data).cast("B")
        if offset + len(left) > self._size:
            raise StorageError(
                f"{self._url}/{self._name}: bytes up to {offset + len(left)} were written; expected {self._size}",
                file=self._name,
            )
        with self._lock:
            self._written += len(left)
        try:
            while left:
                count = os.pwrite(self._spool.fileno(), left, offset)
                left, offset = left[count:], offset + count
        except OSError as error:
            raise self._spool_error(error) from error

    def commit(self) -> str:
        import obstore

        if self._written != self._size:
            raise StorageError(
                f"{self._url}/{self._name}: {self._written} of {self._size} bytes were written", file=self._name
            )
        digest = hashlib.sha256()
        part = max(PART, -(-self._size // MAX_PARTS))
        with storage_errors(self._url, "cannot be written", self._name):
            sent = obstore.put(
                self._client,
                self._name,
                self._parts(part, digest),
                use_multipart=self._size > part,
                chunk_size=part,
                max_concurrency=CONCURRENT_PARTS,
            )
            stored = obstore.head(self._client, self._name)
            # Two workers may make the same output. What the other one has just written has to be the same bytes.
            same = stored["size"] == self._size and (
                stored["e_tag"] == sent["e_tag"] or self._stored_digest(part) == digest.hexdigest()
            )
        if not same:
            raise StorageError(
                f"{self._url}/{self._name} is not what was uploaded: another program is writing to it",
                file=self._name,
            )
        return digest.hexdigest()

    def _stored_digest(self, length: int) -> str:
        import obstore

        digest = hashlib.sha256()
        for offset in range(0, self._size, length):
            piece = (offset, min(offset + length, self._size))
            digest.update(obstore.get(self._client, self._name, options={"range": piece}).bytes())
        return digest.hexdigest()

    def _parts(self, length: int, digest: hashlib._Hash) -> Iterator[bytes]:
        """Yield the spool file in pieces. An error here aborts the upload."""
        check_cancelled = cancellation_check.get()
        for offset in range(0, self._size, length):
            check_cancelled()
            data = os.pread(self._spool.fileno(), length, offset)
            if len(data) != min(length, self._size - offset):
                raise OSError("the spool file was truncated")
            digest.update(data)
            yield data

    def discard(self) -> None:
        self._spool.close()


MAX_FILES = 20_000


def open_object_store(url: str, *, retry: RetryConfig = RETRY) -> ObjectStore:
    """Open `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.

    Credentials, region and endpoint come from the environment variables that obstore reads: `AWS_*`, `GOOGLE_*`,
    `AZURE_*`. Nothing is asked of the server. Raises StorageError where the URL cannot be one, where settings of the
    environment are wrong, and where obstore is not installed.
    """
    return ObjectStore(url, client_of(url, retry))


class ObjectStore(RemoteStore):
    """A store over one of obstore's clients, whose prefix is that of `url`."""

    def __init__(self, url: str, client: Client) -> None:
        super().__init__(url)
        self._client = client

    def files(self) -> tuple[StoredFile, ...]:
        import obstore

        with storage_errors(self.url, "cannot be listed"):
            listed = []
            for chunk in checked(obstore.list(self._client, chunk_size=1000), 1):
                listed += [_stored(each) for each in chunk]
                if len(listed) > MAX_FILES:
                    raise StorageError(
                        f"{self.url} has more than {MAX_FILES} objects; expected the prefix of one model"
                    )
        # Consoles show a folder by an empty object of its name.
        folders = {"", *(str(folder) for file in listed for folder in PurePosixPath(file.name).parents)}
        files = (file for file in listed if file.size or file.name not in folders)
        return tuple(sorted(files, key=lambda file: file.name))

    def find(self, name: str) -> StoredFile | None:
        import obstore

        check_cancelled()
        try:
            with storage_errors(self.url, "cannot be read", name, expected=(FileNotFoundError,)):
                return _stored(obstore.head(self._client, name))
        except FileNotFoundError:
            return None

    def _fetch(self, file: StoredFile, begin: int, end: int) -> memoryview:
        import obstore
        from obstore.exceptions import PreconditionError

        options: GetOptions = {"range": (begin, end), "if_match": file.version}
        missing = (FileNotFoundError, PreconditionError)
        try:
            with storage_errors(self.url, "cannot be read", file.name, expected=missing):
                result = obstore.get(self._client, file.name, options=options)
                if _stored(result.meta) == file and result.range == (begin, end):
                    return memoryview(self._content(result, file.name, end - begin))
        except missing:
            pass
        raise self._changed(file)

    def _content(self, result: GetResult, name: str, size: int) -> bytes | Bytes:
        """Return the body of an answer. Raises StorageError where it has another size than the answer says."""
        parts: list[bytes | Bytes] = []
        received = 0
        for part in result.stream(min_chunk_size=size + 1):
            parts.append(part)
            received += len(part)
            if received > size:
                break
        if received != size:
            more = "more bytes" if received > size else f"{received} bytes"
            raise StorageError(f"{self.url}/{name}: the server sent {more}; expected {size}", file=name)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def create(self, name: str, size: int) -> FileWriter:
        return SpooledUpload(self._client, self.url, name, size)

    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        import obstore

        check_cancelled()
        try:
            with storage_errors(self.url, "cannot be read", name, expected=(FileNotFoundError,)):
                result = obstore.get(self._client, name)
                size = result.meta["size"]
                if size <= max_bytes:
                    return bytes(self._content(result, name, size))
        except FileNotFoundError:
            return None
        raise StorageError(f"{self.url}/{name} has {size} bytes; expected at most {max_bytes}", file=name)

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        mode: Literal["create", "overwrite"] = "create" if only_if_absent else "overwrite"
        try:
            with storage_errors(self.url, "cannot be written", name, expected=(AlreadyExistsError,)):
                obstore.put(self._client, name, data, mode=mode, use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        import obstore

        missing = FileNotFoundError
        with suppress(missing), storage_errors(self.url, "cannot be removed", name, expected=(missing,)):
            obstore.delete(self._client, name)


def _stored(meta: ObjectMeta) -> StoredFile:
    return StoredFile(meta["path"], meta["size"], meta["e_tag"] or meta["last_modified"].isoformat())
