"""The range that keeps most of the information: onnxruntime's, and TensorRT's as NVIDIA's Model Optimizer has it."""

from __future__ import annotations

import numpy as np

from requant.calibration.methods.histograms import ValueHistogram, histc, ranges_of_histograms
from requant.calibration.methods.method import (
    MAX_BINS,
    Array,
    CalibratedRanges,
    CalibrationMethod,
    CalibrationOptions,
    Target,
    integer_option,
    limit_work,
)
from requant.calibration.methods.observed import Observed
from requant.errors import ParameterError, UnsupportedError
from requant.errors.cancellation import checked
from requant.kernels.statistics.divergence import model_optimizer_divergence, onnxruntime_divergence
from requant.kernels.statistics.torch_histogram import torch_linspace

_QUANTIZED_BINS = 128
_BINS = 128

# A second or two on one core.
_MAX_STEPS = 1 << 27


def _find(observed: Observed, options: CalibrationOptions, _: Target) -> CalibratedRanges:
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


_MAGNITUDE_BINS = 2048
_QUANTIZED_MAGNITUDE_BINS = 128
_FIRST_BINS = 128

# A second or two on one core.
_MAX_MAGNITUDE_STEPS = 1 << 26


def _find_magnitude(observed: Observed, options: CalibrationOptions, _: Target) -> CalibratedRanges:
    bins = integer_option(options, "bins", _MAGNITUDE_BINS, 2, MAX_BINS)
    levels = integer_option(options, "quantized_bins", _QUANTIZED_MAGNITUDE_BINS, 1, MAX_BINS)
    fewest = integer_option(options, "first_bins", min(_FIRST_BINS, bins), 1, bins)
    limit_work(
        observed.parameters * ((bins * bins - fewest * fewest) / 2 + bins),
        _MAX_MAGNITUDE_STEPS,
        "bins of all candidates",
    )
    if len(observed.arrays) > 1:
        raise UnsupportedError("entropy_model_optimizer takes one tensor", pointer="/inputs")
    if observed.element.name == "f64":
        raise UnsupportedError("entropy_model_optimizer takes f32, f16 and bf16", pointer=f"{observed.places[0]}/type")
    observed.refuse_where(0, lambda reals: ~np.isfinite(reals), "NaN or infinite; this method requires finite values")
    rows, _missing = observed.rows(0)
    magnitudes = np.abs(rows.values)
    reach = np.empty(observed.parameters, np.float32)
    for row, (begin, end) in enumerate(checked(zip(rows.offsets[:-1], rows.offsets[1:], strict=True), 16)):
        reach[row] = _reach(magnitudes[begin:end], bins, levels, fewest, observed.places[0])
    highs = reach.astype(np.float64)
    return CalibratedRanges(0.0 - highs, highs)


def _reach(magnitudes: Array, bins: int, levels: int, fewest: int, pointer: str) -> np.float32:
    """Return the edge that the divergences choose, of a histogram between 0 and the largest magnitude.

    Errors as of `histc`.
    """
    largest = magnitudes.max()
    if largest == 0:
        return np.float32(0)
    counts = histc(magnitudes, np.float32(0), largest, bins, pointer)
    end = np.zeros(1, np.int64)
    model_optimizer_divergence(counts.astype(np.int64), np.array([bins]), bins, levels, fewest, end)
    edges = np.empty(bins + 1, np.float32)
    torch_linspace(np.float32(0), largest, edges)
    return np.float32(edges[end[0]])


ENTROPY_MODEL_OPTIMIZER = CalibrationMethod(
    name="entropy_model_optimizer",
    summary="TensorRT's entropy calibration as NVIDIA's Model Optimizer has it, of one tensor; the range is around 0; "
    "NaN and infinity are refused",
    formula="of the f32 histogram of |x| between 0 and max|x|, the last n from first_bins to all bins with the "
    "smallest KL divergence, in f64, of the first n bins from themselves merged into quantized_bins; max = edge[n], "
    "min = -max",
    source="nvidia-modelopt 0.47 HistogramCalibrator",
    options=frozenset({"bins", "quantized_bins", "first_bins"}),
    find=_find_magnitude,
)
