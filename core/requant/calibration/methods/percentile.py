"""Percentiles of a histogram: onnxruntime's PercentileCalibrater."""

from __future__ import annotations

import numpy as np

from requant.calibration.methods.histograms import MagnitudeHistogram, ValueHistogram, ranges_of_histograms
from requant.calibration.methods.method import (
    MAX_BINS,
    Array,
    CalibratedRanges,
    CalibrationMethod,
    CalibrationOptions,
    Target,
    integer_option,
    real_option,
)
from requant.calibration.methods.observed import Observed
from requant.kernels.statistics.histogram import bin_of_share

_PERCENTILE = 99.999
_BINS = 2048


def _find(observed: Observed, options: CalibrationOptions, _: Target) -> CalibratedRanges:
    percentile = real_option(options, "percentile", _PERCENTILE, 100.0)
    bins = integer_option(options, "bins", _BINS, 1, MAX_BINS)
    if options.magnitudes:
        return ranges_of_histograms(
            observed, MagnitudeHistogram, bins, lambda histogram: _around_zero(histogram, percentile)
        )
    return ranges_of_histograms(observed, ValueHistogram, bins, lambda histogram: _between(histogram, percentile))


def _between(histogram: ValueHistogram, percentile: float) -> tuple[Array, Array]:
    cut = (100.0 - percentile) / 200.0
    lows, highs = _edges_at(histogram, cut), _edges_at(histogram, 1.0 - cut)
    return np.maximum(lows, histogram.minimums), np.minimum(highs, histogram.maximums)


def _around_zero(histogram: MagnitudeHistogram, percentile: float) -> tuple[Array, Array]:
    reach = _edges_at(histogram, percentile / 100.0)
    return np.maximum(-reach, histogram.minimums), np.minimum(reach, histogram.maximums)


def _edges_at(histogram: ValueHistogram | MagnitudeHistogram, share: float) -> Array:
    """Return the lower edge of the first bin of each row up to which there is at least `share` of the counts.

    Of a row whose shares add up to less, rounded, it is the last edge.
    """
    rows, columns = histogram.counts.shape
    index = np.empty(rows, np.int64)
    bin_of_share(histogram.counts.reshape(-1), columns, share, index)
    index = np.minimum(index, histogram.bins)
    edges: Array = histogram.edges[np.arange(index.size), index]
    return edges


PERCENTILE = CalibrationMethod(
    name="percentile",
    summary="onnxruntime's PercentileCalibrater, symmetric with magnitudes; several tensors extend the histogram; NaN "
    "is left out, infinity is refused",
    formula="cdf = cumulative sum of counts / total, f64; c = (100 - p) / 200; min = edge[first cdf >= c], max = "
    "edge[first cdf >= 1 - c]; of magnitudes: max = edge[first cdf >= p / 100], min = -max; then within the observed "
    "range",
    source="onnxruntime 1.31 calibrate.py compute_percentile",
    may_cross=True,
    options=frozenset({"percentile", "bins", "magnitudes"}),
    find=_find,
)
