"""Minimum and maximum: every layout and element type against plain lists, in any pieces; and the moving average."""

from __future__ import annotations

import math
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.errors import ParameterError, PreconditionError, UnsupportedError
from requant.kernels.statistics.reduce import MINIMUM_MAXIMUM
from requant.plan.channels import channels_of
from tests.core.calibration.methods.observation import Array, find, samples
from tests.oracles import calibration as oracle

# Shape and block sizes: one tensor, one axis, blocks with short last ones, several axes, short runs, one element.
LAYOUTS = [
    ((5000,), (5000,)),
    ((), ()),
    ((1, 1), (1, 1)),
    ((7, 300), (1, 300)),
    ((300, 7), (300, 1)),
    ((6, 5, 40), (6, 1, 40)),
    ((40, 9, 5), (40, 1, 5)),
    ((10, 64), (1, 32)),
    ((10, 70), (1, 32)),
    ((9, 70), (4, 32)),
    ((9, 7, 11), (2, 3, 4)),
    ((4, 6, 8), (2, 6, 1)),
    ((33, 31), (8, 31)),
]
WIDTHS: dict[int, Any] = {16: np.int16, 32: np.int32, 64: np.int64}
DTYPES = ("<f2", "<u2", "<f4", "<f8")


def data(dtype: str, size: int, rng: np.random.Generator) -> Array:
    """Finite numbers of every exponent; of the first, an eighth are zeros of both signs."""
    bits = rng.integers(0, 2 ** (8 * int(dtype[2])), size, dtype=np.uint64).astype(f"u{dtype[2]}")
    found = bits if dtype == "<u2" else bits.view(dtype)
    found[~np.isfinite(as_reals(found))] = 0
    found[: size // 8] *= 0
    return found


def as_reals(array: Array) -> Array:
    with np.errstate(invalid="ignore"):
        if array.dtype == np.uint16:
            return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return array.astype(np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "blocks"), LAYOUTS)
def test_against_lists(shape: tuple[int, ...], blocks: tuple[int, ...], dtype: str) -> None:
    tensor = data(dtype, prod(shape), np.random.default_rng(prod(shape))).reshape(shape)
    reals = as_reals(tensor).ravel().tolist()
    found = find("min_max", [tensor], blocks=blocks)
    groups = oracle.members(shape, blocks)
    assert found.minimums.tolist() == [min(reals[i] for i in group) for group in groups]
    assert found.maximums.tolist() == [max(reals[i] for i in group) for group in groups]
    assert not np.signbit(found.minimums[found.minimums == 0]).any()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("shape", "blocks"), LAYOUTS)
def test_any_pieces_give_the_same(shape: tuple[int, ...], blocks: tuple[int, ...], width: int) -> None:
    """Also with NaN and infinities, whose keys lie beyond all numbers, and with the pieces in any order."""
    rng = np.random.default_rng(1)
    limits = np.iinfo(WIDTHS[width])
    bits = rng.integers(limits.min, limits.max, prod(shape), WIDTHS[width], endpoint=True)
    channels = channels_of(shape, blocks)
    slots = channels.lay_out(np.zeros(prod(-(-s // b) for s, b in zip(shape, blocks, strict=True))), "<f8").size
    results = []
    for pieces in (1, 2, 5):
        lows, highs = np.full(slots, limits.max, bits.dtype), np.full(slots, limits.min, bits.dtype)
        cuts = [0, *sorted(rng.integers(0, bits.size + 1, pieces - 1).tolist()), bits.size]
        for begin, end in rng.permutation(list(pairwise(cuts))).tolist():
            MINIMUM_MAXIMUM[width, channels.cycle](bits[begin:end], begin, *channels.scalars, lows, highs)
        results.append((lows.tolist(), highs.tolist()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("width", WIDTHS)
def test_keys_have_the_order_of_the_floats(width: int) -> None:
    """All patterns of f16, and many of the others: -NaN, -inf, negative, -0, +0, positive, inf, NaN."""
    rng = np.random.default_rng(2)
    limits = np.iinfo(WIDTHS[width])
    bits = np.arange(limits.min, limits.max + 1) if width == 16 else rng.integers(limits.min, limits.max, 5000)
    bits = bits.astype(WIDTHS[width])
    lows, keys = np.full(bits.size, limits.max, bits.dtype), np.full(bits.size, limits.min, bits.dtype)
    MINIMUM_MAXIMUM[width, True](bits, 0, 1, bits.size, bits.size, 1, lows, keys)
    assert (lows == keys).all()
    floats = bits.view(f"f{width // 8}")
    order = np.argsort(keys, kind="stable")
    ranked = floats[order]
    number = ~np.isnan(ranked)
    assert (np.diff(ranked[number].astype(np.longdouble)) >= 0).all()
    assert np.signbit(ranked[: np.argmax(number)]).all()
    assert not np.signbit(ranked[len(ranked) - np.argmax(number[::-1]) :]).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("odd", [math.nan, -math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused_with_its_index(odd: float, dtype: str) -> None:
    tensor = np.ones(1000, dtype) if dtype != "<u2" else np.full(1000, 0x3F80, np.uint16)
    for index in (700, 300):
        tensor[index] = np.array(odd, np.float32).view(np.uint32) >> 16 if dtype == "<u2" else odd
    for method in ("min_max", "moving_average", "mse"):
        with pytest.raises(PreconditionError, match="NaN or infinite") as caught:
            find(method, [tensor])
        assert (caught.value.index, caught.value.pointer) == (300, "/inputs/0")


def test_nothing_has_no_range() -> None:
    for shape in ((0,), (3, 0)):
        for method in ("min_max", "moving_average", "percentile", "entropy", "mse", "torch_histogram"):
            with pytest.raises(PreconditionError, match="no elements"):
                find(method, [np.zeros(shape, np.float32)])


def test_extremes_of_several_tensors() -> None:
    rng = np.random.default_rng(3)
    tensors = [samples(rng, 60).reshape(6, 10) for _ in range(5)]
    found = find("min_max", tensors, blocks=(4, 3))
    groups = oracle.members((6, 10), (4, 3))
    assert found.minimums.tolist() == [min(t.ravel()[i] for t in tensors for i in group) for group in groups]
    assert found.maximums.tolist() == [max(t.ravel()[i] for t in tensors for i in group) for group in groups]


@given(
    st.lists(
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([0.0, 0.01, 0.1, 0.5, 1 / 3, 1.0]),
)
def test_moving_average(rows: list[list[float]], constant: float) -> None:
    tensors = [np.array(row, np.float32) for row in rows]
    with np.errstate(all="ignore"):
        expected = oracle.moving_average(tensors, constant)
    if not all(math.isfinite(end) for end in expected):
        return
    found = find("moving_average", tensors, averaging_constant=constant)
    assert (found.minimums.tolist(), found.maximums.tolist()) == ([expected[0]], [expected[1]])


def test_moving_average_per_channel_is_that_of_each_channel() -> None:
    rng = np.random.default_rng(4)
    tensors = [samples(rng, 24).reshape(4, 6) for _ in range(4)]
    found = find("moving_average", tensors, blocks=(1, 6), averaging_constant=0.3)
    for channel in range(4):
        expected = oracle.moving_average([tensor[channel] for tensor in tensors], 0.3)
        assert (found.minimums[channel], found.maximums[channel]) == expected


def test_moving_average_reads_f64_as_f32() -> None:
    tensors = [np.array([0.1, -0.7]), np.array([0.3, -0.2])]
    found = find("moving_average", tensors)
    expected = oracle.moving_average([tensor.astype(np.float32) for tensor in tensors], 0.01)
    assert (found.minimums.tolist(), found.maximums.tolist()) == ([expected[0]], [expected[1]])
    with pytest.raises(PreconditionError, match="beyond f32"):
        find("moving_average", [np.array([1e39])])


@pytest.mark.parametrize("constant", [-0.1, 1.1, math.nan, math.inf])
def test_averaging_constant_is_a_weight(constant: float) -> None:
    with pytest.raises(ParameterError, match="from 0 to 1") as caught:
        find("moving_average", [np.ones(2, np.float32)], averaging_constant=constant)
    assert caught.value.pointer == "/averaging_constant"


def test_options_of_other_methods_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="min_max has no option bins; it has none") as caught:
        find("min_max", [np.ones(2, np.float32)], bins=3)
    assert caught.value.pointer == "/bins"
    with pytest.raises(UnsupportedError, match="it has bins, magnitudes, percentile"):
        find("percentile", [np.ones(2, np.float32)], candidates=3)
