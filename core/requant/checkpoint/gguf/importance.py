"""An importance matrix: for each column of a weight the mean square of the activations that it was multiplied by.

`llama-imatrix` writes one of two forms, which the first bytes tell apart:

- a GGUF file with the tensors `<weight>.in_sum2`, sums [experts, columns], and `<weight>.counts` [experts], the number
  of tokens, F32; the keys imatrix.datasets, imatrix.chunk_count and imatrix.chunk_size are there.
- i32 entries; of each i32 length of the name, the name, i32 count, i32 number of sums, the sums as f32; after the last
  there may be an i32 count of chunks, and a dataset as i32 length and text. All experts have one count.

importance = f32(sum / count); where the count is 0, 1 of the first form and the sum of the second.
Source: llama.cpp's common/imatrix-loader.cpp and tools/quantize/quantize.cpp.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf.header import GgufHeader, Key, read_header, string_value, u32_value, value_of
from requant.checkpoint.storage.store import Store, StoredFile, file_named, read_range
from requant.errors import CheckpointError, excerpt

Array = NDArray[Any]

_SUMS, _COUNTS = ".in_sum2", ".counts"
_DATASETS, _CHUNKS, _CHUNK_SIZE = "imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"
# What llama-quantize keeps of a path and of the name of a dataset.
_LONGEST_TEXT = 127
_LONGEST_NAME, _LONGEST_DATASET = 1 << 12, 1 << 16


@dataclass(frozen=True, slots=True)
class _Entry:
    """Of a weight: where its sums begin, and how many there are; the count of each expert, or of all, if known."""

    begin: int
    sums: int
    counts: tuple[int, ...]
    legacy: bool


@dataclass(frozen=True, slots=True)
class ImportanceMatrix:
    """A file, of which the sums are read when they are wanted. `path`: as the user named it."""

    path: str
    store: Store
    file: StoredFile
    entries: dict[str, _Entry]
    dataset: str | None
    chunks: int

    def find(self, name: str, columns: int, experts: int) -> bool:
        """Return whether there is an importance of a weight of that shape.

        Raises CheckpointError where it has another number of columns or experts, but for token embeddings, of which
        that is no importance.
        """
        entry = self.entries.get(name)
        if entry is None or entry.sums == columns * experts:
            return entry is not None
        if name in ("token_embd.weight", "per_layer_token_embd.weight"):
            return False
        detail = f"{self.file.name} has {entry.sums} sums of '{excerpt(name)}', which has {experts} x {columns} columns"
        raise CheckpointError(f"{detail}: it was made for another model", file=self.file.name, tensor=name)

    def of_columns(self, name: str, columns: int, expert: int) -> Array:
        """Return the importance of the columns of one expert: f32. Raises CheckpointError where one is not finite."""
        entry = self.entries[name]
        sums = read_range(self.store, self.file, entry.begin + 4 * columns * expert, 4 * columns).view("<f4")
        places = (np.arange(columns) + columns * expert) // (entry.sums // len(entry.counts))
        counts = np.array(entry.counts)[places].astype("<f4")
        uncounted = sums if entry.legacy else np.float32(1)
        found = np.where(counts > 0, sums / np.where(counts > 0, counts, np.float32(1)), uncounted)
        if not np.isfinite(found).all():
            detail = f"{self.file.name} has a sum of '{excerpt(name)}' that is not finite"
            raise CheckpointError(detail, file=self.file.name, tensor=name)
        return found

    def keys(self) -> list[Key]:
        """Return the keys that llama-quantize adds to a file. A matrix without entries counts as none."""
        found = [Key("quantize.imatrix.file", string_value(_shortened(self.path)))]
        if self.dataset is not None:
            found.append(Key("quantize.imatrix.dataset", string_value(_shortened(self.dataset))))
        found.append(Key("quantize.imatrix.entries_count", u32_value(len(self.entries))))
        return found + [Key("quantize.imatrix.chunks_count", u32_value(self.chunks))] * (self.chunks > 0)


def _shortened(text: str) -> bytes:
    return text.encode()[:_LONGEST_TEXT]


def read_importance(store: Store, name: str, path: str) -> ImportanceMatrix:
    """Return the importance matrix in the file `name` of a store, but for its sums.

    Raises CheckpointError for a file that is neither of the two forms, or has no entries; StorageError.
    """
    file = file_named(store, name)
    if read_range(store, file, 0, min(4, file.size)).tobytes() == b"GGUF":
        header = read_header(store, file)
        entries = dict(_entries(store, file, header))
        dataset, chunks = _metadata(file, header)
    else:
        entries, dataset, chunks = _LegacyFile(store, file).read()
    if not entries:
        raise CheckpointError(f"{file.name} has no importance of any weight", file=file.name)
    return ImportanceMatrix(path, store, file, entries, dataset, chunks)


def _entries(store: Store, file: StoredFile, header: GgufHeader) -> Iterator[tuple[str, _Entry]]:
    tensors = {info.name: info for info in header.tensors}
    for name in sorted(name.removesuffix(_SUMS) for name in tensors if name.endswith(_SUMS)):
        sums, counts = tensors[name + _SUMS], tensors.get(name + _COUNTS)
        if counts is None or {sums.type.name, counts.type.name} != {"F32"}:
            detail = f"{file.name} has sums of '{excerpt(name)}' without their counts, or other types than F32"
            raise CheckpointError(detail, file=file.name, tensor=name)
        if sums.elements and counts.elements and sums.elements % counts.elements == 0:
            stored = read_range(store, file, header.data + counts.offset, counts.size).view("<f4")
            yield name, _Entry(header.data + sums.offset, sums.elements, tuple(map(_whole, stored.tolist())), False)


def _whole(count: float) -> int:
    """Nearest, ties away from zero; what is not finite is none."""
    return int(math.copysign(math.floor(abs(count) + 0.5), count)) if math.isfinite(count) else 0


def _metadata(file: StoredFile, header: GgufHeader) -> tuple[str | None, int]:
    values = {key.name: value_of(key) for key in header.keys if key.name.startswith("imatrix.")}
    datasets, chunks = values.get(_DATASETS), values.get(_CHUNKS)
    if not isinstance(datasets, list) or not isinstance(chunks, int) or _CHUNK_SIZE not in values:
        detail = f"{file.name} lacks {_DATASETS}, {_CHUNKS} or {_CHUNK_SIZE}: it is no importance matrix"
        raise CheckpointError(detail, file=file.name)
    return next((each for each in datasets if isinstance(each, str)), None), chunks


class _LegacyFile:
    """The older form, read from front to end."""

    def __init__(self, store: Store, file: StoredFile) -> None:
        self.store, self.file, self.position = store, file, 0

    def error(self, detail: str) -> CheckpointError:
        return CheckpointError(f"{self.file.name} is no importance matrix: {detail}", file=self.file.name)

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > self.file.size:
            raise self.error(f"{size} bytes at {self.position} are not in its {self.file.size}")
        data = read_range(self.store, self.file, self.position, size).tobytes()
        self.position += size
        return data

    def number(self) -> int:
        return int(struct.unpack("<i", self.take(4))[0])

    def text(self, longest: int) -> str:
        length = self.number()
        if length > longest:
            raise self.error(f"a text of {length} bytes at {self.position}")
        try:
            return self.take(length).decode().partition("\0")[0]
        except UnicodeDecodeError:
            raise self.error(f"the text that ends at {self.position} is not UTF-8") from None

    def read(self) -> tuple[dict[str, _Entry], str | None, int]:
        count = self.number()
        if not 0 < count <= self.file.size // 12:
            raise self.error(f"it declares {count} entries in {self.file.size} bytes")
        entries = {}
        for _ in range(count):
            name = self.text(_LONGEST_NAME)
            calls, sums = self.number(), self.number()
            begin = self.position
            if sums < 1 or begin + 4 * sums > self.file.size:
                raise self.error(f"'{excerpt(name)}' has {sums} sums at {begin}, of {self.file.size} bytes")
            self.position += 4 * sums
            entries[name] = _Entry(begin, sums, (calls,), True)
        chunks = self.number() if self.position < self.file.size else 0
        dataset = self.text(_LONGEST_DATASET) if self.position < self.file.size else ""
        return entries, dataset or None, chunks
