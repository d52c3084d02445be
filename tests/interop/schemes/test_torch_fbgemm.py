"""The schemes of FBGEMM and its choice of parameters against FBGEMM itself, in C++, as torch's library has it.

Its functions are called by their names in the library: torch's own operators reach only some of them.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.errors import ParameterError
from requant.schemes import Multiplier
from tests.interop.comparison import Comparison
from tests.interop.conformance import subject, systems
from tests.interop.schemes.accumulators import (
    accumulators,
    derived,
    factors,
    output_zero_points,
    requantized,
    right_shift,
)
from tests.interop.seed_of_the_day import generator
from tests.interop.torch_version import EAGER_PROFILE

pytest.importorskip("torch")

from tests.interop.schemes.fbgemm_library import AVX2, WHOLE, RequantizationParams, by_fbgemm, chosen

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="torch has FBGEMM's AVX2 functions on x86-64 only"),
]

Array = NDArray[Any]


def beyond_int32(scheme: str, values: Array, multiplier: Multiplier, zero_point: int) -> Array:
    """Where the scaled value, or with fixed point its sum with the zero point, is above int32."""
    if scheme == "fbgemm":
        real = np.ldexp(np.float32(multiplier.multiplier), -multiplier.shift)
        return np.asarray(values.astype(np.float32) * real >= 2.0**31)
    half = np.int64(1) << np.int64(multiplier.shift - 1)
    scaled = (values.astype(np.int64) * multiplier.multiplier + half) >> np.int64(multiplier.shift)
    return np.asarray(scaled + zero_point >= 1 << 31)


def test_the_fixed_point_multiplier() -> None:
    """Every significand that an f32 can have is exact; the shift ends at 63."""
    rng = generator(101)
    bits = rng.integers(0x0080_0000, 0x7F80_0000, 100_000).astype(np.uint32).view(np.float32)
    reals = np.concatenate([np.array(factors(rng, 20_000, 2.0**-40, 2.0**31), np.float32), bits]).tolist()
    compared = refused = 0
    for factor in reals:
        try:
            ours = derived("fbgemm_fixed_point", factor)
        except ParameterError:
            assert not 2.0**-32 <= factor < 2.0**30, factor
            refused += 1
            continue
        assert (ours.multiplier, ours.shift) == chosen(factor), factor
        compared += 1
    print(f"FBGEMM ChooseRequantizationMultiplier: {compared:,} compared, {refused:,} refused")  # noqa: T201
    assert compared > 40_000


@pytest.mark.parametrize("storage", ["u8", "u16"])
@pytest.mark.parametrize("scheme", AVX2)
def test_requantization(scheme: str, storage: str) -> None:
    """The functions for whole tensors, and for 8 bits the vectors that they choose, by themselves too.

    Where int32 does not hold a scaled value or its sum with the zero point, vectors do not saturate.
    """
    rng = generator(102)
    rows = [subject.scheme(scheme)]
    if (scheme, storage) == ("fbgemm", "u8"):
        # Eager tensors are requantized by no operator but as the output of a product, with this.
        rows.append(subject.profile(EAGER_PROFILE, "requantize"))
    comparison = Comparison(f"FBGEMM {scheme} i32 to {storage}", systems.FBGEMM, *rows)
    functions = [(WHOLE[scheme, storage], True)] + ([(AVX2[scheme], False)] if storage == "u8" else [])
    for factor in factors(rng, 400, 2.0**-31, 1.0):
        multiplier, zero_point = derived(scheme, factor), output_zero_points(rng, storage)
        fixed = chosen(factor)
        values = accumulators(rng, multiplier.multiplier, right_shift(scheme, multiplier))
        params = RequantizationParams(factor, *fixed, 1.0, zero_point, int(storage[1:]))
        ours = requantized(scheme, values, multiplier, zero_point, storage)
        # The functions for 16 bits have no vectors.
        beyond = beyond_int32(scheme, values, multiplier, zero_point) & (storage == "u8")
        for function, whole in functions:
            theirs = by_fbgemm(function, values, params, whole)
            comparison.add((factor, zero_point), values, ours, theirs, {"fbgemm_vector_overflow": beyond})
    comparison.finish(250_000)
