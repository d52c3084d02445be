"""The steps of a task as pieces of work: some rows of a weight, or some bytes of a tensor that is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf, isfinite, lcm
from threading import Lock

import numpy as np

from requant.checkpoint.plan.model import (
    CopyStep,
    DequantizeStep,
    GivenStep,
    NotFinite,
    Plan,
    QuantizedSource,
    QuantizeStep,
    Repack,
    Request,
    Step,
    WeightSource,
)
from requant.checkpoint.run.outputs import SourceReader, Stages
from requant.checkpoint.run.stored_weight import (
    Files,
    PlainWeight,
    QuantizedWeight,
    StoredMatrix,
    Weight,
    pieces_of,
    weight_of,
)
from requant.checkpoint.run.verdicts import Verdicts, weight_name
from requant.checkpoint.run.work import Piece
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.storage.store import FileWriter, StoredFile
from requant.checkpoint.weights.blocks import (
    Extremes,
    first_not_below,
    magnitude_kernel,
)
from requant.checkpoint.weights.floats import EPSILON, Array, float_kernels, values
from requant.checkpoint.weights.repack import REPACKING_KERNELS, Inexact, SourceNumbers
from requant.checkpoint.weights.weight_format import PlainRows, Region, StoredRows, WeightFormat
from requant.errors import CheckpointError
from requant.kernels.checkpoint.values import exact_numbers
from requant.kernels.jit.jit import Kernel

_FEWER, NUMBER_BYTES = 4, 64
"""Numbers that are compared are f64, on both sides and in between: bytes for each."""

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
    request: Request
    observe: Observer | None
    verdicts: Verdicts | None = None
    measured: dict[WeightSource, Extremes] = field(default_factory=dict)

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
                self.counter.add(read=source.byte_count)
        for step in steps:
            match step:
                case CopyStep():
                    copied = step.source
                    if self.verdicts is not None:
                        self.verdicts.copied(step.output)
                    file, target = self.files[copied.file], places[step.output].begin
                    yield self.copy(file, copied.begin, copied.end, writer, target)
                case QuantizeStep():
                    yield self._quantize(step, places, writer)
                case DequantizeStep():
                    yield self._dequantize(step, places[step.output].begin, writer)
                case GivenStep():
                    yield iter([Piece(len(step.data), partial(self._write_given, step, places, writer))])

    def _write_given(self, step: GivenStep, places: Mapping[str, StoredMatrix], writer: FileWriter) -> None:
        writer.write(places[step.output].begin, step.data)
        self.counter.add(written=len(step.data))

    def _measure(self, source: WeightSource, weight_format: WeightFormat, into: _Measurement) -> Iterator[Piece]:
        weight = self._weight(source)
        piece, memory_of_row = self._source_piece(weight), _memory_of_row(weight)
        if self._repacks:
            # Numbers are measured, f64.
            piece, memory_of_row = self._compared(piece), memory_of_row + self._compared_memory(weight.shape)
        for begin, end in _row_ranges(weight.shape, source.dtype, weight.rows_together, piece):
            memory = (end - begin) * memory_of_row
            yield Piece(memory, partial(self._measure_piece, weight, weight_format, begin, end, into))

    def _measure_piece(
        self, weight: Weight, weight_format: WeightFormat, begin: int, end: int, into: _Measurement
    ) -> None:
        if self._repacks and isinstance(weight, QuantizedWeight):
            stored = weight.rows(begin, end)
            numbers = weight.format.numbers(stored)
            numbers = numbers[np.isfinite(numbers)]
            if numbers.size:
                into.add(Extremes(float(numbers.min()), float(numbers.max())))
            self.counter.add(read=weight.bytes_of(stored))
            return
        with self._rows(weight, begin, end) as rows:
            if rows.bits.size:
                into.add(weight_format.extremes(rows.bits, weight.source.dtype))
            self.counter.add(read=rows.bytes_read)

    def _quantize(self, step: QuantizeStep, outputs: Mapping[str, StoredMatrix], writer: FileWriter) -> Iterator[Piece]:
        weight, weight_format = self._weight(step.source), step.format
        dtype, shape = step.source.dtype, weight.shape
        extremes = None
        if weight_format.needs_extremes:
            extremes = self.measured[step.source]
            for partner in step.shares_scale_with:
                extremes = extremes.union(self.measured[partner])
        places = {
            stored.suffix: outputs[f"{step.module}.{stored.suffix}"] for stored in weight_format.stored(dtype, shape)
        }
        piece = max(self._source_piece(weight), self._piece(weight_format, dtype, shape, places))
        together = lcm(weight.rows_together, weight_format.rows_together)
        for begin, end in _row_ranges(shape, dtype, together, self._compared(piece)):
            memory = (end - begin) * (_memory_of_row(weight) + _row_bytes(dtype, shape) + self._compared_memory(shape))
            if self._repacks and isinstance(weight, QuantizedWeight):
                run = partial(self._repack_piece, step, weight, begin, end, places, writer, extremes)
            else:
                run = partial(self._quantize_piece, step, weight, begin, end, places, writer, extremes)
            yield Piece(memory, run)

    def _repack_piece(
        self,
        step: QuantizeStep,
        weight: QuantizedWeight,
        begin: int,
        end: int,
        places: Mapping[str, StoredMatrix],
        writer: FileWriter,
        extremes: Extremes | None,
    ) -> None:
        stored, shape = weight.rows(begin, end), weight.shape
        source = SourceNumbers(weight.format.scaled_codes(stored), weight.format.numbers(stored))
        parts = step.format.repacked(source, shape, begin, step.source.dtype, extremes)
        self._compare(step, source.numbers, _held(step, parts, begin, end), begin)
        regions = step.format.regions(step.source.dtype, shape, begin, end)
        self._write_parts(places, [(region, parts[region.suffix]) for region in regions], writer)
        self.counter.add(read=weight.bytes_of(stored))

    def _quantize_piece(
        self,
        step: QuantizeStep,
        weight: Weight,
        begin: int,
        end: int,
        places: Mapping[str, StoredMatrix],
        writer: FileWriter,
        extremes: Extremes | None,
    ) -> None:
        shape = weight.shape
        with self._rows(weight, begin, end) as read:
            rows = read.bits
            refuses = self.request.not_finite is NotFinite.REFUSE
            if refuses:
                if not _is_known_below(step, extremes):
                    _check_values(step, rows, begin)
                if extremes is not None and step.format.overflows(extremes, step.source.dtype):
                    raise _refused_scale(step.source, f"overflows {step.source.dtype}: {_SMALL}")
            parts = step.format.quantized(PlainRows(rows, step.source.dtype, shape, begin), extremes)
            regions = step.format.regions(step.source.dtype, shape, begin, end)
            results = [(region, parts[region.suffix]) for region in regions]
            if refuses and (lost := _lost_scale(step, places, results)) is not None:
                # The value that makes the scale so, if it does, says more.
                _check_values(step, rows, begin)
                raise _refused_scale(step.source, lost)
            if self.verdicts is not None:
                if read.stored is not None and isinstance(weight, QuantizedWeight):
                    numbers = weight.format.numbers(read.stored)
                else:
                    numbers = _plain_numbers(rows, step.source.dtype)
                self._compare(step, numbers, _held(step, parts, begin, end), begin)
            self._write_parts(places, results, writer)
            self.counter.add(read=read.bytes_read)
            if self.observe is not None:
                by_suffix: dict[str, list[tuple[Region, Array]]] = {}
                for region, array in results:
                    by_suffix.setdefault(region.suffix, []).append((region, array))
                self.observe(step, begin, rows, by_suffix)

    def _write_parts(
        self, places: Mapping[str, StoredMatrix], results: Sequence[tuple[Region, Array]], writer: FileWriter
    ) -> None:
        for region, array in results:
            _write(writer, places[region.suffix], region, array)
        self.counter.add(written=sum(array.nbytes for _, array in results))

    @property
    def _repacks(self) -> bool:
        return self.request.repack is not Repack.NO

    def _compare(self, step: QuantizeStep | DequantizeStep, expected: Array, held: Array, begin: int) -> None:
        """Compare the numbers of rows with those that are written. Raises CheckpointError if they have to be equal."""
        if self.verdicts is None:
            return
        floats = isinstance(step, DequantizeStep) or step.format.is_plain
        unlike = self.verdicts.compare(weight_name(step), expected, held, floats=floats)
        if unlike is not None and self.request.repack is Repack.EXACT:
            raise _refused_number(step, unlike, begin)

    def _compared(self, piece: int) -> int:
        """Return the bytes of a piece, fewer where its numbers are compared."""
        return piece if self.verdicts is None else piece // _FEWER

    def _compared_memory(self, shape: tuple[int, int]) -> int:
        """Return the bytes that comparing takes for a row."""
        return 0 if self.verdicts is None else NUMBER_BYTES * shape[1]

    def _dequantize(self, step: DequantizeStep, target: int, writer: FileWriter) -> Iterator[Piece]:
        source = step.source
        weight = QuantizedWeight(Files(self.store, self.files), source)
        piece, within = self._compared(self._source_piece(weight)), weight.rows_within
        for begin, end in _row_ranges(weight.shape, source.dtype, weight.rows_together, piece, within):
            memory = (end - begin) * (_memory_of_row(weight) + self._compared_memory(weight.shape))
            yield Piece(memory, partial(self._dequantize_piece, step, weight, begin, end, writer, target))

    def _dequantize_piece(
        self, step: DequantizeStep, weight: QuantizedWeight, begin: int, end: int, writer: FileWriter, target: int
    ) -> None:
        source, regions = weight.source, weight.regions(begin, end)
        stored = weight.rows(begin, end)
        rows = source.format.dequantize(stored, source.dtype)
        if self.verdicts is not None:
            self._compare(step, source.format.numbers(stored), _plain_numbers(rows, source.dtype), begin)
        data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        writer.write(target + begin * _row_bytes(source.dtype, weight.shape), data)
        self.counter.add(read=weight.bytes_of(stored), written=len(data))
        if self.observe is not None:
            by_region = {suffix: [(region, stored.parts[suffix])] for suffix, region in regions.items()}
            self.observe(step, begin, rows, by_region)

    def _weight(self, source: WeightSource) -> Weight:
        return weight_of(Files(self.store, self.files), source)

    def _source_piece(self, weight: Weight) -> int:
        """Return the bytes of a weight in a piece, from where its rows lie in the source."""
        if isinstance(weight, PlainWeight):
            return self.read_size
        source = weight.source
        places = {suffix: weight.place(suffix) for suffix in source.stored}
        return self._piece(source.format, source.dtype, source.shape, places)

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
    def _rows(self, weight: Weight, begin: int, end: int) -> Iterator[_Rows]:
        """Yield rows of a weight, in memory that is theirs until the context ends."""
        if isinstance(weight, QuantizedWeight):
            stored = weight.rows(begin, end)
            rows = np.ascontiguousarray(weight.format.dequantize(stored, weight.source.dtype))
            yield _Rows(rows, weight.bytes_of(stored), stored)
            return
        source, row = weight.source, _row_bytes(weight.source.dtype, weight.shape)
        with self.buffers.of((end - begin) * row) as data:
            self.store.read_into(self.files[source.file], source.begin + begin * row, data.data)
            rows = data.view(DTYPES[source.dtype].array).reshape(end - begin, weight.shape[1])
            yield _Rows(rows, data.nbytes, None)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a weight as bits of its dtype, how many bytes were read for them, and what of a quantized weight."""

    bits: Array
    bytes_read: int
    stored: StoredRows | None


def kernels_of(plan: Plan) -> tuple[Kernel, ...]:
    """Return the kernels that a run of a plan calls."""
    return kernels_of_steps(plan.steps, plan.request)


def kernels_of_steps(steps: Iterable[Step], request: Request) -> tuple[Kernel, ...]:
    """Return the kernels that some steps call."""
    found: dict[Kernel, None] = {}
    known: set[tuple[WeightFormat, frozenset[str]]] = set()

    def is_new(weight_format: WeightFormat, dtypes: frozenset[str]) -> bool:
        new = (weight_format, dtypes) not in known
        known.add((weight_format, dtypes))
        return new

    for step in steps:
        if request.certify and isinstance(step, QuantizeStep):
            found |= dict.fromkeys(step.format.dequantizing_kernels({step.source.dtype}))
        if isinstance(step, QuantizeStep) and is_new(step.format, frozenset({step.source.dtype})):
            found |= dict.fromkeys(_quantizing_kernels(step.format, step.source.dtype, request.not_finite))
        if not isinstance(step, GivenStep) and isinstance(source := step.source, QuantizedSource):
            dtypes = frozenset({source.dtype, *(each.dtype for each in source.stored.values())})
            if is_new(source.format, dtypes):
                found |= dict.fromkeys(source.format.dequantizing_kernels(dtypes))
    if request.repack is not Repack.NO:
        return (*found, *REPACKING_KERNELS)
    return (*found, exact_numbers) if request.certify else tuple(found)


def _held(step: QuantizeStep, parts: Mapping[str, Array], begin: int, end: int) -> Array:
    """Return the numbers that the stored parts of rows hold."""
    source = step.source
    shape = source.shape[0], source.shape[1]
    dtypes = {stored.suffix: stored.dtype for stored in step.format.stored(source.dtype, shape)}
    return step.format.numbers(StoredRows(parts, dtypes, shape, begin, end))


def _plain_numbers(rows: Array, dtype: str) -> Array:
    return values(rows, dtype).astype(np.float64)


def _quantizing_kernels(weight_format: WeightFormat, dtype: str, not_finite: NotFinite) -> Iterator[Kernel]:
    yield from weight_format.quantizing_kernels(dtype)
    if weight_format.needs_extremes:
        yield from weight_format.extremes_kernels(dtype)
    if weight_format.needs_extremes or not_finite is NotFinite.REFUSE:
        yield from float_kernels((dtype,))
    if not_finite is NotFinite.REFUSE and not (weight_format.needs_extremes or weight_format.scales_show_not_finite):
        yield magnitude_kernel(dtype)


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
    shared: dict[frozenset[WeightSource], list[Step]] = {}
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
    read = (step.source for step in steps if not isinstance(step, GivenStep))
    return sum(source.byte_count for source in (*_measured(steps), *read))


def _measured(steps: Sequence[Step]) -> dict[WeightSource, WeightFormat]:
    """Return the weights whose extremes the steps need, each with the format that needs them."""
    return {
        source: step.format
        for step in steps
        if isinstance(step, QuantizeStep) and step.format.needs_extremes
        for source in (step.source, *step.shares_scale_with)
    }


def _row_bytes(dtype: str, shape: tuple[int, int]) -> int:
    return shape[1] * DTYPES[dtype].bits // 8


def _memory_of_row(weight: Weight) -> int:
    """Return the bytes of a row while it is read: those of the weight, and of what is stored for them."""
    row = _row_bytes(weight.source.dtype, weight.shape)
    return row if isinstance(weight, PlainWeight) else row + max(row, weight.source.byte_count // weight.shape[0])


def _row_ranges(
    shape: tuple[int, int], dtype: str, together: int, piece: int, within: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield the rows of pieces. A weight without rows is one piece, because the tensors stored once for it must be
    written."""
    out, row = shape[0], _row_bytes(dtype, shape)
    rows = max(together, piece // max(row, 1) // together * together)
    if not out:
        yield 0, 0
    yield from pieces_of(out, rows, within)


def _write(writer: FileWriter, place: StoredMatrix, region: Region, array: Array) -> None:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    at = 0
    for begin, end in place.ranges(region):
        writer.write(begin, data[at : at + end - begin])
        at += end - begin


def _refused_number(step: QuantizeStep | DequantizeStep, unlike: Inexact, begin: int) -> CheckpointError:
    source, other = step.source, "choose another scheme or dtype"
    if isinstance(step, QuantizeStep) and step.format.is_plain:
        other = "give the GGUF file of the same model in F32 (--like)"
    return CheckpointError(
        f"tensor {source.tensor} of {source.file} holds {unlike.number!r} at row {begin + unlike.row}, column "
        f"{unlike.column}; it would be stored as {unlike.held!r}, and {unlike.count} numbers of these rows "
        f"are not held exactly: allow rounding (--allow-rounding), or {other}",
        file=source.file,
        tensor=source.tensor,
    )


_SMALL = "the largest magnitude of the weights that share it is too small"


def _refused_value(source: WeightSource, index: int, value: float) -> CheckpointError:
    row, column = divmod(index, source.shape[-1])
    what = f"{value:g}, which is too large for a finite scale," if isfinite(value) else "a NaN or an infinity"
    return CheckpointError(
        f"tensor {source.tensor} of {source.file} holds {what} at flat index {index} (row {row}, column {column}): "
        "quantize a checkpoint without such values, or convert them as the library does (not_finite: convert)",
        file=source.file,
        tensor=source.tensor,
    )


def _refused_scale(source: WeightSource, what: str) -> CheckpointError:
    return CheckpointError(
        f"tensor {source.tensor} of {source.file} has finite values whose scale {what}. Add the module to ignore, "
        "choose another scheme, or convert them as the library does (not_finite: convert)",
        file=source.file,
        tensor=source.tensor,
    )


def _is_known_below(step: QuantizeStep, extremes: Extremes | None) -> bool:
    """Return whether no value of a weight needs to be looked at: its extremes are below the limit, or what is not
    finite will show in the scales."""
    limit = step.format.magnitude_limit(step.source.dtype)
    if extremes is not None:
        return extremes.magnitude < limit
    return limit == inf and step.format.scales_show_not_finite


def _check_values(step: QuantizeStep, rows: Array, begin: int) -> None:
    """Raise CheckpointError for a NaN, an infinity or a magnitude without a scale. `begin`: the first of the rows."""
    dtype, columns = step.source.dtype, step.source.shape[1]
    index = first_not_below(rows, dtype, step.format.magnitude_limit(dtype))
    if index is not None:
        value = float(values(rows.reshape(-1)[index : index + 1], dtype)[0])
        raise _refused_value(step.source, begin * columns + index, value)


def _lost_scale(
    step: QuantizeStep, places: Mapping[str, StoredMatrix], results: Sequence[tuple[Region, Array]]
) -> str | None:
    """Return which scale overflows, and what; None where none does. All values that share it would be lost."""
    for region, array in results:
        dtype = places[region.suffix].dtype
        if dtype not in EPSILON:
            continue
        lost = step.format.overflowed_scales(region.suffix, values(array, dtype))
        if lost.any():
            row, column = (int(each) for each in np.argwhere(lost)[0])
            place = f"[{region.row_begin + row}, {region.column_begin + column}]"
            return f"overflows {dtype}: {region.suffix} {place}"
    return None
