"""The lock of a directory: a file that is locked with flock, which the kernel releases when the process ends."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.checkpoint.storage.operating_system_errors import storage_errors
from core.errors import DestinationError, StorageError


@contextmanager
def locked(path: Path, *, shared: bool) -> Iterator[None]:
    """Hold the lock, alone or with others that share it. Whoever holds it alone removes the file at the end.

    Raises DestinationError where another process holds it, StorageError where the file system has no locks.
    """
    descriptor = _acquired(path, shared=shared)
    try:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            if not shared:
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        if not shared:
            with suppress(OSError):
                os.unlink(path)
        os.close(descriptor)


def _acquired(path: Path, *, shared: bool) -> int:
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        with storage_errors("write", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            # Whoever held it before may have removed the file meanwhile.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 300, 0).decode(errors="replace")
            os.close(descriptor)
            by = f" ({holder})" if holder else ""
            detail = f"another run writes to {path.parent}{by}: wait until it has finished"
            raise DestinationError(detail, busy=True) from None
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK):
                detail = f"the file system of {path.parent} has no locks (flock): choose a directory on another one"
                raise StorageError(detail) from error
            raise
        os.close(descriptor)
