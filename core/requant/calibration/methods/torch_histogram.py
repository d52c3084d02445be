"""torch's HistogramObserver: a histogram over all tensors, narrowed while that makes the quantization error smaller.

Bit for bit as torch computes it on x86 with AVX2, whatever this machine is: the order of its sums and one fused step
are its vector unit's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.calibration.methods.method import (
    Array,
    CalibrationMethod,
    CalibrationOptions,
    FoundRanges,
    Target,
    integer_option,
)
from requant.calibration.methods.observed import Observed
from requant.calibration.methods.torch_histc import histc
from requant.errors import PreconditionError, UnsupportedError
from requant.errors.cancellation import check_cancelled
from requant.kernels.statistics.torch_histogram import torch_search, torch_stretch
from requant.mlir.printer import print_storage
from requant.plan.lanes import widen

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


def _find(observed: Observed, options: CalibrationOptions, target: Target) -> FoundRanges:
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
    return FoundRanges(np.array([low]), np.array([high]), left_out)


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
