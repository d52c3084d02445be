"""a * b + c without an instruction for it: rounded once, against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.kernels.jit.jit import Kernel, intrinsic, kernel
from requant.kernels.jit.signature import F32, In, Out
from requant.kernels.scalar.multiply_add import _by_rounding_to_odd
from requant.kernels.simd.memory import load, store
from requant.kernels.simd.vector import LANES
from tests.support.cases import EXHAUSTIVE


@intrinsic
def emulated(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    return a(a, b, c), lambda context, builder, signature, arguments: _by_rounding_to_odd(builder, *arguments)


@kernel()
def of_numbers(a: In[F32], b: In[F32], c: In[F32], target: Out[F32]) -> None:
    for i in range(a.size):
        target[i] = emulated(a[i], b[i], c[i])


@kernel()
def of_vectors(a: In[F32], b: In[F32], c: In[F32], target: Out[F32]) -> None:
    for i in range(0, a.size, LANES):
        store(target, i, emulated(load(a, i), load(b, i), load(c, i)))


def nearest_f32(exact: Fraction) -> float:
    """RNE, also to subnormals; overflow gives infinity."""
    magnitude = abs(exact)
    exponent = -126
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    last_place = Fraction(2) ** (exponent - 23)
    rounded = round(magnitude / last_place) * last_place
    value = float("inf") if rounded >= Fraction(2) ** 128 else float(rounded)
    return -value if exact < 0 else value


def operands() -> NDArray[np.float32]:
    """Rows of a, b and c: products a hair beside half of c's last place, which f64 alone rounds to a tie; products near
    subnormals, near the largest f32, and of any bits."""
    random = np.random.default_rng(5)
    count = 3000 if EXHAUSTIVE else 300
    i = random.integers(1, 5, count)
    a = ((1 << 23) + i) * 2.0 ** random.integers(-40, 40, count)
    b = ((1 << 23) - i) * random.choice([-1.0, 1.0], count) * 2.0**-40
    # a * b is just below a power of two, half of the last place of c or a quarter of it.
    half = np.floor(np.log2(np.abs(a * b))) + 1
    c = ((1 << 23) + random.integers(0, 1 << 20, count)) * 2.0 ** (half + random.integers(0, 3, count))
    beside_ties = np.stack([a, b, c * random.choice([-1.0, 1.0], count)])
    wide = random.integers(-(1 << 24), 1 << 24, (6, count))
    tiny = np.stack([wide[0] * 2.0**-80, wide[1] * 2.0**-93, wide[2] * 2.0**-149])
    large = np.stack([wide[3] * 2.0**60, wide[4] * 2.0**20, wide[5] * 2.0**103])
    bits = random.integers(0, 1 << 32, (3, count), np.uint32).view(np.float32)
    any_bits = np.where(np.isfinite(bits), bits, np.float32(0.5))
    cancelling = np.stack([a, b, -(a * b).astype(np.float32)])
    return np.concatenate([beside_ties, tiny, large, any_bits, cancelling], axis=1).astype(np.float32)


@pytest.mark.parametrize("run", [of_numbers, of_vectors], ids=["numbers", "vectors"])
def test_it_is_rounded_once(run: Kernel) -> None:
    a, b, c = operands()
    target = np.zeros_like(a)
    whole = a.size - a.size % LANES
    run(a[:whole].copy(), b[:whole].copy(), c[:whole].copy(), target[:whole])
    expected = [
        nearest_f32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a[:whole], b[:whole], c[:whole], strict=True)
    ]
    assert target[:whole].tolist() == expected
    with np.errstate(over="ignore"):
        in_f64 = (a.astype(np.float64) * b + c).astype(np.float32)
    assert np.count_nonzero(in_f64[:whole] != target[:whole]) > (100 if EXHAUSTIVE else 10), (
        "no case that f64 alone rounds twice"
    )


def test_infinities_nan_and_zeros() -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38], np.float32)
    a, b, c = (each.ravel().copy() for each in np.meshgrid(values, values, values))
    target = np.zeros_like(a)
    of_vectors(a, b, c, target)
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64) * b.astype(np.float64) + c).astype(np.float32)
    assert np.array_equal(np.isnan(target), np.isnan(expected))
    numbers = ~np.isnan(expected)
    assert np.array_equal(target[numbers].view(np.uint32), expected[numbers].view(np.uint32))
