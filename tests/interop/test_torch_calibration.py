"""The moving average and histogram observers of torch: the ranges that they found, and their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pytest

from requant.calibration.finished_type import PerAxis, PerTensor
from requant.calibration.methods.extremes import MOVING_AVERAGE
from requant.calibration.methods.histograms import TORCH_HISTOGRAM
from requant.errors import PreconditionError
from tests.core.calibration.methods.observation import Array, find, samples, target
from tests.interop.calibration_cases import CalibrationComparison, batches
from tests.interop.conformance import systems

torch: Any = pytest.importorskip("torch")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::UserWarning")]

T = TypeVar("T")
DTYPES = {"i8": "qint8", "u8": "quint8", "i16": "int16"}


def observe(observer: Any, tensors: Sequence[Array]) -> None:
    for tensor in tensors:
        observer(torch.from_numpy(tensor))


def _same(answer: T) -> T:
    return answer


@pytest.mark.parametrize("channels", [1, 3])
def test_moving_average(channels: int) -> None:
    rng = np.random.default_rng(1)
    comparison = CalibrationComparison(
        "torch MovingAverage" + ("PerChannel" if channels > 1 else "") + "MinMaxObserver",
        systems.TORCH,
        "moving_average",
    )
    for index in range(600):
        tensors = [np.stack([each] * channels) * rng.random((channels, 1), np.float32) for each in batches(rng, 6)]
        constant = float(rng.choice([0.01, 0.1, 1 / 3, 0.5, 1.0, 0.0]))
        kind = "MovingAveragePerChannelMinMaxObserver" if channels > 1 else "MovingAverageMinMaxObserver"
        observer = getattr(torch.ao.quantization, kind)(averaging_constant=constant)
        observe(observer, tensors)
        shape = tensors[0].shape
        wanted = target("u8", granularity=PerAxis(0, channels) if channels > 1 else PerTensor())
        blocks = (1, shape[1]) if channels > 1 else shape
        found = find("moving_average", tensors, wanted, blocks, averaging_constant=constant)
        comparison.add(index, partial(_same, found), partial(_same, (observer.min_val, observer.max_val)))
        comparison.add(index, partial(MOVING_AVERAGE.parameters, found, wanted), observer.calculate_qparams)
    comparison.finish(1150 * channels)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("storage", DTYPES)
def test_histogram(storage: str, symmetric: bool) -> None:
    """torch's search takes about a second for each."""
    rng = np.random.default_rng(len(storage) + symmetric)
    comparison = CalibrationComparison(f"torch HistogramObserver, {storage}", systems.TORCH, "torch_histogram")
    for index in range(25):
        tensors = batches(rng, 4, exponents=9)
        for tensor in tensors:
            if rng.random() < 0.2 and tensor.size > 2:
                tensor[0] = np.inf
        bins = int(rng.choice([2048, 256, 100, 7, 1]))
        observer = torch.ao.quantization.HistogramObserver(
            bins=bins,
            dtype=getattr(torch, DTYPES[storage]),
            qscheme=torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine,
        )
        observe(observer, tensors)
        ends = [end.item() for end in observer._non_linear_param_search()]
        wanted = target(storage, symmetric=symmetric)
        found = find("torch_histogram", tensors, wanted, bins=bins)
        comparison.add((index, bins), partial(_same, found), partial(_same, ends))
        if index % 5 == 0:
            comparison.add(index, partial(TORCH_HISTOGRAM.parameters, found, wanted), observer.calculate_qparams)
    comparison.finish(30)


@pytest.mark.parametrize("bins", [1, 7, 2048, 2050])
def test_histogram_of_every_magnitude(bins: int) -> None:
    """Single numbers beyond 2^24, whose neighbours are farther than 1, and ranges up to the largest and the smallest.

    Where (x - minimum) * bins overflows, torch converts infinity to an integer, which C++ leaves undefined, and where
    the range overflows it counts nothing: those are errors here.
    """
    rng = np.random.default_rng(bins)
    comparison = CalibrationComparison(
        f"torch HistogramObserver, f32 of every magnitude, {bins} bins", systems.TORCH, "torch_histogram"
    )
    undefined = 0
    for index in range(50):
        scale = 10.0 ** rng.integers(-46, 39)
        tensors = [samples(rng, int(rng.integers(1, 40)), scale) for _ in range(rng.integers(1, 4))]
        if index % 3 == 0:
            tensors[0] = np.full(3, rng.choice([-1, 1]) * 2.0 ** rng.integers(22, 128), np.float32)
        tensors = [tensor for tensor in tensors if np.isfinite(tensor).any()]
        if not tensors:
            continue
        try:
            found = find("torch_histogram", tensors, bins=bins)
        except PreconditionError:
            finite = np.concatenate(tensors)
            finite = finite[np.isfinite(finite)]
            assert (float(finite.max()) - float(finite.min())) * bins > float(np.finfo(np.float32).max)
            undefined += 1
            continue
        if index % 5 > 1:  # torch takes a second
            continue
        observer = torch.ao.quantization.HistogramObserver(bins=bins)
        observe(observer, tensors)
        ends = [end.item() for end in observer._non_linear_param_search()]
        comparison.add((index, bins), partial(_same, found), partial(_same, ends))
    assert undefined or bins < 2048
    comparison.finish(12)
