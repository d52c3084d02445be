"""A destination that is compared, not written: output is compared with the existing files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock, local

import numpy as np

from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.storage.store import MAX_BYTES_OF_SMALL_FILE, FileWriter, Store, StoredFile
from requant.errors import SourceChangedError, StorageError


@dataclass(frozen=True, slots=True)
class ByteDifference:
    """Bytes of a file that differ from the conversion of the source.

    `tensor`: the one that holds them; None for the header and for files without tensors. `offset`: of the first one,
    from the start of the tensor, or of the file. `bytes`: how many there are.
    """

    file: str
    tensor: str | None
    offset: int
    bytes: int


class ComparedStore(Store):
    """The files of `store`, with writers that compare. `headers`: of the files that hold tensors, by name."""

    def __init__(self, store: Store, headers: Mapping[str, Header]) -> None:
        self.store = store
        self.url = store.url
        self.compared = 0
        self._headers = headers
        self._files = {file.name: file for file in store.files()}
        self._found: dict[tuple[str, str | None], ByteDifference] = {}
        self._lock = Lock()

    @property
    def differences(self) -> tuple[ByteDifference, ...]:
        """The differences so far, one per tensor, by file and position."""
        return tuple(sorted(self._found.values(), key=lambda each: (each.file, each.tensor or "", each.offset)))

    def files(self) -> tuple[StoredFile, ...]:
        """Return all files."""
        return tuple(self._files.values())

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on."""
        self.store.read_into(file, offset, target)

    def create(self, name: str, size: int) -> FileWriter:
        """Begin to compare a file of `size` bytes."""
        return _Comparison(self, self._files.get(name), name, size)

    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        """Return the bytes of a small file."""
        return self.store.get(name, max_bytes)

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        """Refuse: nothing is written."""
        raise StorageError(f"{self.url} is compared, not written", file=name)

    def remove(self, name: str) -> None:
        """Refuse: nothing is removed."""
        raise StorageError(f"{self.url} is compared, not written", file=name)

    def note(self, name: str, position: int, compared: int, differing: int) -> None:
        """Count bytes that were compared from `position` of a file on, the first of `differing` ones being there."""
        with self._lock:
            self.compared += compared
            if not differing:
                return
            tensor, offset = self._place(name, position)
            before = self._found.get((name, tensor))
            if before is not None:
                offset, differing = min(offset, before.offset), differing + before.bytes
            self._found[name, tensor] = ByteDifference(name, tensor, offset, differing)

    def _place(self, name: str, position: int) -> tuple[str | None, int]:
        header = self._headers.get(name)
        tensors = header.tensors if header is not None else ()
        at = bisect_right(tensors, position, key=lambda entry: entry.begin) - 1
        return (None, position) if at < 0 else (tensors[at].name, position - tensors[at].begin)


class _Comparison(FileWriter):
    def __init__(self, store: ComparedStore, file: StoredFile | None, name: str, size: int) -> None:
        self._store, self._file, self._name, self._size = store, file, name, size
        self._memory = local()

    def write(self, offset: int, data: bytes | memoryview) -> None:
        expected = np.frombuffer(data, np.uint8)
        file = self._file
        if file is None or file.size != self._size:
            return  # The structure says so, once for the file.
        found = self._bytes(expected.size)
        try:
            self._store.read_into(file, offset, found.data)
        except SourceChangedError as error:
            raise StorageError(f"{self._name} changed during verification", file=self._name) from error
        differing = np.flatnonzero(found != expected)
        first = int(differing[0]) if differing.size else 0
        self._store.note(self._name, offset + first, expected.size, differing.size)

    def _bytes(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        memory: np.ndarray[tuple[int], np.dtype[np.uint8]] = getattr(self._memory, "bytes", np.empty(0, np.uint8))
        if memory.size < size:
            memory = self._memory.bytes = np.empty(size, np.uint8)
        return memory[:size]

    def commit(self) -> str:
        """Return no digest: nothing was written."""
        return ""

    def discard(self) -> None:
        """Nothing was written."""
