"""Writes a file of a directory: under another name first, locked, and durable before it has its own.

Files are locked with flock, which the kernel releases when the process ends.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread

from requant.checkpoint.storage.store import FileWriter, storage_errors
from requant.errors import DestinationError, StorageError

# Through no link. A FIFO of that name does not wait for its other end.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_TRIES = 1000


class LockedError(Exception):
    """Another process has locked the file. `holder`: what the file says of it."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


@contextmanager
def locked(folder: int, name: str, directory: Path, *, shared: bool) -> Iterator[None]:
    """Hold the lock, alone or with others that share it. Whoever holds it alone removes the file at the end.

    folder: a descriptor of the directory. directory: its path, for messages.
    Raises DestinationError where another process holds it, StorageError where the file system has no locks.
    """
    try:
        with storage_errors("write", directory / name):
            descriptor = open_locked(folder, name, shared=shared)
    except LockedError as error:
        by = f" ({error.holder})" if error.holder else ""
        raise DestinationError(
            f"another run writes to {directory}{by}: wait until it has finished", busy=True
        ) from None
    try:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            if not shared:
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        if not shared:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
        os.close(descriptor)


def open_locked(folder: int, name: str, *, shared: bool = False) -> int:
    """Return a descriptor of a file in a folder, created if needed and locked.

    Raises LockedError, OSError: ENXIO for what is not a regular file; StorageError where the file system has no locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    for _ in range(_MAX_TRIES):
        descriptor = os.open(name, _FLAGS, 0o666, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
            if status.st_nlink > 1:
                # A hard link to another file, which is not to be written.
                os.unlink(name, dir_fd=folder)
            else:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                # Whoever held it before may have renamed or removed the file meanwhile.
                if is_same(descriptor, folder, name):
                    return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 300, 0).decode(errors="replace")
            os.close(descriptor)
            raise LockedError(holder) from None
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK):
                raise StorageError(
                    "the file system of the destination has no locks (flock): choose a directory on another one"
                ) from error
            raise
        os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def is_same(descriptor: int, folder: int, name: str) -> bool:
    """Return whether an open file has this name in the folder. Raises OSError."""
    return os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False))


PART = ".part"
Folder = tuple[int, str]
"""A descriptor of a folder, and the name of a file in it."""
_HASHED_AT_ONCE = 1 << 20
# Where writing would fail as well.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        self._kernel_copies = hasattr(os, "copy_file_range")
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

    def copy(self, offset: int, source: int, begin: int, size: int) -> bool:
        """Have the kernel copy bytes of a file; where the file system can share blocks (reflinks), it shares them.

        source: a descriptor. False: the kernel has not copied all of them, as between file systems, and what it has is
        to be written over.
        """
        if not self._kernel_copies:
            return False
        left = size
        with storage_errors("write", self._part, file=self._name):
            while left:
                at = size - left
                try:
                    copied = os.copy_file_range(source, self._descriptor, left, begin + at, offset + at)
                except OSError as error:
                    if error.errno in _FULL:
                        raise
                    # Not between these files, or not on this kernel. If it is a fault of the disk, reading will say so.
                    copied = 0
                if not copied:
                    self._kernel_copies = False
                    return False
                left -= copied
        with self._lock:
            self._written += size
        return True

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
