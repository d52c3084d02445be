"""The sockets on which the service listens: bound before anything can connect, to an address or to a path."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

BACKLOG = 2048
"""How many connections the system keeps until they are accepted."""


class Port(IntEnum):
    """What a socket is for."""

    HTTP = 1
    MONITORING = 2
    GRPC = 3


class CannotListenError(Exception):
    """The service cannot listen where a setting says."""

    def __init__(self, setting: str, where: str, error: OSError) -> None:
        super().__init__(f"{setting}: cannot listen on {where}: {error.strerror or error}.")


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of a host. Raise OSError if one of them, or all, cannot be used."""
    bound: list[socket.socket] = []
    failure: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ):
            try:
                made = socket.socket(family, kind, protocol)
            except OSError as error:  # a system without IPv6 may still have names for it
                failure = error
                continue
            bound.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
    except BaseException:
        for each in bound:
            each.close()
        raise
    if not bound:
        raise failure or OSError(errno.EADDRNOTAVAIL, "the host has no address")
    return bound


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
    status = path.lstat()
    return status.st_dev, status.st_ino


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
