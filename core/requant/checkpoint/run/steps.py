"""The steps of a task as pieces of work: some rows of a weight, or some bytes of a tensor that is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from threading import Lock

import numpy as np

from requant.checkpoint.plan.model import CopyStep, DequantizeStep, NotFinite, QuantizeStep, SourceRange, Step
from requant.checkpoint.run.outputs import SourceReader, Stages
from requant.checkpoint.run.stored_weight import Files, QuantizedWeight, StoredMatrix
from requant.checkpoint.run.work import Piece
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.storage.store import FileWriter, StoredFile
from requant.checkpoint.weights.blocks import first_not_below, whole_extremes
from requant.checkpoint.weights.floats import EPSILON, values
from requant.checkpoint.weights.weight_format import Array, Extremes, Region, WeightFormat
from requant.errors import CheckpointError

PIECE_OF_COLUMNS = 8 << 20
"""Bytes of the source in a piece, at least, where rows of the weight are columns of a stored tensor: else the runs of
bytes would be short."""

Observer = Callable[[Step, int, Array, Mapping[str, list[tuple[Region, Array]]]], None]
"""Called with a step, the first row, the rows of the weight, and what they became by suffix.

The arrays are valid during the call only. Calls come from several threads.
"""


@dataclass(frozen=True)
class Steps(SourceReader):
    """The shared state of the steps of a run."""

    files: Mapping[str, StoredFile]
    not_finite: NotFinite
    observe: Observer | None
    measured: dict[SourceRange, Extremes] = field(default_factory=dict)

    def stages(self, steps: Sequence[Step], places: Mapping[str, StoredMatrix], writer: FileWriter) -> Stages:
        """Yield the stages of a group of steps: sets of pieces, each needing the results of those before.

        `places`: of the tensors in the output, by name.
        """
        for source, weight_format in _measured(steps).items():
            if source not in self.measured:
                measurement = _Measurement()
                yield self._measure(source, weight_format, measurement)
                self.measured[source] = measurement.extremes
            else:
                self.counter.add(read=source.end - source.begin)
        for step in steps:
            match step:
                case CopyStep():
                    copied = step.source
                    file, target = self.files[copied.file], places[step.output].begin
                    yield self.copy(file, copied.begin, copied.end, writer, target)
                case QuantizeStep():
                    yield self._quantize(step, places, writer)
                case DequantizeStep():
                    yield self._dequantize(step, places[step.output].begin, writer)

    def _measure(self, source: SourceRange, weight_format: WeightFormat, into: _Measurement) -> Iterator[Piece]:
        shape = _matrix(source)
        for begin, end in _row_ranges(shape, source.dtype, weight_format.rows_together, self.read_size):
            memory = (end - begin) * _row_bytes(source.dtype, shape)
            yield Piece(memory, partial(self._measure_piece, source, weight_format, begin, end, into))

    def _measure_piece(
        self, source: SourceRange, weight_format: WeightFormat, begin: int, end: int, into: _Measurement
    ) -> None:
        with self._rows(source, begin, end) as rows:
            if rows.size:
                into.add(whole_extremes(rows, source.dtype))
            self.counter.add(read=rows.nbytes)

    def _quantize(self, step: QuantizeStep, outputs: Mapping[str, StoredMatrix], writer: FileWriter) -> Iterator[Piece]:
        dtype, shape, weight_format = step.source.dtype, _matrix(step.source), step.format
        extremes = None
        if weight_format.needs_extremes:
            extremes = self.measured[step.source]
            for partner in step.shares_scale_with:
                extremes = extremes.union(self.measured[partner])
        places = {
            stored.suffix: outputs[f"{step.module}.{stored.suffix}"] for stored in weight_format.stored(dtype, shape)
        }
        piece = self._piece(weight_format, dtype, shape, places)
        for begin, end in _row_ranges(shape, dtype, weight_format.rows_together, piece):
            memory = 2 * (end - begin) * _row_bytes(dtype, shape)
            yield Piece(memory, partial(self._quantize_piece, step, begin, end, places, writer, extremes))

    def _quantize_piece(
        self,
        step: QuantizeStep,
        begin: int,
        end: int,
        places: Mapping[str, StoredMatrix],
        writer: FileWriter,
        extremes: Extremes | None,
    ) -> None:
        shape = _matrix(step.source)
        with self._rows(step.source, begin, end) as rows:
            if self.not_finite is NotFinite.REFUSE:
                limit = step.format.magnitude_limit(step.source.dtype)
                index = first_not_below(rows, step.source.dtype, limit)
                if index is not None:
                    value = float(values(rows.reshape(-1)[index : index + 1], step.source.dtype)[0])
                    raise _refused_value(step.source, begin * shape[1] + index, value)
                if extremes is not None and step.format.overflows(extremes, step.source.dtype):
                    raise _refused_scale(step.source, f"overflows {step.source.dtype}: {_SMALL}")
            results = step.format.quantize(rows, step.source.dtype, shape, begin, extremes)
            if self.not_finite is NotFinite.REFUSE:
                _check_scales(step, places, results)
            for region, array in results:
                _write(writer, places[region.suffix], region, array)
            self.counter.add(read=rows.nbytes, written=sum(array.nbytes for _, array in results))
            if self.observe is not None:
                by_suffix: dict[str, list[tuple[Region, Array]]] = {}
                for region, array in results:
                    by_suffix.setdefault(region.suffix, []).append((region, array))
                self.observe(step, begin, rows, by_suffix)

    def _dequantize(self, step: DequantizeStep, target: int, writer: FileWriter) -> Iterator[Piece]:
        weight = QuantizedWeight(Files(self.store, self.files), step)
        places = {suffix: weight.place(suffix) for suffix in step.stored}
        piece = self._piece(step.format, step.dtype, step.shape, places)
        for begin, end in _row_ranges(step.shape, step.dtype, step.format.rows_together, piece):
            yield Piece(
                2 * (end - begin) * _row_bytes(step.dtype, step.shape),
                partial(self._dequantize_piece, weight, begin, end, writer, target),
            )

    def _dequantize_piece(self, weight: QuantizedWeight, begin: int, end: int, writer: FileWriter, target: int) -> None:
        step, regions = weight.step, weight.regions(begin, end)
        stored = weight.rows(begin, end)
        rows = step.format.dequantize(stored, step.dtype)
        data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        writer.write(target + begin * _row_bytes(step.dtype, step.shape), data)
        self.counter.add(read=sum(stored.parts[suffix].nbytes for suffix in regions), written=len(data))
        if self.observe is not None:
            by_region = {suffix: [(region, stored.parts[suffix])] for suffix, region in regions.items()}
            self.observe(step, begin, rows, by_region)

    def _piece(
        self, weight_format: WeightFormat, dtype: str, shape: tuple[int, int], places: Mapping[str, StoredMatrix]
    ) -> int:
        """Return the bytes of the weight in a piece, from where the second rows lie."""
        together = weight_format.rows_together
        if shape[0] >= 2 * together:
            regions = weight_format.regions(dtype, shape, together, 2 * together)
            if not all(places[region.suffix].is_contiguous(region) for region in regions):
                return max(self.read_size, PIECE_OF_COLUMNS)
        return self.read_size

    @contextmanager
    def _rows(self, source: SourceRange, begin: int, end: int) -> Iterator[Array]:
        """Read rows of a weight into memory that is theirs until the context ends."""
        shape = _matrix(source)
        row = _row_bytes(source.dtype, shape)
        with self.buffers.of((end - begin) * row) as data:
            self.store.read_into(self.files[source.file], source.begin + begin * row, data.data)
            yield data.view(DTYPES[source.dtype].array).reshape(end - begin, shape[1])


class _Measurement:
    """The extremes of the pieces so far."""

    def __init__(self) -> None:
        self._extremes: Extremes | None = None
        self._lock = Lock()

    def add(self, extremes: Extremes) -> None:
        with self._lock:
            self._extremes = extremes if self._extremes is None else self._extremes.union(extremes)

    @property
    def extremes(self) -> Extremes:
        return self._extremes or Extremes(0.0, 0.0)


def group_by_shared_scale(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the steps one by one, those that share a scale together, so that each tensor is measured once."""
    shared: dict[frozenset[SourceRange], list[Step]] = {}
    for step in steps:
        if isinstance(step, QuantizeStep) and step.format.needs_extremes:
            shared.setdefault(frozenset({step.source, *step.shares_scale_with}), []).append(step)
    for step in steps:
        if isinstance(step, QuantizeStep) and step.format.needs_extremes:
            group = shared.pop(frozenset({step.source, *step.shares_scale_with}), None)
            if group is not None:
                yield group
        else:
            yield [step]


def bytes_to_read(steps: Sequence[Step]) -> int:
    """Return how many bytes a run reads for steps from `group_by_shared_scale`, those of the first pass included."""
    total = sum(source.end - source.begin for source in _measured(steps))
    for step in steps:
        sources = step.stored.values() if isinstance(step, DequantizeStep) else [step.source]
        total += sum(source.end - source.begin for source in sources)
    return total


def _measured(steps: Sequence[Step]) -> dict[SourceRange, WeightFormat]:
    """Return the weights whose extremes the steps need."""
    return {
        source: step.format
        for step in steps
        if isinstance(step, QuantizeStep) and step.format.needs_extremes
        for source in (step.source, *step.shares_scale_with)
    }


def _matrix(source: SourceRange) -> tuple[int, int]:
    out, columns = source.shape
    return out, columns


def _row_bytes(dtype: str, shape: tuple[int, int]) -> int:
    return shape[1] * DTYPES[dtype].bits // 8


def _row_ranges(shape: tuple[int, int], dtype: str, together: int, piece: int) -> Iterator[tuple[int, int]]:
    """Yield the rows of pieces. A weight without rows is one piece, because the tensors stored once for it must be
    written."""
    out, row = shape[0], _row_bytes(dtype, shape)
    rows = max(together, piece // max(row, 1) // together * together)
    if not out:
        yield 0, 0
    for begin in range(0, out, rows):
        yield begin, min(begin + rows, out)


def _write(writer: FileWriter, place: StoredMatrix, region: Region, array: Array) -> None:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    at = 0
    for begin, end in place.ranges(region):
        writer.write(begin, data[at : at + end - begin])
        at += end - begin


_SMALL = "the largest magnitude of the weights that share it is too small"


def _refused_value(source: SourceRange, index: int, value: float) -> CheckpointError:
    row, column = divmod(index, source.shape[-1])
    what = f"{value:g}, which is too large for a finite scale," if isfinite(value) else "a NaN or an infinity"
    return CheckpointError(
        f"tensor {source.tensor} of {source.file} holds {what} at flat index {index} (row {row}, column {column}): "
        "quantize a checkpoint without such values, or convert them as the library does (not_finite: convert)",
        file=source.file,
        tensor=source.tensor,
    )


def _refused_scale(source: SourceRange, what: str) -> CheckpointError:
    return CheckpointError(
        f"tensor {source.tensor} of {source.file} has finite values whose scale {what}. Add the module to ignore, "
        "choose another scheme, or convert them as the library does (not_finite: convert)",
        file=source.file,
        tensor=source.tensor,
    )


def _check_scales(
    step: QuantizeStep, places: Mapping[str, StoredMatrix], results: Sequence[tuple[Region, Array]]
) -> None:
    """Raise CheckpointError for a scale of finite values that overflows: all of these values would be lost."""
    for region, array in results:
        dtype = places[region.suffix].dtype
        if dtype not in EPSILON:
            continue
        lost = step.format.overflowed_scales(region.suffix, values(array, dtype))
        if lost.any():
            row, column = (int(each) for each in np.argwhere(lost)[0])
            place = f"[{region.row_begin + row}, {region.column_begin + column}]"
            raise _refused_scale(step.source, f"overflows {dtype}: {region.suffix} {place}")
