"""The known answers of weight formats, from the oracle."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from requant.checkpoint.weights.blocks import Block, Extremes
from requant.checkpoint.weights.floats import bits_of
from requant.self_test.digest import digest
from requant.self_test.known_calls import KnownCall, reals
from requant.self_test.known_weights import KNOWN_SCALES, KNOWN_WEIGHTS, weights
from tests.support import exact_weights
from tests.support.cases import sample


def expected(scheme: str, dtype: str) -> tuple[exact_weights.Stored, np.ndarray]:
    rows = weights(dtype)
    name, _, option = scheme.partition(":")
    if name[0] == "W":
        block = Block(1, 32 if option == "group=32" else rows.shape[1])
        symmetric = "ASYM" not in name and option != "asymmetric"
        packs = "A16" in name
        return exact_weights.integers(rows, dtype, int(name[1]), block, symmetric=symmetric, rounds=True, packs=packs)
    if name == "FP8_DYNAMIC":
        return exact_weights.float8(rows, dtype, Block(1, rows.shape[1]), rounds=True)
    if name == "NVFP4A16":
        # Exact in every dtype.
        extremes = Extremes(float(reals().min()), 128.0 if dtype == "BF16" else float(reals().max()))
        return exact_weights.nvfp4(rows, dtype, extremes)
    return exact_weights.mx(rows, dtype, int(name[4]), rounds=True)


@pytest.mark.sample(1)
@pytest.mark.parametrize("call", sample(KNOWN_WEIGHTS, 4), ids=lambda call: call.name)
def test_the_oracle_gives_each_known_answer(call: KnownCall) -> None:
    scheme, dtype = call.name.split()
    stored, values = expected(scheme, dtype)
    order = ("weight", "weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_global_scale")
    arrays = [stored[suffix] for suffix in order if suffix in stored]
    assert digest([*arrays, bits_of(values, dtype)]) == call.digest


def test_scales_that_hold_other_codes() -> None:
    """By blocks of 5 rows and 20 columns, in exact numbers."""
    numbers, peaks, of_peaks, low, high, units = KNOWN_SCALES[1].call()
    for top, left in np.ndindex(peaks.shape):
        rows, columns = slice(5 * top, 5 * top + 5), slice(20 * left, 20 * left + 20)
        block = [Fraction(float(each)) for each in numbers[rows, columns].flat]
        assert peaks[top, left] == max(map(abs, block))
        place = np.unravel_index(np.abs(numbers[rows, columns]).argmax(), units[rows, columns].shape)
        unit = Fraction(float(units[rows, columns][0, 0]))
        if unit:
            # That of the first element, which has a code other than its zero point.
            scale = block[0] / round(unit)
            steps = [round(each / scale) for each in block]
            assert [int(each[top, left]) for each in (low, high)] == [min(steps), max(steps)]
            quotients = [np.float32(float(each / scale)) for each in block]
            assert units[rows, columns].ravel().tolist() == pytest.approx(quotients, rel=2**-23)
        whole = Fraction(float(numbers[rows, columns][place])) / Fraction(float(of_peaks[top, left]))
        assert whole.denominator == 1
