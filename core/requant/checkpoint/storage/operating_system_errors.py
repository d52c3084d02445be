"""Errors of the operating system, as messages that say what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from requant.errors import StorageError

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space and run it again; finished files are kept",
    errno.EDQUOT: "the disk quota is exceeded: free some space and run it again; finished files are kept",
    errno.EFBIG: "the file would be larger than the file system or the limit of the process (ulimit -f) allows",
    errno.EROFS: "the file system is mounted read-only: choose another place, or mount it for writing",
    errno.EACCES: "permission denied: check the owner and mode of the file and its parent directories",
    errno.EPERM: "permission denied: check the owner and mode of the file and its parent directories",
    errno.ENOENT: "it does not exist",
    errno.EEXIST: "a file exists where a directory is expected",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EISDIR: "it is a directory; expected a file",
    errno.EBUSY: "other programs keep replacing it: wait until they have finished",
    errno.ENXIO: "it is a FIFO, a socket or a device; expected a regular file",
    errno.EXDEV: "a symbolic link on its path leads out of the configured roots",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENAMETOOLONG: "the name is longer, or has more folders, than the system allows",
    errno.EMFILE: "the process has too many open files (ulimit -n)",
    errno.EIO: "input/output error: check the disk or the network",
    errno.ESTALE: "stale file handle of a network file system: mount it again",
}


@contextmanager
def storage_errors(action: str, path: object, *, file: str | None = None) -> Iterator[None]:
    """Turn OSError into StorageError: 'cannot <action> <path>: <what to do>'."""
    try:
        yield
    except OSError as error:
        reason = _ADVICE.get(error.errno or 0, error.strerror or type(error).__name__)
        raise StorageError(f"cannot {action} {path}: {reason}", file=file) from error
