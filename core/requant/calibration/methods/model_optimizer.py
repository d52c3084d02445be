"""TensorRT's entropy calibration as NVIDIA's Model Optimizer has it: the part of a histogram of |x| that tells most."""

from __future__ import annotations

import numpy as np

from requant.calibration.methods.histograms import histc
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
from requant.errors import UnsupportedError
from requant.errors.cancellation import checked
from requant.kernels.statistics.divergence import model_optimizer_divergence
from requant.kernels.statistics.torch_histogram import torch_linspace

_BINS = 2048
_QUANTIZED_BINS = 128
_FIRST_BINS = 128

# A second or two on one core.
_MAX_STEPS = 1 << 26


def _find(observed: Observed, options: CalibrationOptions, _: Target) -> FoundRanges:
    bins = integer_option(options, "bins", _BINS, 2, MAX_BINS)
    levels = integer_option(options, "quantized_bins", _QUANTIZED_BINS, 1, MAX_BINS)
    fewest = integer_option(options, "first_bins", min(_FIRST_BINS, bins), 1, bins)
    limit_work(observed.parameters * ((bins * bins - fewest * fewest) / 2 + bins), _MAX_STEPS, "bins of all candidates")
    if len(observed.arrays) > 1:
        raise UnsupportedError("entropy_model_optimizer takes one tensor", pointer="/inputs")
    if observed.element.name == "f64":
        raise UnsupportedError("entropy_model_optimizer takes f32, f16 and bf16", pointer=f"{observed.places[0]}/type")
    observed.refuse_where(0, lambda lanes: ~np.isfinite(lanes), "NaN or infinite; this method requires finite values")
    rows, _missing = observed.rows(0)
    magnitudes = np.abs(rows.values)
    reach = np.empty(observed.parameters, np.float32)
    for row, (begin, end) in enumerate(checked(zip(rows.offsets[:-1], rows.offsets[1:], strict=True), 16)):
        reach[row] = _reach(magnitudes[begin:end], bins, levels, fewest, observed.places[0])
    highs = reach.astype(np.float64)
    return FoundRanges(0.0 - highs, highs)


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
    find=_find,
)
