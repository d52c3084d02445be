"""A checkpoint in a directory."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

from core.checkpoint.storage.directory_lock import locked
from core.checkpoint.storage.local_writer import PART, LocalWriter, sync_directory, write_fully
from core.checkpoint.storage.operating_system_errors import storage_errors
from core.checkpoint.storage.store import FileWriter, Store, StoredFile
from core.errors import DestinationError, SourceChangedError, StorageError, excerpt

MOST_BYTES_OF_SMALL_FILE = 64 << 20
MOST_FOLDERS = 20_000
"""Two links to the next folder in each of some dozens of folders are more paths than can be listed."""
LOCK_FILE = ".requant.lock"
READ_AHEAD = 16 << 20
"""Bytes that the system reads ahead from the disk while earlier ones are processed."""

_MOST_TRIES = 100
Made = TypeVar("Made")

_numbers = count()


class LocalStore(Store):
    """A directory. Files are read and written with positions, never mapped: a file that shrinks is an error.

    `version` of a file is its modification time in ns and its size. Symbolic links are followed when files are read: in
    the cache of Hugging Face all files are links.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(os.path.abspath(directory))
        self.url = str(self.directory)
        self._ahead: dict[str, tuple[int, int]] = {}

    def files(self) -> tuple[StoredFile, ...]:
        """Return all files below the directory, sorted by name; none where the directory does not exist.

        A link to what does not exist is an error, unless it is hidden: editors use such links as lock files.
        """
        folders = count(1)
        return tuple(sorted(self._files(self.directory, "", (), folders), key=lambda file: file.name))

    def _files(
        self, directory: Path, prefix: str, above: tuple[tuple[int, int], ...], folders: Iterator[int]
    ) -> Iterator[StoredFile]:
        if next(folders) > MOST_FOLDERS:
            raise StorageError(f"{self.directory} has more than {MOST_FOLDERS} folders, links to folders included")
        with storage_errors("read the directory", directory):
            try:
                status = os.stat(directory)
                if not above and not stat.S_ISDIR(status.st_mode):
                    raise StorageError(f"{directory} is a file: name a directory")
                entries = list(os.scandir(directory))
            except FileNotFoundError:
                if above:
                    raise
                return
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            raise StorageError(f"{directory} is a link to a directory above it")
        for entry in entries:
            if entry.is_dir():
                yield from self._files(directory / entry.name, f"{prefix}{entry.name}/", (*above, identity), folders)
                continue
            with storage_errors("read", entry.path, file=f"{prefix}{entry.name}"):
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    if not entry.is_symlink() or entry.name.startswith("."):
                        continue  # Removed since, or a lock file.
                    raise
            if entry.is_file():
                yield StoredFile(f"{prefix}{entry.name}", status.st_size, _version(status))

    def find(self, name: str) -> StoredFile | None:
        """Return a file by its name, None for a directory. Raises StorageError for a link to what does not exist."""
        path = self._path(name)
        with storage_errors("read", path, file=name):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                if not path.is_symlink():
                    return None
                raise
        return StoredFile(name, status.st_size, _version(status)) if stat.S_ISREG(status.st_mode) else None

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on. The version is looked at afterwards: it is that of all bytes."""
        path, filled = self._path(file.name), 0
        with storage_errors("read", path, file=file.name):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
        if status.st_size != file.size or _version(status) != file.version:
            detail = (
                f"{path} was changed after the plan was made: make a new plan, and do not change the source during "
                "the conversion"
            )
            raise SourceChangedError(detail, file=file.name)
        if filled < len(target):
            detail = f"{path} ends at byte {offset + filled}, but bytes up to {offset + len(target)} are needed"
            raise SourceChangedError(detail, file=file.name)

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
        """Begin `<name>.part`. Raises DestinationError where another process writes it or a directory has its name,
        StorageError.
        """
        path = self._path(name)
        with storage_errors("write", path, file=name):
            if path.is_dir():
                raise DestinationError(f"{path} is a directory: remove it, or choose another name", file=name)
            return _repeated(lambda: _begun(path, name, size))

    def get(self, name: str) -> bytes | None:
        """Return the bytes of a file of at most 64 MiB, None where there is none. Raises StorageError."""
        path = self._path(name)
        with storage_errors("read", path, file=name):
            try:
                with open(path, "rb") as opened:
                    data = opened.read(MOST_BYTES_OF_SMALL_FILE + 1)
            except FileNotFoundError:
                return None
        if len(data) > MOST_BYTES_OF_SMALL_FILE:
            raise StorageError(f"{path} is larger than {MOST_BYTES_OF_SMALL_FILE >> 20} MiB", file=name)
        return data

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        """Write a file under another name, make it durable and rename it, so that it exists completely or not at
        all.

        Again where another process has removed the folder or the unfinished file: a worker that finishes a destination
        removes what all of them have recorded.
        """
        path = self._path(name)
        with storage_errors("write", path, file=name):
            return _repeated(lambda: _put(path, data, only_if_absent=only_if_absent))

    def remove(self, name: str) -> None:
        """Remove a file, and the folders below the store that this leaves empty."""
        path = self._path(name)
        with storage_errors("remove", path, file=name), suppress(FileNotFoundError):
            os.unlink(path)
        for folder in path.parents:
            if folder == self.directory:
                break
            try:
                os.rmdir(folder)
            except OSError:
                break

    @contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Lock the directory, creating it if needed. The kernel releases the lock when the process ends."""
        with storage_errors("write to", self.directory):
            os.makedirs(self.directory, exist_ok=True)
        with locked(self.directory / LOCK_FILE, shared=shared):
            yield

    def free_bytes(self) -> int | None:
        """Return the free space of the directory's file system."""
        for place in (self.directory, *self.directory.parents):
            with suppress(FileNotFoundError), storage_errors("read", place):
                return shutil.disk_usage(place).free
        return None

    def leads_out(self, file: StoredFile) -> bool:
        """Return whether the path of a file leads out of the directory by symbolic links."""
        return not Path(os.path.realpath(self._path(file.name))).is_relative_to(os.path.realpath(self.directory))

    def overlaps(self, other: Store) -> bool:
        """Return whether this directory is the other one or lies below it, links and mounts included."""
        if not isinstance(other, LocalStore):
            return False
        real = Path(os.path.realpath(self.directory))
        above = Path(os.path.realpath(other.directory))
        return any(place == above or _same(place, above) for place in (real, *real.parents))

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise StorageError(f"'{excerpt(name)}' is not the name of a file in {self.directory}", file=name)
        return self.directory.joinpath(*parts)


def _repeated(make: Callable[[], Made]) -> Made:
    """Return what `make` makes, which another process may disturb by removing a folder or a file."""
    for _ in range(_MOST_TRIES):
        with suppress(FileNotFoundError):
            return make()
    return make()


def _begun(path: Path, name: str, size: int) -> LocalWriter:
    os.makedirs(path.parent, exist_ok=True)
    return LocalWriter(path, name, size)


def _put(path: Path, data: bytes, *, only_if_absent: bool) -> bool:
    part = path.with_name(f"{path.name}.{os.getpid()}-{next(_numbers)}{PART}")
    os.makedirs(path.parent, exist_ok=True)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_fully(descriptor, 0, memoryview(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if only_if_absent:
            try:
                os.link(part, path)
            except FileExistsError:
                return False
        else:
            os.rename(part, path)
        # What was written may be removed, too, and its folder.
        with suppress(FileNotFoundError):
            sync_directory(path.parent)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
    return True


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}"


def _same(first: Path, second: Path) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False
