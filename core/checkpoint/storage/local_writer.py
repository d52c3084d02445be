"""Writes a file of a directory: under another name first, durable before it has its own."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

from core.checkpoint.storage.operating_system_errors import storage_errors
from core.checkpoint.storage.store import FileWriter
from core.errors import DestinationError, StorageError

PART = ".part"
_HASHED_AT_ONCE = 1 << 20


class LocalWriter(FileWriter):
    """Writes `<name>.part`, which is locked until it is committed or discarded.

    A `.part` that a killed process left is written anew.
    """

    def __init__(self, path: Path, name: str, size: int) -> None:
        self._path, self._name, self._size = path, name, size
        self._written, self._lock = 0, Lock()
        self._part = path.with_name(path.name + PART)
        self._descriptor = _open_locked(self._part, name)
        try:
            os.ftruncate(self._descriptor, 0)
            os.ftruncate(self._descriptor, size)
        except BaseException:
            self.discard()
            raise

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write all of `data` at `offset`."""
        with storage_errors("write", self._part, file=self._name):
            write_fully(self._descriptor, offset, memoryview(data))
        with self._lock:
            self._written += len(data)

    def commit(self) -> str:
        """Write it to the disk, rename it, and write the directory. The SHA-256 is computed meanwhile."""
        with storage_errors("write", self._path, file=self._name):
            size = os.fstat(self._descriptor).st_size
            if size != self._size:
                raise StorageError(f"{self._part} has {size} bytes, not {self._size}", file=self._name)
            if self._written != size:
                # What was not written would be zeros.
                raise StorageError(f"{self._written} of {size} bytes of {self._part} were written", file=self._name)
            # An fsync that failed is not repeated: the kernel has given up those pages and the next one succeeds.
            failures: list[OSError] = []
            syncing = Thread(target=_sync, args=(self._descriptor, failures))
            syncing.start()
            try:
                digest = self._digest()
            finally:
                syncing.join()
            if failures:
                raise failures[0]
            os.rename(self._part, self._path)
            sync_directory(self._path.parent)
            self._close()
        return digest

    def discard(self) -> None:
        """Remove what was written, unless it was committed."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.unlink(self._part)
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def _digest(self) -> str:
        buffer = memoryview(bytearray(_HASHED_AT_ONCE))
        digest, offset = hashlib.sha256(), 0
        while read := os.preadv(self._descriptor, [buffer], offset):
            digest.update(buffer[:read])
            offset += read
        if offset != self._size:
            raise StorageError(f"{self._part} ends at byte {offset} of {self._size}", file=self._name)
        return digest.hexdigest()


def write_fully(descriptor: int, offset: int, data: memoryview) -> None:
    """Write all of `data`, however much of it the system takes at a time."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        if not written:
            raise OSError(errno.EIO, "the system takes no more bytes")
        offset += written
        data = data[written:]


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. Nothing happens on file systems that have no such operation."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _sync(descriptor: int, failures: list[OSError]) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        failures.append(error)


def _open_locked(part: Path, name: str) -> int:
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it before may have given it its name meanwhile: then it is not this file any more.
            if os.path.samestat(os.fstat(descriptor), os.stat(part)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            detail = f"another process writes {part}: wait until it has finished"
            raise DestinationError(detail, busy=True, file=name) from None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
