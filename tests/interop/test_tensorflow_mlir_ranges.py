"""Rule `mlir` against MLIR's fakeQuantAttrsToType, as TensorFlow's pass quant-convert-fake-quant-to-qdq calls it.

The pass asks for i8, leaves operators of other widths as they are, and prints the type, whose scales are f64. It widens
ranges of at most 1e-6 before, so that the function's own answer to an empty range is not seen; tests/oracles has it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.interop.conformance import systems
from tests.interop.range_cases import Array, RangeComparison, beside, ranges
from tests.interop.seed_of_the_day import generator

pytest.importorskip("tensorflow")

from tests.interop.tensorflow_ranges import fake_quantize, parameters_of_pass

pytestmark = pytest.mark.interop

_LEAST_WIDTH = 1e-6


def widened(lows: Array, highs: Array) -> tuple[Array, Array]:
    """The ranges as the pass hands them on, f64."""
    lows, highs = lows.astype(np.float64), highs.astype(np.float64)
    narrow = highs - lows <= _LEAST_WIDTH
    half = _LEAST_WIDTH / 2
    return np.where(narrow, np.minimum(lows, -half), lows), np.where(narrow, np.maximum(highs, half), highs)


@pytest.mark.parametrize("per_channel", [False, True], ids=["per_tensor", "per_channel"])
@pytest.mark.parametrize("narrow", [False, True], ids=["full", "narrow"])
def test_ranges(narrow: bool, per_channel: bool) -> None:
    rng = generator(119, narrow, per_channel)
    lows, highs = beside(*ranges(rng, 800))
    # Each range that the pass hands on once.
    wide, first = np.unique(np.stack(widened(lows, highs)), axis=1, return_index=True)
    lows, highs = lows[first], highs[first]
    parts = np.array_split(np.arange(lows.size), 10 if per_channel else lows.size)
    functions = [fake_quantize(index, lows[part], highs[part], narrow) for index, part in enumerate(parts)]
    theirs = parameters_of_pass(functions, narrow)
    comparison = RangeComparison(systems.TENSORFLOW, "mlir", "i8", **({"narrow": True} if narrow else {}))
    for (low, high, scale, zero_point), found in zip(comparison.pairs(*wide), theirs, strict=True):
        comparison.add((low, high), (scale, zero_point), found)
    comparison.finish(4000)
