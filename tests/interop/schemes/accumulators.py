"""Factors and accumulators on which the schemes of different systems differ, and our answer to them.

Factors are powers of two and some others, their neighbours by one ulp of f32 and of f64, and random ones. Accumulators
lie at and beside ties of either rounding, at the bounds of int32, and anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.requantize import plan_requantize
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.schemes import Multiplier, scheme_named
from tests.support.near_ties import near_ties

Array = NDArray[Any]

COUNT = 601
"""Accumulators of one multiplier. No multiple of the length of any vector."""
OUTPUTS = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767), "i32": (-(2**31), 2**31 - 1)}


def factors(rng: np.random.Generator, count: int, low: float, high: float) -> list[float]:
    """Factors of at least `low` and below `high`: special ones with both neighbours in f32 and f64, and random ones."""
    special = [2.0**exponent for exponent in range(-40, 31)] + [1 / 3, 0.1, 0.7, 1 - 2.0**-32, 1 - 2.0**-31]
    found = list(special)
    for each in special:
        for towards in (0.0, np.inf):
            found.append(float(np.nextafter(np.float32(each), np.float32(towards))))
            found.append(float(np.nextafter(each, towards)))
    found += np.exp2(rng.uniform(np.log2(low), np.log2(high), count)).tolist()
    # Long runs of ones in the significand round up to the next power of two.
    found += [float(2.0**e * (1 - 2.0 ** -float(rng.integers(22, 36)))) for e in rng.integers(-12, 2, count // 8)]
    return [each for each in found if low <= each < high]


def accumulators(rng: np.random.Generator, multiplier: int, right: int, left: int = 0) -> Array:
    """`COUNT` accumulators v of int32, for which v * 2^left is of int32 too."""
    bounds = (-(1 << (31 - left)), (1 << (31 - left)) - 1)
    ties = near_ties(rng, multiplier, right, COUNT // 3, bounds)
    # Beside ties of the high half too, from which a second rounding goes another way.
    twice = near_ties(rng, multiplier, 31 - left, COUNT // 6, bounds, most=1 << 20)
    spread = rng.integers(bounds[0], bounds[1] + 1, COUNT) >> rng.integers(0, 31 - left, COUNT)
    found = np.concatenate([ties, twice, spread])[:COUNT].astype(np.int32)
    return np.asarray(rng.permutation(found))


def output_zero_points(rng: np.random.Generator, storage: str) -> int:
    """One at both ends of the storage, or within."""
    lowest, highest = OUTPUTS[storage]
    return int(rng.choice([lowest, highest, 0, int(rng.integers(lowest, highest + 1))]))


def requantized(scheme: str, values: Array, multiplier: Multiplier, zero_point: int, storage: str) -> Array:
    """Our answer to requantize accumulators by one multiplier."""
    source = parse_type(f"tensor<{values.size}xi32>")
    assert isinstance(source, TensorType)
    target = parse_type(f"!quant.uniform<{storage}:f32, 1.0:{zero_point}>")
    plan = plan_requantize(source, target, multipliers=[multiplier], scheme=scheme)
    found = np.empty(values.size, plan.output_dtype)
    plan.run(values, found)
    return found


def derived(scheme: str, factor: float) -> Multiplier:
    """Our multiplier and shift for a factor."""
    return scheme_named(scheme).derive(factor)


def right_shift(scheme: str, multiplier: Multiplier) -> int:
    """The n of m * 2^-n."""
    return scheme_named(scheme).right_shift(multiplier.shift)
