"""A GGUF file, and the directory of the same model as Hugging Face's libraries store it, as one source: the weights of
the file, and config.json, tokenizer and names of the directory, whose weights are not read.
"""

from __future__ import annotations

from requant.checkpoint.storage.store import (
    MAX_BYTES_OF_SMALL_FILE,
    FileWriter,
    Store,
    StoredFile,
    file_named,
)
from requant.errors import StorageError

_WEIGHTS = ".safetensors"


class GgufModel(Store):
    """The file `name` of `folder`, and what lies beside the weights of `like`."""

    def __init__(self, folder: Store, name: str, like: Store) -> None:
        self.folder, self.name, self.like = folder, name, like
        self.url = f"{folder.url.rstrip('/')}/{name}"
        self.read_size, self.copy_size = folder.read_size, folder.copy_size

    @property
    def file(self) -> StoredFile:
        """The file. Raises StorageError if it does not exist."""
        return file_named(self.folder, self.name)

    def files(self) -> tuple[StoredFile, ...]:
        beside = (file for file in self.like.files() if not file.name.endswith(_WEIGHTS) and file.name != self.name)
        return tuple(sorted((self.file, *beside), key=lambda file: file.name))

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        self._store(file.name).read_into(file, offset, target)

    def copy_into(self, file: StoredFile, offset: int, size: int, writer: FileWriter, target: int) -> bool:
        return self._store(file.name).copy_into(file, offset, size, writer, target)

    def sha256(self, file: StoredFile) -> str:
        return self._store(file.name).sha256(file)

    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        return self._store(name).get(name, max_bytes)

    def leads_out(self, file: StoredFile) -> bool:
        return self._store(file.name).leads_out(file)

    def create(self, name: str, size: int) -> FileWriter:
        raise self._not_written(name)

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        raise self._not_written(name)

    def remove(self, name: str) -> None:
        raise self._not_written(name)

    def _store(self, name: str) -> Store:
        return self.folder if name == self.name else self.like

    def _not_written(self, name: str) -> StorageError:
        return StorageError(f"{self.url} is a source, and is not written", file=name)
