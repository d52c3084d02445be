"""A file that is written in any order into a local file without a name, and uploaded in order when it is whole.

An object store takes the parts of an object in order only, while tensors are finished in any order.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from requant.checkpoint.storage.object_store_errors import storage_errors
from requant.checkpoint.storage.store import FileWriter
from requant.errors import StorageError
from requant.errors.cancellation import cancellation_check

if TYPE_CHECKING:
    from requant.checkpoint.storage.object_store_client import Client

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
            found = obstore.head(self._client, self._name)
            # Two workers may make the same output. What the other one has just written has to be the same bytes.
            same = found["size"] == self._size and (
                found["e_tag"] == sent["e_tag"] or self._stored_digest(part) == digest.hexdigest()
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
