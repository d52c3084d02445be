"""add of the profiles `tosa` and `tosa_double_round` on TOSA's reference model: RESCALE, ADD, RESCALE as one graph.

The model is given the multipliers of the oracle (tests/oracles) for the factors that StableHLO's lowering forms.
"""

from __future__ import annotations

import numpy as np
import pytest

from requant.errors import PreconditionError
from requant.integer.add import plan_add
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile as row
from tests.interop.conformance.subject import scheme
from tests.interop.integer.quantized_tensors import DTYPES, Array, Quantized, per_tensor
from tests.interop.seed_of_the_day import generator

pytest.importorskip("tosa_serializer")
pytest.importorskip("tosa_reference_model")

from tests.interop.integer import tosa_graphs
from tests.interop.integer.tosa_graphs import ROUNDINGS
from tests.interop.tosa_model import Verdict

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("no_debugger")]

SCALES = (
    (0.5, 0.5, 0.5), (0.5, 0.25, 1.0), (0.25, 0.5, 0.125), (0.1, 0.3, 0.2), (0.02, 0.9, 0.9), (0.9, 0.02, 0.05),
    (1e-6, 1.0, 0.7), (1.0, 1.0, 300.0),
)  # fmt: skip


def by_us(profile: str, sides: list[Quantized], a: Array, b: Array) -> Array:
    shape = np.broadcast_shapes(a.shape, b.shape)
    plan = plan_add(sides[0].tensor(*a.shape), sides[1].tensor(*b.shape), sides[2].element, profile)
    target = np.empty(int(np.prod(shape)), plan.output_dtype)
    plan.run(a.ravel(), b.ravel(), target)
    return target.reshape(shape)


def pairs(rng: np.random.Generator, of_a: str, of_b: str) -> list[tuple[Array, Array]]:
    """Every pair of bytes; of 16 bits a sample with both ends; and broadcast, either way and both."""
    found = []
    if of_a == of_b == "i8":
        every = np.arange(-128, 128).astype(np.int8)
        found.append((np.repeat(every, 256), np.tile(every, 256)))
    else:
        sampled = []
        for storage in (of_a, of_b):
            limits = np.iinfo(DTYPES[storage])
            numbers = rng.integers(limits.min, limits.max + 1, 20_000) >> rng.integers(0, limits.bits - 1, 20_000)
            numbers[:4_000] = rng.choice([limits.min, limits.max, 0, 1, -1], 4_000)
            sampled.append(numbers.astype(limits.dtype))
        found.append((sampled[0], sampled[1]))
    for shapes in (((5, 1, 7), (5, 4, 1)), ((1, 4, 7), (5, 4, 7)), ((1, 1, 1), (2, 3, 7))):
        a, b = (per_tensor(storage, 1.0).data(rng, *shape) for storage, shape in zip((of_a, of_b), shapes, strict=True))
        found.append((a, b))
    return found


@pytest.mark.parametrize(("of_a", "of_b", "of_y"), [("i8", "i8", "i8"), ("i8", "i8", "i16"), ("i16", "i16", "i16"),
                                                    ("i16", "i8", "i8")])  # fmt: skip
@pytest.mark.parametrize("profile", ROUNDINGS)
def test_add(profile: str, of_a: str, of_b: str, of_y: str) -> None:
    """Scales whose sums tie, that leave one side out, and that saturate; zero points at both ends."""
    rng = generator(411)
    comparison = Comparison(
        f"TOSA reference model RESCALE, ADD, RESCALE {of_a}, {of_b} to {of_y}, {profile}",
        systems.TOSA,
        row(profile, "add"),
        scheme(profile),
    )
    narrow = "i16" not in (of_a, of_b, of_y)
    for scales in (*SCALES, *(tuple(rng.uniform(0.01, 2, 3).tolist()) for _ in range(4))):
        drawn = tuple(rng.integers(-128, 128, 3).tolist())
        for points in ((0, 0, 0), (3, -128, 127), drawn) if narrow else ((0, 0, 0),):
            sides = [per_tensor(*each) for each in zip((of_a, of_b, of_y), scales, points, strict=True)]
            for a, b in pairs(rng, of_a, of_b):
                verdict, theirs = tosa_graphs.addition(profile, sides, a, b)
                assert verdict is Verdict.VALID, (scales, points)
                assert theirs is not None
                source = np.broadcast_to(a, theirs.shape)
                comparison.add((scales, points), source, by_us(profile, sides, a, b), theirs)
    comparison.finish(200_000)


@pytest.mark.parametrize("profile", ROUNDINGS)
def test_sums_beyond_the_last_rescale(profile: str) -> None:
    """A small scale of the output has a small shift, for which the model calls large sums unpredictable; we refuse."""
    counted = {Verdict.VALID: 0, Verdict.UNPREDICTABLE: 0}
    every = np.arange(-128, 128).astype(np.int8)
    for exponent in range(18, 46, 3):
        for mantissa in (1.0, 1.5):
            sides = [per_tensor("i8", each) for each in (0.5, 0.5, mantissa * 2.0**-exponent)]
            for number in (every[:1], every[64:65], every[128:129], every[129:130], every[-1:]):
                verdict, theirs = tosa_graphs.addition(profile, sides, number, number)
                counted[verdict] += 1
                if theirs is None:
                    with pytest.raises(PreconditionError):
                        by_us(profile, sides, number, number)
                else:
                    assert by_us(profile, sides, number, number).tolist() == theirs.tolist()
    assert min(counted.values()) > 20, counted
