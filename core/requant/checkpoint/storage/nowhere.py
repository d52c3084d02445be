"""A destination that keeps nothing: what is written to it is converted, and dropped."""

from __future__ import annotations

from requant.checkpoint.storage.store import FileWriter, Store, StoredFile
from requant.errors import StorageError


class Nowhere(Store):
    """A destination that keeps nothing."""

    url = ""

    def files(self) -> tuple[StoredFile, ...]:
        return ()

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        raise StorageError(f"{file.name} was not kept", file=file.name)

    def create(self, name: str, size: int) -> FileWriter:
        return _NoFile()

    def get(self, name: str, max_bytes: int = 0) -> bytes | None:
        return None

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        return True

    def remove(self, name: str) -> None:
        """There is nothing to remove."""


class _NoFile(FileWriter):
    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Drop the bytes."""

    def commit(self) -> str:
        """Return no digest: nothing was kept."""
        return ""

    def discard(self) -> None:
        """Nothing was kept."""
