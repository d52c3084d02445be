"""Writes a file of a directory: under another name first, durable before it has its own."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Lock, Thread

from requant.checkpoint.storage.directory_lock import LockedError, is_same, open_locked
from requant.checkpoint.storage.operating_system_errors import storage_errors
from requant.checkpoint.storage.store import FileWriter
from requant.errors import DestinationError, StorageError

PART = ".part"
Folder = tuple[int, str]
"""A descriptor of a folder, and the name of a file in it."""
_HASHED_AT_ONCE = 1 << 20


class LocalWriter(FileWriter):
    """Writes `<name>.part`, which is locked until it is committed or discarded.

    A `.part` that a killed process left is written anew.
    """

    def __init__(
        self, path: str, name: str, size: int, folder: int, reopened: Callable[[], AbstractContextManager[Folder]]
    ) -> None:
        """path: of the file, for messages. folder: a descriptor of its folder. reopened: opens that again."""
        self._path, self._name, self._size = path, name, size
        self._written, self._lock = 0, Lock()
        self._part = path + PART
        self._reopened = reopened
        try:
            self._descriptor = open_locked(folder, os.path.basename(self._part))
        except LockedError:
            detail = f"another process writes {self._part}: wait until it has finished"
            raise DestinationError(detail, busy=True, file=name) from None
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
            with self._reopened() as (folder, last):
                part = last + PART
                if not is_same(self._descriptor, folder, part):
                    raise StorageError(f"{self._part} was replaced while it was written", file=self._name)
                os.rename(part, last, src_dir_fd=folder, dst_dir_fd=folder)
                sync_directory(folder)
            self._close()
        return digest

    def discard(self) -> None:
        """Remove what was written, unless it was committed."""
        if self._descriptor >= 0:
            with suppress(OSError), self._reopened() as (folder, last):
                if is_same(self._descriptor, folder, last + PART):
                    os.unlink(last + PART, dir_fd=folder)
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


def sync_directory(directory: int) -> None:
    """Make the names in a directory durable. Nothing happens on file systems that have no such operation."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _sync(descriptor: int, failures: list[OSError]) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        failures.append(error)
