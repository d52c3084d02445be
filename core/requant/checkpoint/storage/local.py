"""A checkpoint in a directory."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

from requant.checkpoint.storage.local_writer import PART, LocalWriter, locked, sync_directory, write_fully
from requant.checkpoint.storage.paths import FOLDER, LOOK, OutsideRootsError, Paths
from requant.checkpoint.storage.store import MAX_BYTES_OF_SMALL_FILE, FileWriter, Store, StoredFile, storage_errors
from requant.errors import DestinationError, SourceChangedError, StorageError, excerpt
from requant.errors.cancellation import checked

MAX_FOLDERS = 20_000
"""Two links to the next folder in each of some dozens of folders are more paths than can be listed."""
MAX_DEPTH = 100
MAX_ENTRIES = 200_000
LOCK_FILE = ".requant.lock"
COPIED_AT_ONCE = 16 << 20
READ_AHEAD = 16 << 20
"""Bytes that the system reads ahead from the disk while earlier ones are processed."""

_MAX_TRIES = 100
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""A FIFO is opened without waiting for its other end; a regular file does not know the difference."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
Made = TypeVar("Made")

_numbers = count()


class LocalStore(Store):
    """A directory. Files are read and written with positions, never mapped: a file that shrinks is an error.

    `version` of a file is its modification time in ns and its size. Symbolic links are followed when files are read, as
    far as `paths` does: in the cache of Hugging Face all files are links. What is written goes through no link below
    the directory. Only regular files are read.
    """

    copy_size = COPIED_AT_ONCE

    def __init__(self, directory: str | os.PathLike[str], paths: Paths | None = None) -> None:
        """Raise StorageError for what cannot be a path."""
        if "\0" in os.fspath(directory):
            raise StorageError(f"'{excerpt(os.fspath(directory))}' is not a path: it has a NUL")
        self.directory = Path(os.path.abspath(directory))
        self.url = str(self.directory)
        self._paths = Paths() if paths is None else paths
        self._ahead: dict[str, tuple[int, int]] = {}

    def below(self, name: str) -> LocalStore:
        """Return the store of a folder of this one."""
        return LocalStore(self._path(name), self._paths)

    def files(self) -> tuple[StoredFile, ...]:
        """Return all files below the directory, sorted by name; none where the directory does not exist.

        A link to what does not exist is an error, unless it is hidden: editors use such links as lock files. Raises
        StorageError, also for more folders or entries than a checkpoint has.
        """
        files: list[StoredFile] = []
        folders: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
        entries = 0
        for listed in count(1):
            if not folders:
                break
            if listed > MAX_FOLDERS:
                raise StorageError(f"{self.directory} has more than {MAX_FOLDERS} folders, links to folders included")
            prefix, above = folders.pop()
            if len(above) > MAX_DEPTH:
                raise StorageError(f"{self.directory} has more than {MAX_DEPTH} folders in one another")
            with storage_errors("read the directory", self.directory / prefix), self._listed(prefix) as descriptor:
                if descriptor is None:
                    continue
                identity = _identity(os.fstat(descriptor))
                if identity in above:
                    raise StorageError(f"{self.directory / prefix} is a link to a directory above it")
                with os.scandir(descriptor) as scanned:
                    for entry in checked(scanned):
                        entries += 1
                        if entries > MAX_ENTRIES:
                            raise StorageError(f"{self.directory} has more than {MAX_ENTRIES} entries")
                        name = f"{prefix}{entry.name}"
                        status = self._status(entry, name)
                        if status is not None and stat.S_ISDIR(status.st_mode):
                            folders.append((f"{name}/", (*above, identity)))
                        elif status is not None and stat.S_ISREG(status.st_mode):
                            files.append(StoredFile(name, status.st_size, _version(status)))
        return tuple(sorted(files, key=lambda file: file.name))

    def folders(self) -> tuple[str, ...] | None:
        """Return the names of the folders in the directory, sorted; None where it does not exist. Links are not
        folders.
        """
        with storage_errors("read the directory", self.directory), self._listed("") as descriptor:
            if descriptor is None:
                return None
            with os.scandir(descriptor) as scanned:
                return tuple(sorted(entry.name for entry in checked(scanned) if entry.is_dir(follow_symlinks=False)))

    @contextmanager
    def _listed(self, prefix: str) -> Iterator[int | None]:
        """Open a folder to list it; None where there is none."""
        try:
            descriptor = self._paths.open(str(self.directory / prefix), os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            yield None
            return
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise StorageError(f"{self.directory / prefix} is a file: name a directory")
            yield descriptor
        finally:
            os.close(descriptor)

    def _status(self, entry: os.DirEntry[str], name: str) -> os.stat_result | None:
        """Return what an entry is, or what the link leads to; None for what was removed since, and for lock files."""
        path = f"{self.directory}/{name}"
        with storage_errors("read", path, file=name):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                return None
            if not stat.S_ISLNK(status.st_mode):
                return status
            try:
                return self._paths.status(path)
            except FileNotFoundError:
                if entry.name.startswith("."):
                    return None
                raise

    def find(self, name: str) -> StoredFile | None:
        """Return a file by its name, None for a directory. Raises StorageError for a link to what does not exist."""
        path = self._path(name)
        with storage_errors("read", path, file=name):
            try:
                status = self._paths.status(path)
            except FileNotFoundError:
                if not self._is_link(name):
                    return None
                raise
        return StoredFile(name, status.st_size, _version(status)) if stat.S_ISREG(status.st_mode) else None

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on. The version is looked at afterwards: it is that of all bytes."""
        path, filled = self._path(file.name), 0
        with storage_errors("read", path, file=file.name):
            try:
                descriptor = self._opened(path)
            except FileNotFoundError:
                raise SourceChangedError(f"{path} no longer exists", file=file.name) from None
            try:
                while filled < len(target):
                    read = os.preadv(descriptor, [target[filled:]], offset + filled)
                    if not read:
                        break
                    filled += read
                status = os.fstat(descriptor)
                self._read_ahead(descriptor, file.name, offset, offset + filled)
            finally:
                os.close(descriptor)
        _check_version(path, file, status)
        if filled < len(target):
            detail = f"{path} ends at byte {offset + filled}, but bytes up to {offset + len(target)} are needed"
            raise SourceChangedError(detail, file=file.name)

    def copy_into(self, file: StoredFile, offset: int, size: int, writer: FileWriter, target: int) -> bool:
        if not isinstance(writer, LocalWriter):
            return False
        path = self._path(file.name)
        try:
            descriptor = self._opened(path)
        except OSError:
            # Reading it says why.
            return False
        try:
            copied = writer.copy(target, descriptor, offset, size)
            status = os.fstat(descriptor)
            self._read_ahead(descriptor, file.name, offset, offset + size)
        finally:
            os.close(descriptor)
        if copied:
            _check_version(path, file, status)
        return copied

    def _opened(self, path: str) -> int:
        """Return a descriptor of a regular file, to be read. Raises OSError."""
        descriptor = self._paths.open(path, _READ)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            # As open(2) does for sockets.
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
            raise OSError(code, os.strerror(code))
        return descriptor

    def _read_ahead(self, descriptor: int, name: str, begin: int, end: int) -> None:
        """Ask the system to read ahead. By itself it does so only for one reader of an open file."""
        first, last = self._ahead.get(name, (0, 0))
        if first <= begin < last:
            if end + READ_AHEAD // 2 <= last:
                return
        else:
            first, last = begin, end
        self._ahead[name] = first, last + READ_AHEAD
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, last, READ_AHEAD, os.POSIX_FADV_WILLNEED)

    def create(self, name: str, size: int) -> FileWriter:
        """Begin `<name>.part`. Raises DestinationError where another process writes it, or what has its name is neither
        a file nor a link; StorageError.
        """
        path = self._path(name)
        with storage_errors("write", path, file=name):
            return _repeated(lambda: self._begun(path, name, size))

    def _begun(self, path: str, name: str, size: int) -> LocalWriter:
        with self._folder(name, make=True) as (folder, last):
            _check_replaceable(folder, last, path, name)
            return LocalWriter(path, name, size, folder, lambda: self._folder(name))

    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        path = self._path(name)
        with storage_errors("read", path, file=name):
            try:
                descriptor = self._opened(path)
            except FileNotFoundError:
                return None
            with open(descriptor, "rb") as opened:
                # A sparse file takes no space on the disk. Others may grow.
                if os.fstat(descriptor).st_size <= max_bytes and len(data := opened.read(max_bytes + 1)) <= max_bytes:
                    return data
        raise StorageError(f"{path} has more than {max_bytes} bytes", file=name)

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        """Write a file under another name, make it durable and rename it, so that it exists completely or not at
        all.

        Again where another process has removed the folder or the unfinished file: a worker that finishes a destination
        removes what all of them have recorded. Raises DestinationError where what has its name is neither a file nor a
        link.
        """
        with storage_errors("write", self._path(name), file=name):
            return _repeated(lambda: self._put(name, data, only_if_absent=only_if_absent))

    def _put(self, name: str, data: bytes, *, only_if_absent: bool) -> bool:
        with self._folder(name, make=True) as (folder, last):
            _check_replaceable(folder, last, self._path(name), name)
            part = f"{last}.{os.getpid()}-{next(_numbers)}{PART}"
            try:
                descriptor = os.open(part, _CREATE, 0o666, dir_fd=folder)
                try:
                    write_fully(descriptor, 0, memoryview(data))
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                if only_if_absent:
                    try:
                        os.link(part, last, src_dir_fd=folder, dst_dir_fd=folder)
                    except FileExistsError:
                        return False
                else:
                    os.rename(part, last, src_dir_fd=folder, dst_dir_fd=folder)
                sync_directory(folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(part, dir_fd=folder)
        return True

    def remove(self, name: str) -> None:
        """Remove a file, and the folders below the store that this leaves empty."""
        removing = storage_errors("remove", self._path(name), file=name)
        with removing, suppress(FileNotFoundError), self._folder(name) as (folder, last):
            os.unlink(last, dir_fd=folder)
        with suppress(OSError):
            while "/" in name:
                name = name.rpartition("/")[0]
                with self._folder(name) as (folder, last):
                    os.rmdir(last, dir_fd=folder)

    @contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Lock the directory, creating it if needed. The kernel releases the lock when the process ends."""
        with storage_errors("write to", self.directory):
            folder = self._directory(make=True)
        try:
            with locked(folder, LOCK_FILE, self.directory, shared=shared):
                yield
        finally:
            os.close(folder)

    def free_bytes(self) -> int | None:
        for place in (self.directory, *self.directory.parents):
            with suppress(FileNotFoundError), storage_errors("read", place):
                descriptor = self._paths.open(str(place), LOOK)
                try:
                    status = os.statvfs(descriptor)
                finally:
                    os.close(descriptor)
                return status.f_bavail * status.f_frsize
        return None

    def leads_out(self, file: StoredFile) -> bool:
        """Return whether the path of a file leads out of the directory by symbolic links."""
        return not Path(os.path.realpath(self._path(file.name))).is_relative_to(os.path.realpath(self.directory))

    def overlaps(self, other: Store) -> bool:
        """Return whether this directory is the other one or lies below it, links and mounts included.

        Raises StorageError where one of them cannot be read.
        """
        if not isinstance(other, LocalStore):
            return False
        theirs = other._identity()
        if theirs is None:
            return self.directory.is_relative_to(other.directory)
        return theirs in self._identities()

    def _identity(self) -> tuple[int, int] | None:
        with storage_errors("read", self.directory):
            try:
                return _identity(self._paths.status(self.url))
            except FileNotFoundError:
                return None

    def _identities(self) -> Iterator[tuple[int, int]]:
        """Yield what identifies the directory, or the nearest one above it that exists, and all directories above."""
        with storage_errors("read", self.directory):
            for place in (self.directory, *self.directory.parents):
                with suppress(FileNotFoundError, OutsideRootsError):
                    descriptor = self._paths.open(str(place), LOOK)
                    break
            else:
                return
            before = None
            try:
                while True:
                    identity = _identity(os.fstat(descriptor))
                    if identity == before:
                        return
                    yield identity
                    parent = os.open("..", LOOK | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
                    os.close(descriptor)
                    descriptor, before = parent, identity
            finally:
                os.close(descriptor)

    def _path(self, name: str) -> str:
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or not _can_be_encoded(name):
            raise StorageError(f"'{excerpt(name)}' is not the name of a file in {self.directory}", file=name)
        return os.path.join(self.url, name)

    def _is_link(self, name: str) -> bool:
        with suppress(OSError), self._folder(name) as (folder, last):
            return stat.S_ISLNK(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode)
        return False

    @contextmanager
    def _folder(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a file, through no link below the directory. Yields it with the file's name in it.

        `make`: create what is missing. Raises OSError.
        """
        *folders, last = name.split("/")
        descriptor = self._directory(make=make)
        try:
            for each in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(each, dir_fd=descriptor)
                below = os.open(each, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor, last
        finally:
            os.close(descriptor)

    def _directory(self, *, make: bool) -> int:
        """Return a descriptor of the directory itself. Raises OSError."""
        with suppress(FileNotFoundError):
            return self._paths.open(self.url, FOLDER)
        if make:
            self._paths.make_directory(self.url)
        return self._paths.open(self.url, FOLDER)


def _check_replaceable(folder: int, last: str, path: str, name: str) -> None:
    """Raise DestinationError for what is neither a file nor a link. path, name: of it, for the message."""
    with suppress(FileNotFoundError):
        mode = os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            what = "directory" if stat.S_ISDIR(mode) else "FIFO, a socket or a device"
            raise DestinationError(f"{path} is a {what}: remove it, or choose another name", file=name)


def _can_be_encoded(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _repeated(make: Callable[[], Made]) -> Made:
    """Return what `make` makes, which another process may disturb by removing a folder or a file."""
    for _ in range(_MAX_TRIES):
        with suppress(FileNotFoundError):
            return make()
    return make()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _check_version(path: str, file: StoredFile, status: os.stat_result) -> None:
    if status.st_size != file.size or _version(status) != file.version:
        detail = (
            f"{path} was changed after the plan was made: make a new plan, and do not change the source during the "
            "conversion"
        )
        raise SourceChangedError(detail, file=file.name)


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}"
