"""f16 and bf16 to f32 and back in vectors, with the processor's instructions and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import pytest
from numba import types
from numpy.typing import NDArray

from requant.kernels.jit.jit import Kernel, kernel
from requant.kernels.jit.signature import In, Out
from requant.kernels.simd import narrow, widen
from requant.kernels.simd.memory import load, store
from requant.kernels.simd.vector import LANES
from tests.support.float_samples import SPECIAL, neighbours, patterns

Array = NDArray[Any]
Source = TypeVar("Source")
Target = TypeVar("Target")


def on_arrays(function: Callable[[Any], Any], source: Any, target: Any) -> Kernel:
    @kernel({Source: source, Target: target})
    def convert(values: In[Source], results: Out[Target]) -> None:
        for i in range(0, values.size, LANES):
            store(results, i, function(load(values, i)))

    return convert


def whole_vectors(values: Array) -> Array:
    return np.resize(values, -(-values.size // LANES) * LANES)


def assert_same_floats(found: Array, expected: Array) -> None:
    """All bits, but those of a NaN's payload."""
    nan = np.isnan(expected)
    integer = f"<u{found.itemsize}"
    assert (found.view(integer)[~nan] == expected.view(integer)[~nan]).all()
    assert np.isnan(found[nan]).all()
    assert (np.signbit(found[nan]) == np.signbit(expected[nan])).all()


def samples() -> Array:
    """Every f16 and bf16, every middle between two of either, and the f32 beside those; and anything else."""
    codes = np.arange(1 << 16, dtype="<u2")
    with np.errstate(invalid="ignore", over="ignore"):
        halves = codes.view("<f2").astype("<f4")
        steps = np.unique(np.append(halves[np.isfinite(halves)], [65536.0, -65536.0])).astype("<f4")
        near = neighbours(np.concatenate([steps, (steps[:-1] + steps[1:]) / 2]))
    brains = np.concatenate([codes.astype("<u4") << 16 | low for low in (0x7FFF, 0x8000, 0x8001)]).view("<f4")
    return np.concatenate([halves, near, brains, SPECIAL, patterns(100_000, np.random.default_rng(3))])


@pytest.mark.parametrize("function", ["f16_of_f32", "_f16_of_f32_by_arithmetic", "bf16_of_f32"])
def test_narrowing(function: str) -> None:
    values = whole_vectors(samples())
    to_bf16 = function == "bf16_of_f32"
    if to_bf16:
        # A NaN with nothing in its upper half is none in bf16; none comes out of arithmetic.
        values = values[~(np.isnan(values) & (values.view("<u4") & 0x7FFFFF < 0x400000))]
        values = values[: values.size // LANES * LANES]
    found = np.empty(values.size, np.int16)
    on_arrays(getattr(narrow, function), types.float32, types.int16)(values, found)
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.bfloat16 if to_bf16 else np.float16)
    if to_bf16:
        assert_same_floats(found.view(ml_dtypes.bfloat16), expected)
        return
    bits, nan = values.view("<u4"), np.isnan(values)
    quiet = (bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x1FF).astype("<u2")
    assert np.count_nonzero(nan & (bits & 0x400000 == 0)) > 100, "no signalling NaN"
    assert np.array_equal(found.view("<u2"), np.where(nan, quiet, expected.view("<u2")))


@pytest.mark.parametrize("function", ["f32_of_f16", "_f32_of_f16_by_arithmetic", "f32_of_bf16"])
def test_widening(function: str) -> None:
    codes = np.arange(1 << 16, dtype="<u2")
    found = np.empty(codes.size, np.float32)
    kind = types.uint16 if function == "f32_of_bf16" else types.int16
    on_arrays(getattr(widen, function), kind, types.float32)(codes, found)
    if function == "f32_of_bf16":
        assert np.array_equal(found.view("<u4"), codes.astype("<u4") << 16)
        return
    expected = codes.view("<f2").astype("<f4").view("<u4")
    is_nan = codes & 0x7FFF > 0x7C00
    assert np.array_equal(found.view("<u4"), np.where(is_nan, expected | 0x400000, expected))
