"""The stored tensors of a weight, quantized or not, read for some of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd, prod

import numpy as np

from requant.checkpoint.plan.model import QuantizedSource, SourceRange, WeightSource
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.storage.store import Store, StoredFile
from requant.checkpoint.weights.floats import Array, values
from requant.checkpoint.weights.weight_format import Codes, Region, StoredRows, WeightFormat


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A stored tensor seen as a matrix: rank 1 is one row, and of a higher rank all axes but the last are rows.

    `begin`: where it begins in its file. `dtype`: one whose elements are whole bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return prod(self.shape[:-1])

    @property
    def columns(self) -> int:
        """The number of elements of a row."""
        return self.shape[-1] if self.shape else 1

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype].bits // 8

    def is_contiguous(self, region: Region) -> bool:
        """Return whether the region is one range of bytes."""
        width = region.column_end - region.column_begin
        return width == self.columns or region.row_end - region.row_begin <= 1

    def ranges(self, region: Region) -> Iterator[tuple[int, int]]:
        """Yield where the bytes of a region begin and end in the file: one range, or one for each row."""
        row, item = self.columns * self.item_bytes, self.item_bytes
        first = self.begin + region.row_begin * row + region.column_begin * item
        width = (region.column_end - region.column_begin) * item
        height = region.row_end - region.row_begin
        if not width or not height:
            return
        if self.is_contiguous(region):
            yield first, first + width * height
            return
        for begin in range(first, first + height * row, row):
            yield begin, begin + width


_LONG_RUN = 64 << 10
"""Ranges of at least this many bytes are read separately, not together with their neighbors."""


@dataclass(frozen=True)
class Files:
    """The files of a checkpoint, by name."""

    store: Store
    files: Mapping[str, StoredFile]

    @classmethod
    def of(cls, store: Store, files: Iterable[StoredFile]) -> Files:
        """Return some files of a store."""
        return cls(store, {file.name: file for file in files})

    def read(self, file: str, begin: int, end: int) -> Array:
        """Return the bytes [begin, end) of a file."""
        data = np.empty(end - begin, np.uint8)
        self.store.read_into(self.files[file], begin, data.data)
        return data

    def region(self, file: str, place: StoredMatrix, region: Region) -> Array:
        """Return a region of a stored tensor."""
        height, width = region.row_end - region.row_begin, region.column_end - region.column_begin
        array = np.empty((height, width), DTYPES[place.dtype].array)
        if place.is_contiguous(region) or width * place.item_bytes >= _LONG_RUN:
            target, at = array.reshape(-1).view(np.uint8).data, 0
            for begin, end in place.ranges(region):
                self.store.read_into(self.files[file], begin, target[at : at + end - begin])
                at += end - begin
            return array
        # Short runs cost more to ask for than what lies between them costs to read.
        rows = max(1, self.store.read_size // (place.columns * place.item_bytes))
        for row in range(0, height, rows):
            last = min(row + rows, height)
            whole = Region(region.suffix, region.row_begin + row, region.row_begin + last, 0, place.columns)
            read = self.region(file, place, whole)
            array[row:last] = read[:, region.column_begin : region.column_end]
        return array


ELEMENTS = 1 << 18
"""About as many are worked on at a time."""


@dataclass(frozen=True)
class PlainWeight:
    """A matrix of BF16, F16 or F32."""

    files: Files
    source: SourceRange

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]; of a tensor of a higher rank, all axes but the last are rows."""
        *rows, columns = self.source.shape
        return prod(rows), columns

    @property
    def rows_together(self) -> int:
        """Pieces may begin at any row."""
        return 1

    @property
    def rows_within(self) -> int:
        """Pieces may end at any row."""
        return 0

    def f32(self, begin: int, end: int) -> Array:
        """Return rows as f32."""
        item = DTYPES[self.source.dtype]
        row = self.shape[1] * item.bits // 8
        at = self.source.begin
        bits = self.files.read(self.source.file, at + begin * row, at + end * row).view(item.array)
        return values(bits, self.source.dtype).reshape(end - begin, self.shape[1])

    def numbers(self, begin: int, end: int) -> Array:
        """Return rows as f64."""
        return self.f32(begin, end).astype(np.float64)


@dataclass(frozen=True)
class QuantizedWeight:
    """A module's weight, as a weight format stores it. Tensors that are stored once for all rows are read once."""

    files: Files
    source: QuantizedSource
    _whole: dict[str, Array] = field(default_factory=dict)

    @property
    def format(self) -> WeightFormat:
        """How it is stored."""
        return self.source.format

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""
        return self.source.shape

    @property
    def rows_together(self) -> int:
        """Pieces begin at a multiple of this many rows."""
        return self.format.rows_together

    @property
    def rows_within(self) -> int:
        """Pieces do not cross a multiple of this many rows, if it is not 0."""
        return self.format.rows_within

    def place(self, suffix: str) -> StoredMatrix:
        """Return where a stored tensor lies in its file."""
        source = self.source.stored[suffix]
        return StoredMatrix(source.dtype, source.shape, source.begin)

    def regions(self, row_begin: int, row_end: int) -> dict[str, Region]:
        """Return the stored parts for some rows, by suffix."""
        regions = self.format.regions(self.source.dtype, self.shape, row_begin, row_end)
        return {region.suffix: region for region in regions}

    def rows(self, row_begin: int, row_end: int) -> StoredRows:
        """Read some rows."""
        regions = self.regions(row_begin, row_end)
        parts = {}
        for suffix, source in self.source.stored.items():
            place = self.place(suffix)
            whole = Region(suffix, 0, place.rows, 0, place.columns)
            if suffix in regions and regions[suffix] != whole:
                parts[suffix] = self.files.region(source.file, place, regions[suffix])
                continue
            if suffix not in self._whole:
                self._whole[suffix] = self.files.region(source.file, place, whole)
            parts[suffix] = self._whole[suffix]
        dtypes = {suffix: source.dtype for suffix, source in self.source.stored.items()}
        return StoredRows(parts, dtypes, self.shape, row_begin, row_end)

    def bytes_of(self, stored: StoredRows) -> int:
        """Return how many bytes were read for some rows."""
        return sum(stored.parts[suffix].nbytes for suffix in self.regions(stored.begin, stored.end))

    def f32(self, begin: int, end: int) -> Array:
        """Return rows as the f32 that a loader computes."""
        return self.format.dequantize(self.rows(begin, end), "F32")

    def numbers(self, begin: int, end: int) -> Array:
        """Return the numbers that rows hold, exactly, as f64."""
        return self.format.numbers(self.rows(begin, end))

    def codes(self, begin: int, end: int) -> Codes:
        """Return the codes and scales of rows."""
        return self.format.codes(self.rows(begin, end))


Weight = PlainWeight | QuantizedWeight


def weight_of(files: Files, source: WeightSource) -> Weight:
    """Return the reader of a weight."""
    return PlainWeight(files, source) if isinstance(source, SourceRange) else QuantizedWeight(files, source)


def row_ranges(*weights: Weight) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that all weights can be read in."""
    out, columns = weights[0].shape
    together = int(np.lcm.reduce([weight.rows_together for weight in weights]))
    within = gcd(*(weight.rows_within for weight in weights))
    # Rows that are columns of what is stored cost as much to read as many of them.
    elements = 3 * ELEMENTS if within else ELEMENTS
    rows = max(together, elements // max(columns, 1) // together * together)
    yield from pieces_of(out, rows, within)


def pieces_of(out: int, rows: int, within: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of so many rows. None crosses a multiple of `within`, if that is not 0."""
    within = within or max(out, 1)
    for start in range(0, out, within):
        end = min(start + within, out)
        for begin in range(start, end, rows):
            yield begin, min(begin + rows, end)
