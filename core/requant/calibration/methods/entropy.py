"""The range that keeps most of the information: onnxruntime's EntropyCalibrater."""

from __future__ import annotations

import numpy as np

from requant.calibration.methods.histograms import ValueHistogram, ranges_of_histograms
from requant.calibration.methods.method import (
    MAX_BINS,
    Array,
    CalibrationMethod,
    CalibrationOptions,
    FoundRanges,
    Target,
    integer_option,
    limit_work,
)
from requant.calibration.methods.observed import Observed
from requant.errors import ParameterError
from requant.kernels.statistics.divergence import onnxruntime_divergence

_QUANTIZED_BINS = 128
_BINS = 128

# A second or two on one core.
_MAX_STEPS = 1 << 27


def _find(observed: Observed, options: CalibrationOptions, _: Target) -> FoundRanges:
    bins = integer_option(options, "bins", _BINS, 1, MAX_BINS)
    levels = integer_option(options, "quantized_bins", _QUANTIZED_BINS, 1, MAX_BINS)
    if bins < levels:
        raise ParameterError(
            f"{bins} bins cannot be merged into {levels}: bins must be at least quantized_bins", pointer="/bins"
        )

    def choose(histogram: ValueHistogram) -> tuple[Array, Array]:
        _limit(histogram.bins, levels)
        starts, ends = np.zeros((2, histogram.bins.size), np.int64)
        onnxruntime_divergence(
            histogram.counts.reshape(-1), histogram.bins, histogram.counts.shape[1], levels, starts, ends
        )
        rows = np.arange(starts.size)
        lows, highs = histogram.edges[rows, starts], histogram.edges[rows, ends]
        return np.maximum(lows, histogram.minimums), np.minimum(highs, histogram.maximums)

    _limit(np.full(observed.parameters, bins), levels)
    return ranges_of_histograms(observed, ValueHistogram, bins, choose)


def _limit(bins: Array, levels: int) -> None:
    """Refuse too much work: the lengths of all candidates of all rows."""
    reals = bins.astype(np.float64)
    limit_work(float(((reals * reals - levels * levels) / 4 + reals).sum()), _MAX_STEPS, "bins of all candidates")


ENTROPY = CalibrationMethod(
    name="entropy",
    summary="onnxruntime's EntropyCalibrater; several tensors extend the histogram; NaN is left out, infinity is "
    "refused",
    formula="of the parts of the histogram around its middle, from quantized_bins to all bins, the first with the "
    "smallest KL divergence, in f32, from itself merged into quantized_bins; then within the observed range",
    source="onnxruntime 1.31 calibrate.py get_entropy_threshold",
    may_cross=True,
    options=frozenset({"bins", "quantized_bins"}),
    find=_find,
)
