"""Where two checkpoints differ, tensor by tensor.

What is compared depends on how the two store a tensor:

    quantized in one way            the codes, in steps; scales that differ are counted
    plain, of one dtype             floats in ulps, integers in steps, all else in bytes
    anything else of one shape      the values in f32, as a loader computes them; in steps of the scale where one side
                                    is quantized to integers

or, whatever the formats are, the numbers that are stored, exactly: a code's value times its scale, before a loader
rounds the product. A scale in two levels is the f32 that the loader makes of both. 0 and -0 are one number, and a NaN
equals a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isfinite, log10, prod

import numpy as np

from requant.checkpoint.gguf.weights import FloatRows
from requant.checkpoint.plan.model import CopyStep, DequantizeStep, Direction, Request, SourceRange
from requant.checkpoint.plan.model_files import quantization_of
from requant.checkpoint.plan.planner import plan_of
from requant.checkpoint.plan.source import read_source
from requant.checkpoint.run.stored_weight import (
    ELEMENTS,
    Files,
    PlainWeight,
    QuantizedWeight,
    Weight,
    row_ranges,
)
from requant.checkpoint.run.work import in_threads
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.storage.store import Store
from requant.checkpoint.weights.floats import Array
from requant.errors import excerpt
from requant.errors.cancellation import check_cancelled

_FLOATS = ("BF16", "F16", "F32", "F64")
_INTEGERS = ("I8", "U8", "I16", "U16", "I32", "U32", "BOOL")


class Unit(StrEnum):
    """The unit of a difference."""

    STEPS = "steps"
    """Of the codes, or of integers; of the scale of b, or of a where only that is quantized."""
    ULPS = "ulps"
    """How many numbers of the dtype lie between, and one."""
    VALUE = "value"
    """The difference of the values in f32."""
    BYTES = "bytes"
    """Elements of other dtypes have equal bytes or not."""


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that is not the same in a and b.

    `detail` says what is different where the elements were not compared: it is in one checkpoint only, or has another
    shape. `differing`: of `elements`. `largest`: the largest difference, in `unit`; None where bytes were compared, or
    a difference is NaN or infinite. `first`: the flat row-major index of the first that differs. `scales_differing`:
    how many scales differ, of quantized weights. `numbers`: the first two that differ, where numbers were compared.
    `signal`, `noise`: where values or numbers were compared, the sums of a^2 and of (a - b)^2.
    """

    tensor: str
    detail: str
    elements: int = 0
    differing: int = 0
    unit: Unit | None = None
    largest: float | None = None
    first: int | None = None
    scales_differing: int = 0
    numbers: tuple[float, float] | None = None
    signal: float | None = None
    noise: float | None = None


def decibels(signal: float, noise: float) -> float | None:
    """Return the signal-to-quantization-noise ratio, 10 log10(signal / noise); None where it is not finite."""
    if not (isfinite(signal) and isfinite(noise) and signal > 0 and noise > 0):
        return None
    return 10 * log10(signal / noise)


@dataclass(frozen=True, slots=True)
class CheckpointDifference:
    """The tensors that differ, by name, and how many were compared."""

    compared: int
    differences: tuple[TensorDifference, ...]


def diff(
    a: Store,
    b: Store,
    *,
    numbers: bool = False,
    threads: int | None = None,
    done: Callable[[str], None] | None = None,
) -> CheckpointDifference:
    """Compare two checkpoints of one model, quantized or not. Quantized weights go by the names that they had before.

    `numbers`: compare the numbers that are stored, whatever the formats and scales are that store them. `done` is
    called with the name of each tensor that was compared. Raises CheckpointError for what is no checkpoint,
    StorageError, SourceChangedError.
    """
    tensors_a, tensors_b = _tensors(a), _tensors(b)
    differences = [TensorDifference(name, "only in a") for name in tensors_a.keys() - tensors_b.keys()]
    differences += [TensorDifference(name, "only in b") for name in tensors_b.keys() - tensors_a.keys()]
    both = sorted(tensors_a.keys() & tensors_b.keys())

    def compare(name: str) -> TensorDifference | None:
        check_cancelled()
        compare = _compare_as_numbers if numbers else _compare
        difference = compare(name, tensors_a[name], tensors_b[name])
        if done is not None:
            done(name)
        return difference

    differences += [each for each in in_threads(compare, both, threads) if each is not None]
    return CheckpointDifference(len(both), tuple(sorted(differences, key=lambda each: each.tensor)))


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of any rank and dtype, or a quantized weight. `kind`: its dtype, or its layout."""

    content: Weight
    kind: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.content.source.tensor_shape

    @property
    def has_values(self) -> bool:
        """Whether it can be read as f32, in rows."""
        return (len(self.shape) > 1 and self.has_numbers) or isinstance(self.content, QuantizedWeight)

    @property
    def has_numbers(self) -> bool:
        """Whether it is of floats."""
        return self.kind in ("BF16", "F16", "F32") or isinstance(self.content, QuantizedWeight)


def _tensors(store: Store) -> dict[str, _Tensor]:
    """Return the tensors of a checkpoint by name; quantized weights by that of the weight."""
    source = read_source(store)
    files = Files.of(store, source.files)

    def plain(stored: SourceRange) -> _Tensor:
        return _Tensor(PlainWeight(files, stored), stored.dtype)

    quantization = {"format": "GGUF"} if source.gguf is not None else quantization_of(source)
    if quantization is None:
        return {
            entry.name: plain(SourceRange.of(name, entry))
            for name, shard in source.shards.items()
            for entry in shard.header.tensors
        }
    layout = excerpt(str(quantization.get("format", quantization.get("quant_method"))))
    tensors: dict[str, _Tensor] = {}
    for step in plan_of(source, Request(Direction.DEQUANTIZE, (), "")).steps:
        if isinstance(step, DequantizeStep):
            kind = step.source.format.dtype if isinstance(step.source.format, FloatRows) else layout
            tensors[step.output] = _Tensor(QuantizedWeight(files, step.source), kind)
        elif isinstance(step, CopyStep):
            tensors[step.output] = plain(step.source)
    return tensors


def _compare_as_numbers(name: str, a: _Tensor, b: _Tensor) -> TensorDifference | None:
    if a.shape != b.shape or not (a.has_numbers and b.has_numbers):
        return _compare(name, a, b)
    of_a, of_b, tally, first = _as_matrix(a.content), _as_matrix(b.content), _Tally(), None
    rows, columns = of_a.shape
    for begin, end in row_ranges(of_a, of_b):
        x, y = of_a.numbers(begin, end), of_b.numbers(begin, end)
        unlike = (x != y) & ~(np.isnan(x) & np.isnan(y))
        with np.errstate(invalid="ignore"):
            distances = np.abs(x - y)
        tally.measure(x, distances)
        tally.add(unlike, distances, begin * columns)
        if first is None and tally.first is not None:
            place = tally.first - begin * columns
            first = float(x.reshape(-1)[place]), float(y.reshape(-1)[place])
    if not tally.differing:
        return None
    detail = "numbers differ" if a.kind == b.kind else f"{a.kind} in a, {b.kind} in b"
    found = _difference(name, detail, rows * columns, tally, Unit.VALUE)
    return replace(found, numbers=first, signal=tally.signal, noise=tally.noise)


def _as_matrix(weight: Weight) -> Weight:
    """Return floats of one axis as rows of one column, others as they are."""
    if isinstance(weight, QuantizedWeight) or len(weight.source.shape) > 1:
        return weight
    return PlainWeight(weight.files, replace(weight.source, shape=(prod(weight.source.shape), 1)))


def _compare(name: str, a: _Tensor, b: _Tensor) -> TensorDifference | None:
    if a.shape != b.shape:
        return TensorDifference(name, f"shape {list(a.shape)} in a, {list(b.shape)} in b")
    x, y = a.content, b.content
    quantized = not x.source.is_plain and not y.source.is_plain
    if quantized and isinstance(x, QuantizedWeight) and isinstance(y, QuantizedWeight) and x.format == y.format:
        return _compare_codes(name, x, y)
    if isinstance(x, PlainWeight) and isinstance(y, PlainWeight) and a.kind == b.kind:
        return _compare_plain(name, x, y)
    detail = f"{a.kind} in a, {b.kind} in b"
    if not (a.has_values and b.has_values):
        return TensorDifference(name, detail)
    return _compare_values(name, x, y, detail)


@dataclass(slots=True)
class _Tally:
    """The differences of a tensor so far."""

    differing: int = 0
    largest: float | None = 0.0
    first: int | None = None
    signal: float = 0.0
    noise: float = 0.0

    def measure(self, values: Array, distances: Array) -> None:
        """Add the squares of a's values, and of their distances from b's, as f64."""
        with np.errstate(all="ignore"):
            self.signal += float(np.square(values).sum())
            self.noise += float(np.square(distances).sum())

    def add(self, unlike: Array, distances: Array | None, begin: int) -> None:
        """Add elements from flat index `begin`: which differ, and by how much."""
        places = np.flatnonzero(unlike)
        if not places.size:
            return
        self.differing += places.size
        if self.first is None:
            self.first = begin + int(places[0])
        largest = None if distances is None else float(distances.reshape(-1)[places].max())
        if largest is None or not isfinite(largest):
            self.largest = None
        elif self.largest is not None:
            self.largest = max(self.largest, largest)


def _compare_codes(name: str, a: QuantizedWeight, b: QuantizedWeight) -> TensorDifference | None:
    tally, scales, of_others = _Tally(), 0, _Tally()
    columns = a.shape[1]
    for begin, end in row_ranges(a, b):
        rows_a, rows_b = a.rows(begin, end), b.rows(begin, end)
        if all(np.array_equal(part, rows_b.parts[suffix]) for suffix, part in rows_a.parts.items()):
            continue
        of_a, of_b = a.format.codes(rows_a), b.format.codes(rows_b)
        distances = np.abs(of_a.codes.astype(np.int32) - of_b.codes)
        tally.add(distances != 0, distances, begin * columns)
        scales += int(np.count_nonzero(of_a.scales.view(np.uint32) != of_b.scales.view(np.uint32)))
        if not tally.differing and not scales:
            x, y = (each.format.dequantize(rows, "F32").view(np.float32) for each, rows in ((a, rows_a), (b, rows_b)))
            with np.errstate(invalid="ignore", over="ignore"):
                unlike = (x != y) & ~(np.isnan(x) & np.isnan(y))
                of_others.add(unlike, np.abs(x.astype(np.float64) - y), begin * columns)
    if not tally.differing and not scales:
        detail, elements = "zero points, or the signs or groups of scales, differ", a.shape[0] * columns
        return _difference(name, detail, elements, of_others, Unit.VALUE) if of_others.differing else None
    detail = "codes differ" if tally.differing else "scales differ"
    return _difference(name, detail, a.shape[0] * columns, tally, Unit.STEPS, scales)


def _compare_values(name: str, a: Weight, b: Weight, detail: str) -> TensorDifference | None:
    tally, unit = _Tally(), Unit.VALUE
    columns = a.shape[1]
    quantized = a if b.source.is_plain else b
    for begin, end in row_ranges(a, b):
        x, y = a.f32(begin, end), b.f32(begin, end)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            distances = np.abs(x.astype(np.float64) - y)
            tally.measure(x.astype(np.float64), distances)
            measures = isinstance(quantized, QuantizedWeight) and not quantized.format.is_plain
            if measures and isinstance(quantized, QuantizedWeight) and (codes := quantized.codes(begin, end)).uniform:
                unit = Unit.STEPS
                width = -(-columns // codes.scales.shape[1])
                distances /= np.abs(np.repeat(codes.scales.astype(np.float64), width, axis=1)[:, :columns])
        unlike = (x != y) & ~(np.isnan(x) & np.isnan(y))
        tally.add(unlike, distances, begin * columns)
    if not tally.differing:
        return None
    found = _difference(name, detail, a.shape[0] * columns, tally, unit)
    return replace(found, signal=tally.signal, noise=tally.noise)


def _compare_plain(name: str, a: PlainWeight, b: PlainWeight) -> TensorDifference | None:
    dtype = DTYPES[a.source.dtype]
    item = max(dtype.bits // 8, 1)
    tally, size = _Tally(), a.source.end - a.source.begin
    together = ELEMENTS * dtype.bits // 8
    unit = Unit.ULPS if dtype.name in _FLOATS else Unit.STEPS if dtype.name in _INTEGERS else Unit.BYTES
    for begin in range(0, size, together):
        end = min(begin + together, size)
        x, y = (
            each.files.read(each.source.file, each.source.begin + begin, each.source.begin + end) for each in (a, b)
        )
        if np.array_equal(x, y):
            continue
        if unit is Unit.BYTES:
            bits: Array = np.bitwise_xor(x, y).view(np.uint8)
            unlike: Array = np.unpackbits(bits, bitorder="little").reshape(-1, dtype.bits).max(axis=1)
            tally.add(unlike, None, begin * 8 // dtype.bits)
            continue
        keys = [_keys(each.view(f"<u{item}"), unit is Unit.ULPS, dtype.array) for each in (x, y)]
        tally.add(x.view(f"<u{item}") != y.view(f"<u{item}"), np.abs(keys[0] - keys[1]), begin // item)
    return _difference(name, "values differ", size * 8 // dtype.bits, tally, unit) if tally.differing else None


def _keys(bits: Array, floats: bool, array: str) -> Array:
    """Return numbers, as f64, whose neighbors differ by 1: integers, or the ordinals of floats."""
    if not floats:
        return bits.view(array).astype(np.float64)
    sign = 1 << (bits.itemsize * 8 - 1)
    magnitudes = (bits & bits.dtype.type(sign - 1)).astype(np.float64)
    keys: Array = np.where(bits >= sign, -magnitudes, magnitudes)
    return keys


def _difference(name: str, detail: str, elements: int, tally: _Tally, unit: Unit, scales: int = 0) -> TensorDifference:
    largest = tally.largest if tally.differing else None
    return TensorDifference(name, detail, elements, tally.differing, unit, largest, tally.first, scales)
