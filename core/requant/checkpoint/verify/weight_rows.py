"""Rows of weights, quantized or not, read one piece after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from requant.checkpoint.plan.model import SourceRange
from requant.checkpoint.run.stored_weight import Files, StoredWeight
from requant.checkpoint.safetensors.dtypes import DTYPES
from requant.checkpoint.weights.floats import values
from requant.checkpoint.weights.weight_format import Array, Codes, WeightFormat

ELEMENTS = 1 << 18
"""About as many are worked on at a time."""


@dataclass(frozen=True)
class PlainWeight:
    """A matrix of BF16, F16 or F32."""

    files: Files
    source: SourceRange

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""
        out, columns = self.source.shape
        return out, columns

    @property
    def rows_together(self) -> int:
        """Pieces may begin at any row."""
        return 1

    def f32(self, begin: int, end: int) -> Array:
        """Return rows as f32."""
        item = DTYPES[self.source.dtype]
        row = self.shape[1] * item.bits // 8
        at = self.source.begin
        bits = self.files.read(self.source.file, at + begin * row, at + end * row).view(item.array)
        return values(bits, self.source.dtype).reshape(end - begin, self.shape[1])


@dataclass(frozen=True)
class QuantizedWeight:
    """A module's weight, as a weight format stores it."""

    stored: StoredWeight

    @property
    def format(self) -> WeightFormat:
        """How it is stored."""
        return self.stored.step.format

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""
        return self.stored.step.shape

    @property
    def rows_together(self) -> int:
        """Pieces begin at a multiple of this many rows."""
        return self.format.rows_together

    def f32(self, begin: int, end: int) -> Array:
        """Return rows as the f32 that a loader computes."""
        return self.format.dequantize(self.stored.rows(begin, end), "F32")

    def codes(self, begin: int, end: int) -> Codes:
        """Return the codes and scales of rows."""
        return self.format.codes(self.stored.rows(begin, end))


Weight = PlainWeight | QuantizedWeight


def row_ranges(*weights: Weight) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that all weights can be read in."""
    out, columns = weights[0].shape
    together = int(np.lcm.reduce([weight.rows_together for weight in weights]))
    rows = max(together, ELEMENTS // max(columns, 1) // together * together)
    for begin in range(0, out, rows):
        yield begin, min(begin + rows, out)
