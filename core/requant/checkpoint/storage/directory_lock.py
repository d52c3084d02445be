"""Files that are locked with flock, which the kernel releases when the process ends: the lock of a directory, and files
that are being written."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from requant.checkpoint.storage.operating_system_errors import storage_errors
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
