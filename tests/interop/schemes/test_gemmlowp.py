"""The scheme of gemmlowp against its output stage, which gemmlowp/install compiles from its headers."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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

LIBRARY = Path(__file__).parents[3] / ".gemmlowp/output_stage.so"

pytestmark = [pytest.mark.interop, pytest.mark.skipif(not LIBRARY.exists(), reason="gemmlowp is not installed")]

Array = NDArray[Any]

VECTOR = 8


def by_gemmlowp(function: str, values: Array, result: np.dtype[Any], *parameters: int) -> Array:
    """Run the output stage: multiplier, exponent and offset, and a saturating cast."""
    padded = np.resize(values, -(-values.size // VECTOR) * VECTOR)
    found = np.empty(padded.size, result)
    pointers = (padded.ctypes.data_as(ctypes.c_void_p), found.ctypes.data_as(ctypes.c_void_p))
    run = getattr(ctypes.CDLL(str(LIBRARY)), function)
    run(*pointers, ctypes.c_int(padded.size), *(ctypes.c_int32(each) for each in parameters))
    return found[: values.size]


@pytest.mark.parametrize("storage", ["u8", "i16"])
def test_output_stage(storage: str) -> None:
    """Where no shift to the left and no sum with the offset leaves int32; there the scheme is not defined."""
    rng = generator(111)
    comparison = Comparison(f"gemmlowp i32 to {storage}", systems.GEMMLOWP, subject.scheme("gemmlowp"))
    for factor in factors(rng, 400, 2.0**-31, 2.0**29):
        multiplier = derived("gemmlowp", factor)
        zero_point = output_zero_points(rng, storage)
        left = max(multiplier.shift, 0)
        values = accumulators(rng, multiplier.multiplier, right_shift("gemmlowp", multiplier), left)
        fitting = np.abs(values.astype(np.float64) * factor + zero_point) < 2.0**31 - 2
        values = np.where(fitting, values, np.int32(1)).astype(np.int32)
        ours = requantized("gemmlowp", values, multiplier, zero_point, storage)
        for name in ("one_by_one", "in_vectors"):
            parameters = (multiplier.multiplier, multiplier.shift, zero_point)
            theirs = by_gemmlowp(f"to_{storage}_{name}", values, ours.dtype, *parameters)
            comparison.add((factor, zero_point, name), values, ours, theirs)
    comparison.finish(500_000)
