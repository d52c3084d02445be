"""torch's HistogramObserver against its operators in numpy, one after the other."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from requant.calibration.finished_type import PerAxis
from requant.calibration.methods.histograms import _Histogram
from requant.errors import PreconditionError, UnsupportedError
from requant.kernels.statistics.torch_histogram import torch_histc, torch_linspace
from tests.core.calibration.methods.observation import Array, find, samples, target
from tests.oracles.quantization import f32
from tests.oracles.torch_histogram import HistogramObserver, histc
from tests.support.cases import EXHAUSTIVE, sample


def observe(tensors: list[Array], bins: int, bits: int) -> tuple[float, float]:
    observer = HistogramObserver(bins, bits)
    for tensor in tensors:
        observer.observe(tensor)
    low, high = observer.search()
    return float(low), float(high)


@pytest.mark.parametrize(("storage", "bits"), [("u8", 8), ("i8", 8), ("i16", 16)])
def test_ranges(storage: str, bits: int) -> None:
    """One tensor or several, with histograms that move to wider ranges, and infinities, which are left out."""
    rng = np.random.default_rng(bits)
    for _ in range(12):
        bins = int(rng.choice([1, 5, 33, 100, 150]))
        scale = 10.0 ** rng.integers(-9, 9)
        tensors = [samples(rng, 150, scale * rng.choice([0.5, 1, 3])) for _ in range(rng.integers(1, 4))]
        infinite = 0
        for tensor in tensors:
            if rng.random() < 0.3:
                tensor[:2] = np.inf, -np.inf
                infinite += 2
        found = find("torch_histogram", tensors, target(storage), bins=bins)
        with np.errstate(all="ignore"):
            expected = observe(tensors, bins, bits)
        assert (found.minimums[0], found.maximums[0]) == expected
        assert found.left_out == infinite


NEIGHBOURS_OF_2_TO_THE_24 = [2.0**24 + step for step in (-2, -1, 0, 2, 4)] + [2.0**25 + step for step in (-2, 0, 4)]
LARGEST = float(np.finfo(np.float32).max)


VALUES = [0.0, -0.0, 1e-45, 1e-38, 0.5, 1.0, *NEIGHBOURS_OF_2_TO_THE_24, 1e9, 1e30, LARGEST]


@pytest.mark.parametrize(
    ("sign", "value", "bins"), sample(list(product([1, -1], VALUES, [1, 2, 3, 2047, 2048, 2050, 4096])), 60)
)
def test_counts_of_one_number(bins: int, value: float, sign: int) -> None:
    """From 2^24 on, x - 1 or x + 1 is x in f32: the edges are then its neighbours, and nothing is lost."""
    values = np.full(5, sign * value, np.float32)
    histogram = _Histogram.of(values, bins, values[0], values[0], "")
    assert histogram.counts.sum() == 5
    np.testing.assert_array_equal(histogram.counts, histc(values, bins, values[0], values[0]))
    found = find("torch_histogram", [values], bins=bins)
    with np.errstate(all="ignore"):
        assert (found.minimums[0], found.maximums[0]) == observe([values], bins, 8)


@pytest.mark.sample(1)
@pytest.mark.parametrize("bins", [1, 7, 2048])
def test_ranges_of_every_magnitude(bins: int) -> None:
    """Either the range that the oracle finds, or a refusal where torch's arithmetic is undefined or not finite."""
    rng = np.random.default_rng(bins)
    found_any = refused_any = 0
    for _ in range(40 if EXHAUSTIVE else 8):
        scale = 10.0 ** rng.choice([-45, -42, -38, -30, 7, 8, 9, 30, 34, 35, 36, 37, 38])
        tensors = [samples(rng, int(rng.integers(1, 30)), scale) for _ in range(rng.integers(1, 4))]
        tensors = [tensor for tensor in tensors if np.isfinite(tensor).any()]
        if not tensors:
            continue
        expected: tuple[float, float] | None = None
        with np.errstate(all="ignore"), contextlib.suppress(OverflowError):
            expected = observe(tensors, bins, 8)
        try:
            found = find("torch_histogram", tensors, bins=bins)
        except PreconditionError:
            assert expected is None
            refused_any += 1
        else:
            assert (found.minimums[0], found.maximums[0]) == expected
            found_any += 1
    assert found_any > (10 if EXHAUSTIVE else 1)
    assert refused_any or bins == 1


@pytest.mark.parametrize(
    ("values", "first", "last"),
    [
        ([1e9], 1e9, 1e9),  # 0 / 0
        ([0.0, 1.5e38, -1.5e38], -1.5e38, 1.5e38),  # infinity
        ([0.0, 3e38, -3e38], -3e38, 3e38),  # 0, infinity and NaN
        ([np.nan, np.inf, -np.inf, 1.0], 0.0, np.inf),
        ([np.nan, np.inf, 1.0], np.nan, 1.0),
    ],
)
def test_kernel_counts_within_its_bins(values: list[float], first: float, last: float) -> None:
    """Whatever the edges are: an index that is not a number would be written anywhere."""
    guarded = np.zeros(3 * 64, np.float32)
    counts = guarded[64:128]
    torch_histc(np.array(values, np.float32), np.float32(first), np.float32(last), counts)
    assert not guarded[:64].any()
    assert not guarded[128:].any()
    with np.errstate(invalid="ignore"):
        inside = (np.array(values, np.float32) >= np.float32(first)) & (
            np.array(values, np.float32) <= np.float32(last)
        )
    assert counts.sum() == np.count_nonzero(inside)


def test_f16_and_bf16_are_widened() -> None:
    values = samples(np.random.default_rng(1), 100)
    expected = observe([values.astype(np.float16).astype(np.float32)], 64, 8)
    found = find("torch_histogram", [values.astype(np.float16)], bins=64)
    assert (found.minimums[0], found.maximums[0]) == expected
    patterns = (values.view(np.uint32) >> 16).astype(np.uint16)
    expected = observe([(patterns.astype(np.uint32) << 16).view(np.float32)], 64, 8)
    found = find("torch_histogram", [patterns], bins=64)
    assert (found.minimums[0], found.maximums[0]) == expected


def test_what_is_refused() -> None:
    values = np.array([1, 2], np.float32)
    with pytest.raises(UnsupportedError, match="per tensor only"):
        find("torch_histogram", [values], target(granularity=PerAxis(0, 2)), (1,))
    with pytest.raises(UnsupportedError, match="takes f32, f16 and bf16"):
        find("torch_histogram", [values.astype(np.float64)])
    with pytest.raises(UnsupportedError, match="8 or 16 bits"):
        find("torch_histogram", [values], target("i32"))
    with pytest.raises(PreconditionError, match="NaN") as caught:
        find("torch_histogram", [values, np.array([1, np.nan], np.float32)])
    assert (caught.value.index, caught.value.pointer) == (1, "/inputs/1")
    with pytest.raises(PreconditionError, match="every element is infinite"):
        find("torch_histogram", [np.array([np.inf, -np.inf], np.float32)])
    with pytest.raises(PreconditionError, match="the range overflows f32") as caught:
        find("torch_histogram", [values, np.array([-3e38, 3e38], np.float32)])
    assert (caught.value.code, caught.value.pointer) == ("precondition_failed", "/inputs/1")
    with pytest.raises(PreconditionError, match="2048 bins overflows f32") as caught:
        find("torch_histogram", [values, np.array([-1.5e38, 1.5e38], np.float32)])
    assert (caught.value.code, caught.value.pointer) == ("precondition_failed", "/inputs/1")


def test_linspace_has_one_rounding() -> None:
    """Each number is counted from the nearer end, and its product is not rounded."""
    rng = np.random.default_rng(9)
    separately = 0
    for size in (2, 7, 100, 2049):
        first, last = np.sort(rng.normal(size=2)).astype(np.float32)
        found = np.zeros(size, np.float32)
        torch_linspace(first, last, found)
        step = np.float32((last - first) / np.float32(size - 1))
        for index, value in enumerate(found.tolist()):
            near, steps = (first, index) if index < size // 2 else (last, index + 1 - size)
            assert value == f32(Fraction(float(step)) * steps + Fraction(float(near)))
            separately += value != np.float32(step * np.float32(steps)) + near
    assert separately > 50
