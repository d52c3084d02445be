"""The unix socket that a service listens on: made with its mode, never in the place of anything that is in use."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

MODE = 0o660
"""The service's user and its group may connect."""


class UnixSocket:
    """A bound unix socket, and its file. Nobody can connect before something listens.

    A socket that an ended process has left is replaced. Raises OSError if the path names anything else, or a socket
    that a process listens on, or if the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        _remove_stale(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.bind(os.fspath(path))
            path.chmod(MODE)
        except OSError as error:
            self.socket.close()
            # A path that is too long has no error number.
            raise OSError(error.errno, error.strerror or str(error)) from None
        self._file = _identity(path)

    def unlink(self) -> None:
        """Remove the file, unless another has taken its place."""
        with suppress(FileNotFoundError):
            if _identity(self._path) == self._file:
                self._path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "it exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # With its backlog full, a listening socket would keep a blocking one waiting.
        probe.setblocking(False)
        refused = probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED
    if not refused:
        raise OSError(errno.EADDRINUSE, "another process listens there")
    path.unlink(missing_ok=True)
