"""Entropy: the logarithm and the sums that it is made of, to the bit of numpy's, and the ranges against lists."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from requant.errors import LimitError, ParameterError, PreconditionError, UnsupportedError
from requant.kernels.scalar.pairwise_sum import pairwise_sum
from requant.kernels.statistics.divergence import logarithm, onnxruntime_divergence
from tests.core.calibration.methods.observation import Array, find, samples
from tests.oracles import calibration as oracle
from tests.support.cases import EXHAUSTIVE, sample


def _logarithms(values: Array, target: Array) -> None:
    for index in range(values.size):
        target[index] = logarithm(values[index])


def _sum_of(values: Array) -> Any:
    return pairwise_sum(values)


logarithms: Any = numba.njit(_logarithms)
sum_of: Any = numba.njit(_sum_of)


def test_logarithm_is_numpys() -> None:
    """Every significand of one octave, around 1, and every exponent. numpy's own depends on nothing but fused steps."""
    octave = np.arange(0x3F800000, 0x40000000, 1 if EXHAUSTIVE else 7, dtype=np.int32).view(np.float32)
    near_one = np.arange(0x3F7F0000, 0x3F820000, dtype=np.int32).view(np.float32)
    exponents = np.random.default_rng(1).integers(0x00800000, 0x7F800000, 1 << 20, np.int32).view(np.float32)
    for values in (octave, near_one, exponents):
        found = np.empty_like(values)
        logarithms(values, found)
        np.testing.assert_allclose(found, np.log(values.astype(np.float64)), rtol=3e-7)
        if not fused_numpy():
            pytest.skip("numpy's logarithm is without fused steps on this machine")
        assert (found.view(np.int32) == np.log(values).view(np.int32)).all()


def fused_numpy() -> bool:
    features = np.show_config(mode="dicts")["SIMD Extensions"]
    return bool({"FMA3", "AVX512F", "X86_V3", "X86_V4"} & {*features.get("baseline", []), *features.get("found", [])})


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_numpys(dtype: type) -> None:
    rng = np.random.default_rng(2)
    # numpy adds pairs of halves from 129 on.
    sizes = [*sample(range(600), 200), 127, 128, 129, 1000, 1023, 4096, 8191, 8192, 65537]
    for size in sizes:
        values: Array = (rng.normal(size=size) * 10.0 ** rng.integers(-4, 4, size)).astype(dtype)
        assert sum_of(values) == np.sum(values)


def test_onnxruntime() -> None:
    rng = np.random.default_rng(3)
    compared = 0
    for _ in range(250):
        levels = int(rng.choice([1, 2, 5, 16, 31]))
        bins = levels + int(rng.integers(0, 60))
        scale = 10.0 ** rng.integers(-20, 20)
        tensors = [samples(rng, 120, scale) for _ in range(rng.integers(1, 3))]
        if not max(np.abs(t).max() for t in tensors) < 4 * np.abs(tensors[0]).max():
            continue
        found = find("entropy", tensors, bins=bins, quantized_bins=levels)
        with np.errstate(all="ignore"):
            expected = oracle.entropy(tensors, bins, levels)
        assert (found.minimums.tolist(), found.maximums.tolist()) == ([expected[0]], [expected[1]])
        compared += 1
    assert compared > 150


def test_each_parameter_by_itself() -> None:
    rng = np.random.default_rng(4)
    tensor = (rng.normal(size=(9, 70)) * np.exp(rng.normal(size=(9, 70)))).astype(np.float32)
    for blocks in ((1, 70), (9, 10), (4, 32)):
        found = find("entropy", [tensor], blocks=blocks, bins=48, quantized_bins=16)
        for index, group in enumerate(oracle.members(tensor.shape, blocks)):
            expected = oracle.entropy([tensor.ravel()[group]], 48, 16)
            assert (found.minimums[index], found.maximums[index]) == expected


def test_the_first_of_equals_and_no_counts() -> None:
    """A histogram without counts diverges infinitely everywhere: the first candidate is taken."""
    starts, ends = np.zeros((2, 2), np.int64)
    counts = np.zeros((2, 9), np.int64)
    counts[1, 4] = 5
    onnxruntime_divergence(counts.reshape(-1), np.array([8, 9]), 9, 4, starts, ends)
    assert (starts.tolist(), ends.tolist()) == ([2, 2], [7, 7])


def test_fewer_bins_than_levels_are_refused() -> None:
    with pytest.raises(ParameterError, match="100 bins cannot be merged into 128") as caught:
        find("entropy", [np.ones(3, np.float32)], bins=100)
    assert caught.value.pointer == "/bins"


def test_work_is_limited() -> None:
    with pytest.raises(LimitError, match="bins of all candidates"):
        find("entropy", [np.ones((400, 2), np.float32)], blocks=(1, 2), bins=2048)
    with pytest.raises(LimitError, match="bins of all candidates"):
        find("entropy_model_optimizer", [np.ones((400, 2), np.float32)], blocks=(1, 2))
    # Each histogram is small at first.
    grown = [np.array([1, -1], np.float32), np.array([400, -1], np.float32)]
    with pytest.raises(LimitError, match="bins of all candidates"):
        find("entropy", grown)


def test_model_optimizer_per_channel_is_that_of_each_channel() -> None:
    """The ranges themselves are the system's own: `test_vectors`."""
    rng = np.random.default_rng(5)
    tensor = np.stack([samples(rng, 50) for _ in range(6)])
    tensor[2] = 0
    whole = find("entropy_model_optimizer", [tensor], blocks=(1, 50), bins=100, first_bins=20)
    for channel in range(6):
        one = find("entropy_model_optimizer", [tensor[channel]], bins=100, first_bins=20)
        assert (whole.minimums[channel], whole.maximums[channel]) == (one.minimums[0], one.maximums[0])
        assert one.minimums[0] == -one.maximums[0]
    assert whole.maximums[2] == 0


def test_what_the_model_optimizer_does_not_take() -> None:
    values = np.ones(3, np.float32)
    with pytest.raises(UnsupportedError, match="takes one tensor"):
        find("entropy_model_optimizer", [values, values])
    with pytest.raises(UnsupportedError, match="takes f32, f16 and bf16"):
        find("entropy_model_optimizer", [values.astype(np.float64)])
    with pytest.raises(PreconditionError, match="NaN or infinite"):
        find("entropy_model_optimizer", [np.array([1, np.nan], np.float32)])
