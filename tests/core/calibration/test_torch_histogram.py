"""torch's HistogramObserver against its operators in numpy, one after the other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from core.errors import PreconditionError, UnsupportedError
from core.kernels.torch_histogram import torch_linspace
from core.parameters.finished_type import PerAxis
from tests.core.calibration.observation import Array, find, samples, target
from tests.oracle import f32
from tests.torch_histogram_oracle import HistogramObserver


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
    with pytest.raises(PreconditionError, match="overflows f32"):
        find("torch_histogram", [np.array([-3e38, 3e38], np.float32)])


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
