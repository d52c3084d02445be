"""Percentile and entropy calibration against onnxruntime's HistogramCollector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from requant.calibration.methods import calibration_method_named
from requant.calibration.ranges import RangeParameters
from tests.core.calibration.methods.observation import Array, find, target
from tests.interop.calibration_cases import CalibrationComparison, batches, on_a_lattice
from tests.interop.conformance import systems

calibrate: Any = pytest.importorskip("onnxruntime.quantization.calibrate")
quant_utils: Any = pytest.importorskip("onnxruntime.quantization.quant_utils")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

PERCENTILES = (99.999, 99.9, 99.0, 95.0, 90.0, 50.0, 0.0, 100.0)


def collected(
    method: str,
    tensors: Sequence[Array],
    bins: int,
    levels: int = 128,
    share: float = 99.999,
    *,
    symmetric: bool = False,
) -> tuple[Any, Any]:
    """What the collector answers when it is given the tensors one after the other."""
    collector = calibrate.HistogramCollector(method, symmetric, bins, levels, share, "same")
    for tensor in tensors:
        collector.collect({"tensor": tensor})
    low, high, *_ = collector.compute_collection_result()["tensor"]
    return low, high


def parameters(method: str, tensors: Sequence[Array], **options: Any) -> RangeParameters:
    """What we make of the ranges that we find."""
    wanted = target("i8", "onnxruntime")
    return calibration_method_named(method).parameters(find(method, tensors, wanted, **options), wanted)


def quantizer_parameters(ends: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    """What onnxruntime's quantizer makes of the ends that its collector answers."""
    zero_point, scale = quant_utils.compute_scale_zp(*(np.float32(end) for end in ends()), np.int8(-128), np.int8(127))
    return scale, zero_point


@pytest.mark.parametrize("lattice", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_percentile(symmetric: bool, lattice: bool) -> None:
    rng = np.random.default_rng(1)
    comparison = CalibrationComparison(
        "onnxruntime PercentileCalibrater" + (", symmetric" if symmetric else ""), systems.ONNXRUNTIME, "percentile"
    )
    for index in range(1200):
        tensors = on_a_lattice(rng, 4) if lattice else batches(rng, 4)
        bins = int(rng.choice([1, 7, 19, 20, 38, 100, 513, 2048]))
        share = float(rng.choice(PERCENTILES)) if index % 2 else 100 * rng.random()
        theirs = partial(collected, "percentile", tensors, bins, share=share, symmetric=symmetric)
        comparison.add(
            (index, bins, share),
            partial(find, "percentile", tensors, bins=bins, percentile=share, magnitudes=symmetric),
            theirs,
        )
        comparison.add(
            (index, "parameters"),
            partial(parameters, "percentile", tensors, bins=bins, percentile=share, magnitudes=symmetric),
            partial(quantizer_parameters, theirs),
        )
    comparison.finish(1800)


def test_nan() -> None:
    """Left out, but for a first tensor of magnitudes, of which numpy.histogram takes no NaN."""
    rng = np.random.default_rng(2)
    comparison = CalibrationComparison("onnxruntime, with NaN", systems.ONNXRUNTIME, "percentile")
    for index in range(200):
        tensors = batches(rng, 3)
        for tensor in tensors:
            tensor[rng.random(tensor.size) < 0.2] = np.nan
        for symmetric in (False, True):
            comparison.add(
                index,
                partial(find, "percentile", tensors, bins=40, percentile=90.0, magnitudes=symmetric),
                partial(collected, "percentile", tensors, 40, share=90.0, symmetric=symmetric),
            )
    assert comparison.refused > 50
    comparison.finish(150)


@pytest.mark.parametrize("lattice", [False, True])
def test_entropy(lattice: bool) -> None:
    rng = np.random.default_rng(3)
    comparison = CalibrationComparison("onnxruntime EntropyCalibrater", systems.ONNXRUNTIME, "entropy")
    for index in range(400):
        tensors = on_a_lattice(rng, 2) if lattice else batches(rng, 3, steady=True)
        levels = int(rng.choice([1, 2, 7, 16, 40, 128]))
        bins = levels + int(rng.integers(0, 100)) * int(rng.random() < 0.8)
        theirs = partial(collected, "entropy", tensors, bins, levels)
        comparison.add(
            (index, bins, levels),
            partial(find, "entropy", tensors, bins=bins, quantized_bins=levels),
            theirs,
        )
        comparison.add(
            (index, "parameters"),
            partial(parameters, "entropy", tensors, bins=bins, quantized_bins=levels),
            partial(quantizer_parameters, theirs),
        )
    comparison.finish(700)
