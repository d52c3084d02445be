"""Where a region of a stored tensor lies in its file: ranges of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from requant.checkpoint.safetensors.dtypes import DTYPES
from requant.checkpoint.weights.weight_format import Region


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
