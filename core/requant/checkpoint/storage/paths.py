"""Opens paths: any, as whoever runs the command may, or only what lies below some directories.

What a path leads to changes when a link takes the place of one of its components, so that a check of the text is out of
date when the path is opened. Below roots, the check and the opening are one: the kernel resolves a path below a
descriptor of the root (openat2, Linux 5.6), or each component is opened below the one before it, without links, which
are read and resolved by hand.
"""

from __future__ import annotations

import ctypes
import errno
import os
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from threading import Lock

LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
"""Flags to open what is only looked at: that neither needs a permission nor has an effect on devices."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY
MAX_LINKS = 40
"""Symbolic links on a path, as many as Linux follows."""
MAX_FOLDERS = 200
"""From a root down to a file. Each is open while a path is resolved by hand."""
MAX_BYTES = 4095
"""Of a path, as of Linux (PATH_MAX)."""

# openat2(2); include/uapi/linux/openat2.h. All architectures have this number but Alpha.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
# The path leads out of the directory, has links that the kernel does not follow, or was changed meanwhile.
_LEFT_TO_WALK = (errno.EXDEV, errno.ELOOP, errno.EAGAIN, errno.EINTR)


class OutsideRootsError(OSError):
    """A path does not lead to a place below a root."""

    def __init__(self) -> None:
        super().__init__(errno.EXDEV, os.strerror(errno.EXDEV))


class Paths:
    """Opens absolute paths, through all links."""

    def open(self, path: str, flags: int) -> int:
        """Return a descriptor, which no other program inherits. Raises OSError."""
        return os.open(path, flags | os.O_CLOEXEC)

    def status(self, path: str) -> os.stat_result:
        """Return what a path leads to. Raises OSError."""
        descriptor = self.open(path, LOOK)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def make_directory(self, path: str) -> None:
        """Create a directory, and its parents, unless it exists. Raises OSError."""
        os.makedirs(path, exist_ok=True)


class PathsBelow(Paths):
    """Opens what lies below some directories, whatever links are put in place meanwhile. Others are EXDEV.

    Links are followed as long as they lead to a place below one of the roots. Roots stay open as long as this object
    exists.
    """

    def __init__(self, roots: Iterable[str]) -> None:
        """roots: absolute paths without links, none below another one."""
        self._roots = tuple(roots)
        self._opened: dict[str, int] = {}
        self._lock = Lock()
        weakref.finalize(self, _close_all, self._opened)

    def open(self, path: str, flags: int) -> int:
        """Return a descriptor of a file or directory. Raises OSError."""
        flags |= os.O_CLOEXEC
        with suppress(OutsideRootsError):
            root = self._root_above(path)
            descriptor = _open_beneath(self.root(root), path[len(root) :].strip("/") or ".", flags)
            if descriptor is not None:
                return descriptor
        walk = _Walk(self, path)
        try:
            return walk.open(flags)
        finally:
            walk.close()

    def make_directory(self, path: str) -> None:
        """Create a directory, and its parents, unless it exists. Raises OSError."""
        place = self._root_above(path)
        os.makedirs(place, exist_ok=True)
        for name in _parts(path[len(place) :]):
            parent = self.open(place, FOLDER)
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=parent)
            finally:
                os.close(parent)
            place = f"{place.rstrip('/')}/{name}"

    def resolve(self, path: str, *, root: bool = False) -> str:
        """Return a path without its links. What does not exist yet stays as it is. `root`: it may be a root itself.

        Raises OSError: EXDEV for a path that does not lead to a place below a root, whether or not it exists.
        """
        walk = _Walk(self, path)
        try:
            return walk.resolve(1 if root else 2)
        finally:
            walk.close()

    def is_root(self, path: str) -> bool:
        return path in self._roots

    def root(self, path: str) -> int:
        """Return the descriptor of a root. Raises OSError."""
        with self._lock:
            if path not in self._opened:
                self._opened[path] = os.open(path, LOOK | os.O_DIRECTORY | os.O_CLOEXEC)
            return self._opened[path]

    def _root_above(self, path: str) -> str:
        for root in self._roots:
            if path == root or path.startswith(f"{root.rstrip('/')}/"):
                return root
        raise OutsideRootsError


class _Walk:
    """A path that is resolved component by component.

    Outside of the roots nothing is opened: only links are read, so that a path may lead out and back, or begin with a
    link to a root.
    """

    def __init__(self, paths: PathsBelow, path: str) -> None:
        if len(os.fsencode(path)) > MAX_BYTES:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        self._paths = paths
        self._left = _parts(path)[::-1]
        self._names: list[str] = []
        """Where the walk is, without links."""
        self._folders: list[int] = []
        """The root and the folders below it down to where the walk is. Outside of all roots there are none."""
        self._links = 0
        self._enter()

    def open(self, flags: int) -> int:
        """Return a descriptor of what the path leads to. Raises OSError."""
        while self._left:
            name = self._next()
            if name is not None and not self._left:
                return os.open(name, flags | os.O_NOFOLLOW, dir_fd=self._folders[-1])
            if name is not None:
                self._descend(name)
        if not self._folders:
            raise OutsideRootsError
        return os.open(".", flags, dir_fd=self._folders[-1])

    def resolve(self, folders: int) -> str:
        """Return the path that this one leads to, of which a part may not exist: of a root at least so many folders,
        itself included. Raises OSError.
        """
        while self._left:
            name = None
            try:
                name = self._next()
                if name is not None:
                    self._descend(name)
            except FileNotFoundError:
                missing = [*([] if name is None else [name]), *reversed(self._left)]
                if not missing:
                    break
                if ".." in missing:
                    raise
                return f"/{'/'.join([*self._names, *missing])}"
        if len(self._folders) < folders:
            raise OutsideRootsError
        return f"/{'/'.join(self._names)}"

    def _next(self) -> str | None:
        """Take the next component. Returns its name if it is to be opened in the last of the folders."""
        name = self._left.pop()
        if name == "..":
            self._ascend()
            return None
        target = self._target(name)
        if target is None and self._folders:
            return name
        if target is None:
            self._names.append(name)
        else:
            self._links += 1
            if self._links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                self.close()
                self._names = []
            self._left += _parts(target)[::-1]
        self._enter()
        return None

    def _target(self, name: str) -> str | None:
        """Return what a link leads to, None for anything else."""
        if not self._folders:
            with suppress(OSError):
                return os.readlink(f"/{'/'.join([*self._names, name])}")
            return None
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _enter(self) -> None:
        path = f"/{'/'.join(self._names)}"
        if not self._folders and self._paths.is_root(path):
            self._folders = [self._paths.root(path)]

    def _descend(self, name: str) -> None:
        if len(self._folders) > MAX_FOLDERS:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        flags = LOOK | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._folders.append(os.open(name, flags, dir_fd=self._folders[-1]))
        self._names.append(name)

    def _ascend(self) -> None:
        if not self._names:
            return
        self._names.pop()
        if self._folders:
            left = self._folders.pop()
            # The root stays open.
            if self._folders:
                os.close(left)

    def close(self) -> None:
        """Close the folders."""
        for folder in self._folders[1:]:
            os.close(folder)
        self._folders = []


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _close_all(opened: dict[str, int]) -> None:
    while opened:
        os.close(opened.popitem()[1])


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _open_beneath(directory: int, path: str, flags: int) -> int | None:
    """Return what the kernel opens below a directory, through links that do not leave it; None if it cannot tell."""
    if not _kernel_opens_beneath():
        return None
    descriptor = _openat2(directory, path, flags)
    if descriptor < 0:
        code = ctypes.get_errno()
        if code in _LEFT_TO_WALK:
            return None
        raise OSError(code, os.strerror(code))
    return descriptor


def _openat2(directory: int, path: str, flags: int) -> int:
    if "\0" in path:
        raise ValueError("embedded null character")
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    library = _library()
    return int(library.syscall(_OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _kernel_opens_beneath() -> bool:
    """Return whether there is openat2. Older kernels do not have it, and sandboxes may refuse it."""
    if os.uname().sysname != "Linux":
        return False
    directory = os.open("/", LOOK | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = _openat2(directory, ".", LOOK | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(directory)
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True
