"""requantize and add of the profile `stablehlo` on StableHLO's interpreter, after the pass that lowers quantized types.

The interpreter takes no quantized operands: `stablehlo-legalize-quant-to-math` makes plain arithmetic of them first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from requant.convert.requantize import plan_requantize
from requant.integer.add import plan_add
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile, scheme
from tests.interop.integer.quantized_tensors import DTYPES, Array, per_tensor
from tests.interop.seed_of_the_day import generator
from tests.interop.stablehlo_quantized import added, requantized
from tests.interop.stablehlo_upstream import loaded

pytestmark = pytest.mark.interop

PAIRS = (("i8", "i8"), ("i8", "i16"), ("i16", "i8"), ("i16", "i16"), ("i32", "i8"))
RATIOS = (1.0, 0.5, 0.25, 1 / 3, 0.0237, 1.0000001, 2.0, 7.3, 2.0**-9, 3e-5)


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with loaded():
        yield


def stored(rng: np.random.Generator, storage: str) -> Array:
    """Every byte; of more bits a sample, of all magnitudes. The interpreter is slow."""
    limits = np.iinfo(DTYPES[storage])
    if storage == "i8":
        return np.arange(limits.min, limits.max + 1).astype(np.int8)
    drawn = rng.integers(limits.min, limits.max + 1, 4096) >> rng.integers(0, limits.bits - 1, 4096)
    drawn[:2] = limits.min, limits.max
    return drawn.astype(DTYPES[storage])


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_requantize(source: str, target: str) -> None:
    rng = generator(301)
    comparison = Comparison(
        f"StableHLO interpreter requantize {source} to {target}",
        systems.STABLEHLO,
        profile("stablehlo", "requantize"),
        scheme("stablehlo"),
    )
    for ratio in (*RATIOS, *np.exp2(rng.uniform(-12, 4, 6)).tolist()):
        out_scale = float(np.float32(rng.uniform(0.01, 1)))
        for z_in, z_out in ((0, 0), (3, -5), (-128, 127)):
            z_in = 0 if source == "i32" else z_in
            sides = [
                per_tensor(source, float(np.float32(ratio * out_scale)), z_in),
                per_tensor(target, out_scale, z_out),
            ]
            numbers = stored(rng, source)
            plan = plan_requantize(sides[0].tensor(numbers.size), sides[1].element, "stablehlo")
            ours = np.empty(numbers.size, plan.output_dtype)
            plan.run(numbers, ours)
            theirs = requantized(sides, numbers)
            comparison.add((ratio, z_in, z_out), numbers, ours, theirs)
    comparison.finish(10_000)


@pytest.mark.parametrize("storage", ["i8", "i16"])
def test_add(storage: str) -> None:
    """Every byte beside others; of 16 bits a sample."""
    rng = generator(302)
    comparison = Comparison(
        f"StableHLO interpreter add {storage}", systems.STABLEHLO, profile("stablehlo", "add"), scheme("stablehlo")
    )
    every = np.arange(-128, 128).astype(np.int8)
    for scales in (
        (0.5, 0.5, 0.5),
        (0.5, 0.25, 1.0),
        (0.1, 0.3, 0.2),
        (0.02, 0.9, 0.9),
        tuple(rng.uniform(0.01, 2, 3).tolist()),
    ):
        for points in ((0, 0, 0), (3, -128, 127)):
            if storage == "i8":
                a, b = np.repeat(every, 16), rng.integers(-128, 128, 4096).astype(np.int8)
            else:
                a, b = rng.integers(-32768, 32768, (2, 4096)).astype(np.int16)
            sides = [per_tensor(storage, float(np.float32(s)), z) for s, z in zip(scales, points, strict=True)]
            plan = plan_add(sides[0].tensor(a.size), sides[1].tensor(a.size), sides[2].element, "stablehlo")
            ours = np.empty(a.size, plan.output_dtype)
            plan.run(a, b, ours)
            theirs = added(sides, a, b)
            comparison.add((scales, points), a, ours, theirs)
    comparison.finish(40_000)
