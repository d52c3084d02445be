"""The interface of a store that holds the files of a checkpoint, and messages that say what to do about errors of the
operating system.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from requant.errors import StorageError
from requant.errors.cancellation import check_cancelled

_HASHED_TOGETHER = 1 << 20
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


class storage_errors:  # noqa: N801  a context manager, as contextlib's; theirs take longer than some calls within
    """Turn OSError into StorageError: 'cannot <action> <path>: <what to do>'."""

    __slots__ = ("_action", "_file", "_path")

    def __init__(self, action: str, path: object, *, file: str | None = None) -> None:
        self._action, self._path, self._file = action, path, file

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            reason = _ADVICE.get(error.errno or 0, error.strerror or type(error).__name__)
            raise StorageError(f"cannot {self._action} {self._path}: {reason}", file=self._file) from error


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file by its name below the store. `version` changes whenever the file does: its time in ns, or its ETag."""

    name: str
    size: int
    version: str


MAX_BYTES_OF_SMALL_FILE = 64 << 20
"""Of what `Store.get` reads at once."""


class FileWriter(ABC):
    """A file that is being written under another name (`<name>.part`), and has its own only after `commit`.

    A context manager: what is not committed when it ends is removed.
    """

    @abstractmethod
    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write all of `data` at `offset`. Called by several threads, in any order. Raises StorageError."""

    @abstractmethod
    def commit(self) -> str:
        """Make the file durable and give it its name. Returns the SHA-256 of its bytes in hex. Raises StorageError."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what was written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.discard()


class Store(ABC):
    """A directory of files, or a prefix of an object store. Names are relative to it, with `/` between their parts."""

    url: str

    read_size: int = 2 << 20
    """Bytes to ask for at a time. Of a local file: few enough to stay near a core, and enough that the Python around a
    piece costs little."""

    copy_size: int | None = None
    """Bytes to copy at a time, where it is not `read_size`."""

    @abstractmethod
    def files(self) -> tuple[StoredFile, ...]:
        """Return all files, sorted by name. Raises StorageError."""

    def find(self, name: str) -> StoredFile | None:
        """Return a file by its name, None where there is none. Raises StorageError."""
        return next((file for file in self.files() if file.name == name), None)

    def sha256(self, file: StoredFile) -> str:
        """Return the SHA-256 of a file, in hex. Raises what `read_into` raises."""
        digest, memory = sha256(), memoryview(bytearray(min(_HASHED_TOGETHER, file.size)))
        for begin in range(0, file.size, _HASHED_TOGETHER):
            check_cancelled()
            piece = memory[: min(_HASHED_TOGETHER, file.size - begin)]
            self.read_into(file, begin, piece)
            digest.update(piece)
        return digest.hexdigest()

    @abstractmethod
    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on.

        Called by several threads. Raises SourceChangedError where the file is no longer of that version or ends
        before, StorageError where it cannot be read.
        """

    def copy_into(self, file: StoredFile, offset: int, size: int, writer: FileWriter, target: int) -> bool:
        """Have the operating system copy bytes of a file, which need not pass through this process.

        False: it does not, and the caller reads and writes all of them. Raises as `read_into` and `FileWriter.write`.
        """
        return False

    @abstractmethod
    def create(self, name: str, size: int) -> FileWriter:
        """Begin a file of `size` bytes. Raises StorageError."""

    @abstractmethod
    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        """Return the bytes of a small file, None where there is none. Raises StorageError, also for a larger one, of
        which no more than `max_bytes` are read whatever size it is said to have.
        """

    @abstractmethod
    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        """Write a small file at once and durably. False: `only_if_absent`, and it is there. Raises StorageError."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file if it exists. Raises StorageError."""

    def lock(self, *, shared: bool = False) -> AbstractContextManager[None]:
        """Hold the destination until the context ends: alone, or with others that write other files of it.

        Raises DestinationError where another run holds it. Without locks nothing is held: conditional writes (`put`
        with `only_if_absent`) have to do.
        """
        return nullcontext()

    def free_bytes(self) -> int | None:
        """Return the free space, None if unknown."""
        return None

    def leads_out(self, file: StoredFile) -> bool:
        """Return whether a file is a link to a place outside of the store."""
        return False

    def overlaps(self, other: Store) -> bool:
        """Return whether this place is the other one or lies below it."""
        return f"{self.url.rstrip('/')}/".startswith(f"{other.url.rstrip('/')}/")


Array = NDArray[Any]


def read_range(store: Store, file: StoredFile, offset: int, size: int) -> Array:
    """Return bytes [offset, offset + size) of a file as uint8. Raises what `Store.read_into` raises."""
    target = np.empty(size, "|u1")
    if size:
        store.read_into(file, offset, target.data)
    return target


def file_named(store: Store, name: str) -> StoredFile:
    """Return a file of the store by its name. Raises StorageError if it does not exist."""
    file = store.find(name)
    if file is None:
        raise StorageError(f"there is no file '{name}' in {store.url}", file=name)
    return file
