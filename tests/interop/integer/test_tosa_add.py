"""add of the profiles `tosa` and `tosa_double_round` on TOSA's reference model: RESCALE, ADD, RESCALE as one graph.

The model is given the multipliers of the oracle (tests/oracles) for the factors that StableHLO's lowering forms.
"""

from __future__ import annotations

from pathlib import Path

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
from tests.oracles import schemes as scheme_oracle
from tests.oracles.tosa import Rescale

pytest.importorskip("tosa_serializer")
pytest.importorskip("tosa_reference_model")

from tests.interop.integer import tosa_graphs
from tests.interop.tosa_model import Verdict

pytestmark = pytest.mark.interop

ROUNDINGS = {"tosa": "SINGLE_ROUND", "tosa_double_round": "DOUBLE_ROUND"}
SCALES = (
    (0.5, 0.5, 0.5), (0.5, 0.25, 1.0), (0.25, 0.5, 0.125), (0.1, 0.3, 0.2), (0.02, 0.9, 0.9), (0.9, 0.02, 0.05),
    (1e-6, 1.0, 0.7), (1.0, 1.0, 300.0),
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_debugger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each error the model starts gdb and waits for its backtrace; if there is none, it may wait for ever."""
    debugger = tmp_path / "gdb"
    debugger.write_text("#!/bin/sh\n")
    debugger.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def rescale_of(profile: str, factor: float, source: str, target: str, zeros: tuple[int, int] = (0, 0)) -> Rescale:
    """A RESCALE by a factor; without a shape, which only scales of channels need."""
    derived = scheme_oracle.derive(profile, factor)
    assert derived is not None
    return Rescale(
        in_t=source, out_t=target, shape=(), multiplier=(derived.multiplier,), shift=(derived.shift,),
        input_zp=zeros[0], output_zp=zeros[1], rounding_mode=ROUNDINGS[profile],
    )  # fmt: skip


def by_tosa(profile: str, sides: list[Quantized], a: Array, b: Array) -> tuple[Verdict, Array | None]:
    """m = 2 max(s_a, s_b), L = 20, or 15 with 16 bits: factors 2^L s_a / m, 2^L s_b / m and m / (2^L s_y), in f64."""
    s_a, s_b, s_y = (float(side.scales[0]) for side in sides)
    z_a, z_b, z_y = (int(side.zero_points[0]) for side in sides)
    shifted = 2.0 ** (15 if "i16" in {side.storage for side in sides} else 20)
    twice = 2 * max(s_a, s_b)
    given = (
        rescale_of(profile, s_a / twice * shifted, sides[0].storage, "i32", (z_a, 0)),
        rescale_of(profile, s_b / twice * shifted, sides[1].storage, "i32", (z_b, 0)),
    )
    last = rescale_of(profile, twice / (shifted * s_y), "i32", sides[2].storage, (0, z_y))
    return tosa_graphs.add(a, b, given, last)


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
                verdict, theirs = by_tosa(profile, sides, a, b)
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
                verdict, theirs = by_tosa(profile, sides, number, number)
                counted[verdict] += 1
                if theirs is None:
                    with pytest.raises(PreconditionError):
                        by_us(profile, sides, number, number)
                else:
                    assert by_us(profile, sides, number, number).tolist() == theirs.tolist()
    assert min(counted.values()) > 20, counted
