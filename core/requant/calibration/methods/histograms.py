"""Histograms of values and of magnitudes, as the methods of each system count and read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from requant.calibration.methods.method import (
    MAX_GROWN_BINS,
    Array,
    CalibratedRanges,
    CalibrationMethod,
    CalibrationOptions,
    Target,
    integer_option,
    limit_work,
)
from requant.calibration.methods.observed import Observed, Rows
from requant.errors import LimitError, PreconditionError, UnsupportedError
from requant.errors.cancellation import check_cancelled
from requant.kernels.statistics.histogram import EQUAL_EDGES, HISTOGRAM, HISTOGRAM_BETWEEN, shift_counts
from requant.kernels.statistics.torch_histogram import torch_histc, torch_search, torch_stretch
from requant.mlir.printer import print_storage
from requant.plan.float_arrays import widen


@dataclass(slots=True)
class ValueHistogram:
    """One histogram for each row. `counts` and `edges` have as many columns as the longest needs.

    `first` is what messages count the rows from.
    """

    first: int
    bins: Array
    counts: Array
    edges: Array
    thresholds: Array
    minimums: Array
    maximums: Array

    @classmethod
    def of(cls, first: int, rows: Rows, bins: int) -> ValueHistogram:
        """Return the histogram of the first tensor. Errors as of `add`."""
        lows, highs = rows.extremes()
        thresholds = np.maximum(np.abs(lows), np.abs(highs))
        nothing = np.zeros((lows.size, bins), np.int64)
        histogram = cls(first, np.full(lows.size, bins), nothing, nothing, thresholds, lows, highs)
        histogram._count(rows)
        return histogram

    def add(self, rows: Rows) -> None:
        """Add another tensor.

        Raise PreconditionError where numpy refuses: edges that do not ascend, because the floats between them are too
        few or their distance overflows. Raise LimitError when a histogram would have more than MAX_GROWN_BINS bins.
        """
        lows, highs = rows.extremes()
        self._grow(np.maximum(np.abs(lows), np.abs(highs)))
        self._count(rows)
        self.minimums = np.minimum(self.minimums, lows)
        self.maximums = np.maximum(self.maximums, highs)

    def _grow(self, thresholds: Array) -> None:
        old, bins = self.thresholds, self.bins
        real = old.dtype.type
        grown = (thresholds > old) & (old != 0)
        with np.errstate(all="ignore"):
            width = real(2) * old / bins.astype(old.dtype)
            added = np.where(grown, (thresholds - old) // width + real(1), real(0))
        check_growth(self.first, bins + 2.0 * added)
        self.thresholds = np.where(grown, added * width + old, np.maximum(old, thresholds))
        shifts = added.astype(np.int64)
        self.bins = bins + 2 * shifts
        if shifts.any():
            columns = int(self.bins.max())
            widened = np.zeros((bins.size, columns), np.int64)
            shift_counts(self.counts.reshape(-1), self.counts.shape[1], bins, shifts, columns, widened.reshape(-1))
            self.counts = widened

    def _count(self, rows: Rows) -> None:
        half = self.thresholds.dtype.type(0.5)
        reach = np.where(self.thresholds == 0, half, self.thresholds)
        self.edges = equal_edges(self.first, -reach, reach, self.bins)
        HISTOGRAM[reach.dtype.str](
            rows.values, rows.offsets, -reach, reach, self.bins, self.counts.shape[1], self.counts.reshape(-1)
        )


def equal_edges(row: int, firsts: Array, lasts: Array, bins: Array) -> Array:
    """Return the edges of `bins` bins of equal width in each row, in the dtype of `firsts`; infinity after the last.

        edge(i) = i * ((last - first) / n) + first        edge(n) = last

    Raise PreconditionError where they do not ascend. `row` is what its message counts the rows from.
    """
    edges = np.empty((bins.size, int(bins.max()) + 1), firsts.dtype)
    wrong = EQUAL_EDGES[firsts.dtype.str](firsts, lasts, bins, edges.shape[1], edges.reshape(-1))
    refuse_edges(row, np.arange(bins.size) == wrong)
    return edges


def refuse_edges(row: int, wrong: Array) -> None:
    """Raise PreconditionError if there is a histogram with `wrong` edges. `row` is the number of the first."""
    if wrong.any():
        raise PreconditionError(
            f"range {row + int(np.argmax(wrong))} has no histogram: its numbers are too close to each other, or too "
            "far apart, for that many bins in their precision"
        )


def check_growth(row: int, bins: Array) -> None:
    """Raise LimitError if there is a histogram with more than MAX_GROWN_BINS bins, or with infinitely many, or NaN."""
    if not (bins <= MAX_GROWN_BINS).all():
        which = row + int(np.argmax(~(bins <= MAX_GROWN_BINS)))
        raise LimitError(
            f"the histogram of range {which} would grow to more than {MAX_GROWN_BINS} bins: a later tensor has a "
            "far larger range than the first",
            limit=MAX_GROWN_BINS,
        )


@dataclass(slots=True)
class MagnitudeHistogram:
    """One histogram for each row. `counts` and `edges` have as many columns as the longest needs.

    `first` is what messages count the rows from.
    """

    first: int
    bins: Array
    counts: Array
    edges: Array
    minimums: Array
    maximums: Array

    @classmethod
    def of(cls, first: int, rows: Rows, bins: int) -> MagnitudeHistogram:
        """Return the histogram of the first tensor. Errors as of `add`."""
        magnitudes = Rows(np.abs(rows.values), rows.offsets)
        firsts, lasts = magnitudes.extremes()
        half = np.where(firsts == lasts, firsts.dtype.type(0.5), firsts.dtype.type(0))
        firsts, lasts = firsts - half, lasts + half
        widths = np.full(firsts.size, bins)
        counts = np.zeros((firsts.size, bins), np.int64)
        histogram = cls(first, widths, counts, equal_edges(first, firsts, lasts, widths), *rows.extremes())
        HISTOGRAM[firsts.dtype.str](
            magnitudes.values, rows.offsets, firsts, lasts, histogram.bins, bins, counts.reshape(-1)
        )
        return histogram

    def add(self, rows: Rows) -> None:
        """Add another tensor.

        Raise PreconditionError where numpy refuses: edges that descend. Raise LimitError when a histogram would have
        more than MAX_GROWN_BINS bins.
        """
        magnitudes = Rows(np.abs(rows.values), rows.offsets)
        edges = self._grown_edges(magnitudes.extremes()[1])
        HISTOGRAM_BETWEEN[magnitudes.values.dtype.str](
            magnitudes.values,
            rows.offsets,
            edges.reshape(-1),
            self.bins,
            self.counts.shape[1],
            self.counts.reshape(-1),
        )
        self.edges = edges.astype(self.edges.dtype)
        lows, highs = rows.extremes()
        self.minimums = np.minimum(self.minimums, lows)
        self.maximums = np.maximum(self.maximums, highs)

    def _grown_edges(self, largest: Array) -> Array:
        """Make room for magnitudes up to `largest` in each row, and return the edges to count between, as f64.

        numpy.arange gives f64 even for f32. The edges are rounded to the data's precision after the counting.
        """
        last = self.edges[np.arange(self.bins.size), self.bins]
        added: dict[int, Array] = {}
        for row in np.flatnonzero(largest > last).tolist():
            width, top = self.edges[row, 1] - self.edges[row, 0], largest[row]
            with np.errstate(all="ignore"):
                check_growth(self.first + row, self.bins[row] + np.array([(top - last[row]) / width]))
            added[row] = np.arange(last[row] + width, top + width, width)
        bins = self.bins.copy()
        for row, new in added.items():
            bins[row] += new.size
        columns = int(bins.max())
        counts = np.zeros((bins.size, columns), np.int64)
        counts[:, : self.counts.shape[1]] = self.counts
        edges = np.full((bins.size, columns + 1), np.inf)
        edges[:, : self.edges.shape[1]] = self.edges
        for row, new in added.items():
            edges[row, self.bins[row] + 1 : bins[row] + 1] = new
        refuse_edges(self.first, np.logical_or.reduce(edges[:, :-1] > edges[:, 1:], axis=1))
        self.bins, self.counts = bins, counts
        return edges


def histc(values: Array, first: np.float32, last: np.float32, bins: int, pointer: str) -> Array:
    """Return f32 counts of f32 values, all within `first` and `last`, in bins of equal width.

        bin(x) = trunc(f32(f32(f32(x - first) * bins) / f32(last - first)))

    torch converts the quotient to an integer unchecked: where the product overflows, the bin is undefined in C++ (on
    x86 it happens to be the first). Raise PreconditionError there, and for a range that overflows f32, of which torch
    counts nothing. Source: torch 2.13, ATen HistogramKernel.cpp.
    """
    with np.errstate(over="ignore"):
        if np.isinf(last - first):
            raise PreconditionError("the range overflows f32, which torch computes in", pointer=pointer)
        if np.isinf((values.max() - first) * np.float32(bins)):
            raise PreconditionError(
                f"(x - minimum) * {bins} bins overflows f32, which torch computes in; use fewer bins or scale the data",
                pointer=pointer,
            )
    counts = np.zeros(bins, np.float32)
    torch_histc(values, first, last, counts)
    return counts


_BINS = 2048
_MAX_BINS = 4096
_WIDTHS = (8, 16)


@dataclass(slots=True)
class _Histogram:
    """Counts in f32 between two f32 ends."""

    counts: Array
    minimum: np.float32
    maximum: np.float32

    @classmethod
    def of(cls, values: Array, bins: int, minimum: np.float32, maximum: np.float32, pointer: str) -> _Histogram:
        """Count values, all of which lie between the two ends, in bins of equal width. Errors as of `histc`."""
        counts = histc(values, *_outer_edges(minimum, maximum), bins, pointer)
        return cls(counts, minimum, maximum)

    def with_older(self, older: _Histogram, pointer: str) -> _Histogram:
        """Return this histogram with the counts of one whose ends are the same or within this one's."""
        if (older.minimum, older.maximum) == (self.minimum, self.maximum):
            moved = older.counts
        elif older.minimum == older.maximum:
            value = np.array([older.minimum])
            place = _Histogram.of(value, self.counts.size, self.minimum, self.maximum, pointer)
            moved = place.counts * older.counts.sum()
        else:
            moved = np.zeros_like(self.counts)
            torch_stretch(older.counts, older.minimum, older.maximum, self.minimum, self.maximum, moved)
        return _Histogram(self.counts + moved, self.minimum, self.maximum)


def _outer_edges(minimum: np.float32, maximum: np.float32) -> tuple[np.float32, np.float32]:
    """Return the edges of torch.histc. Equal ones move apart by 1 or to the next f32, whichever is farther."""
    if minimum != maximum:
        return minimum, maximum
    limits, one = np.finfo(np.float32), np.float32(1.0)
    first = min(np.nextafter(minimum, limits.min), minimum - one)
    last = max(np.nextafter(maximum, limits.max), maximum + one)
    return first, last


def _find(observed: Observed, options: CalibrationOptions, target: Target) -> CalibratedRanges:
    bins = integer_option(options, "bins", _BINS, 1, _MAX_BINS)
    width = target.storage.width
    if observed.parameters != 1:
        raise UnsupportedError("torch_histogram is per tensor only, as torch's observer", pointer="/granularity")
    if observed.element.name == "f64":
        raise UnsupportedError("torch_histogram takes f32, f16 and bf16", pointer=f"{observed.places[0]}/type")
    if width not in _WIDTHS:
        raise UnsupportedError(
            f"torch_histogram has storage of 8 or 16 bits; this is {print_storage(target.storage)}", pointer="/storage"
        )
    histogram, left_out = None, 0
    for index in range(len(observed.arrays)):
        check_cancelled()
        observed.refuse_where(index, np.isnan, "NaN; this method does not support NaN")
        values = widen(observed.arrays[index], observed.element)
        finite = values[~np.isinf(values)]
        left_out += values.size - finite.size
        if not finite.size:
            continue
        minimum, maximum = finite.min(), finite.max()
        if histogram is not None:
            minimum, maximum = min(minimum, histogram.minimum), max(maximum, histogram.maximum)
        pointer = observed.places[index]
        counted = _Histogram.of(finite, bins, minimum, maximum, pointer)
        histogram = counted if histogram is None else counted.with_older(histogram, pointer)
    if histogram is None:
        raise PreconditionError("every element is infinite", pointer=observed.places[0])
    bounds = np.zeros(2, np.float32)
    torch_search(histogram.counts, histogram.minimum, histogram.maximum, 1 << width, bounds)
    low, high = bounds.astype(np.float64)
    return CalibratedRanges(np.array([low]), np.array([high]), left_out)


TORCH_HISTOGRAM = CalibrationMethod(
    name="torch_histogram",
    summary="torch's HistogramObserver, per tensor; infinity is left out, NaN is refused",
    formula="bins between min x and max x, in f32; narrowed by 1e-5 of the counts at a time, on the side that gains "
    "more bins, while the squared error of 2^bits equal steps, with the counts of a bin spread evenly over it, does "
    "not grow",
    source="torch 2.13 HistogramObserver",
    scheme="torch_observer",
    options=frozenset({"bins"}),
    find=_find,
)


Histogram = TypeVar("Histogram", ValueHistogram, MagnitudeHistogram)

# Counts at a time. Histograms grow from there, each to 32 times as many and more.
_MAX_COUNTS = 1 << 17
# Counts that are made or moved in all, for all rows and tensors: about a second; and what one more row of
# magnitudes costs that grows.
_MAX_STEPS = 1 << 28
_STEPS_OF_ROW = 1 << 12


def ranges_of_histograms(
    observed: Observed,
    kind: type[Histogram],
    bins: int,
    choose: Callable[[Histogram], tuple[Array, Array]],
) -> CalibratedRanges:
    """Make a histogram of each parameter's elements in all tensors, and let `choose` find their ranges.

    NaN is left out and counted, but a first tensor for magnitudes must have none. Raise PreconditionError for
    infinities, and for a parameter that has only NaN in a tensor.
    """
    if kind is MagnitudeHistogram:
        observed.refuse_where(0, np.isnan, "NaN; this method does not allow it in the first tensor")
    batches, missing = zip(*(observed.rows(index) for index in range(len(observed.arrays))), strict=True)
    ranges = [choose(histogram) for histogram in _histograms(observed.parameters, list(batches), kind, bins)]
    lows, highs = (np.concatenate(ends).astype(np.float64) for ends in zip(*ranges, strict=True))
    return CalibratedRanges(lows, highs, sum(missing))


def _histograms(parameters: int, batches: list[Rows], kind: type[Histogram], bins: int) -> Iterator[Histogram]:
    at_once = max(1, _MAX_COUNTS // (bins + 1))
    steps = 0
    for begin in range(0, parameters, at_once):
        check_cancelled()
        end = min(begin + at_once, parameters)
        histogram = kind.of(begin, batches[0].part(begin, end), bins)
        steps += histogram.counts.size
        for batch in batches[1:]:
            check_cancelled()
            limit_work(steps, _MAX_STEPS, "bins of all ranges in all tensors")
            before = histogram.bins
            histogram.add(batch.part(begin, end))
            steps += histogram.counts.size
            if kind is MagnitudeHistogram:
                steps += _STEPS_OF_ROW * int(np.count_nonzero(histogram.bins != before))
        yield histogram
