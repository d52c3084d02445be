"""The stored tensors of a quantized weight, read for some of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from requant.checkpoint.plan.model import DequantizeStep
from requant.checkpoint.run.matrix_bytes import StoredMatrix
from requant.checkpoint.safetensors.dtypes import DTYPES
from requant.checkpoint.storage.store import Store, StoredFile
from requant.checkpoint.weights.weight_format import Array, Region, StoredRows

_LONG_RUN = 64 << 10
"""Ranges of at least this many bytes are read separately, not together with their neighbors."""


@dataclass(frozen=True)
class Files:
    """The files of a checkpoint, by name."""

    store: Store
    files: Mapping[str, StoredFile]

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


@dataclass(frozen=True)
class StoredWeight:
    """The stored tensors of a module's weight. Tensors that are stored once for all rows are read once."""

    files: Files
    step: DequantizeStep
    _whole: dict[str, Array] = field(default_factory=dict)

    def place(self, suffix: str) -> StoredMatrix:
        """Return where a stored tensor lies in its file."""
        source = self.step.stored[suffix]
        return StoredMatrix(source.dtype, source.shape, source.begin)

    def regions(self, row_begin: int, row_end: int) -> dict[str, Region]:
        """Return the stored parts for some rows, by suffix."""
        found = self.step.format.regions(self.step.dtype, self.step.shape, row_begin, row_end)
        return {region.suffix: region for region in found}

    def rows(self, row_begin: int, row_end: int) -> StoredRows:
        """Read some rows."""
        regions = self.regions(row_begin, row_end)
        parts = {}
        for suffix, source in self.step.stored.items():
            place = self.place(suffix)
            whole = Region(suffix, 0, place.rows, 0, place.columns)
            if suffix in regions and regions[suffix] != whole:
                parts[suffix] = self.files.region(source.file, place, regions[suffix])
                continue
            if suffix not in self._whole:
                self._whole[suffix] = self.files.region(source.file, place, whole)
            parts[suffix] = self._whole[suffix]
        dtypes = {suffix: source.dtype for suffix, source in self.step.stored.items()}
        return StoredRows(parts, dtypes, self.step.shape, row_begin, row_end)
