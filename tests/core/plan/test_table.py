"""Tables of 8-bit numbers: made of the plan's own results, and nothing changes when they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from requant.convert.requantize import plan_requantize
from requant.convert.scaling import ScalingPlan
from requant.errors import PreconditionError
from requant.formats.rounding import Rounding
from requant.kernels.convert.byte_table import HAS_TABLES, look_up
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Array
from requant.plan.table import Table, TablePlan, table_for
from requant.schemes import SCHEMES, Multiplier
from tests.oracles import schemes as scheme_oracle
from tests.oracles.scaling import BOUNDS, Scaling, check
from tests.support.cases import EXHAUSTIVE, sample
from tests.support.drawn_types import tensor

# More than makes a table worth it, and no whole number of vectors.
SIZE = 70_001
BYTE = np.dtype(np.uint8)
needs_tables = pytest.mark.skipif(not HAS_TABLES, reason="on this processor no plan has a table")


def uniform(storage: str, zero_point: int, scale: float = 1.0) -> str:
    return f"!quant.uniform<{storage}:f32, {scale!r}:{zero_point}>"


def scaling(source: str, z_in: int, target: str, z_out: int, pair: tuple[int, int], scheme: str) -> ScalingPlan:
    plan = plan_requantize(
        tensor(f"tensor<{SIZE}x{uniform(source, z_in)}>"),
        parse_type(uniform(target, z_out)),
        multipliers=[Multiplier(*pair)],
        scheme=scheme,
    )
    assert isinstance(plan, ScalingPlan)
    return plan


SIDES = [("i8", 3, "i8", -5), ("u8", 128, "i8", 0), ("i8", -128, "u8", 0), ("i4", -8, "u4", 15), ("u8", 255, "u8", 0)]


@needs_tables
@pytest.mark.parametrize(
    ("scheme", "source", "z_in", "target", "z_out"), sample([(s, *t) for t in SIDES for s in SCHEMES], 27)
)
def test_every_number_by_every_scheme(scheme: str, source: str, z_in: int, target: str, z_out: int) -> None:
    lowest, highest = BOUNDS[source]
    for pair in (scheme_oracle.derive(scheme, factor) for factor in ((0.7, 1.7, 0.01) if EXHAUSTIVE else (1.7,))):
        if pair is None:
            continue
        oracle = Scaling(scheme, pair, z_in, z_out, target)
        plan = scaling(source, z_in, target, z_out, pair[:2], scheme)
        defined = [q for q in range(lowest, highest + 1) if oracle.of(q)[0] is not None]
        check(plan, np.random.default_rng(3).choice(defined, SIZE), [oracle], np.zeros(SIZE, int))
        assert plan.table is not None
        assert plan.table.is_built == (len(defined) == highest - lowest + 1)


@needs_tables
def test_a_negative_multiplier_saturates_at_the_other_ends() -> None:
    pair = scheme_oracle.Derived(-(3 << 29), 1, 30)
    oracle = Scaling("litert", pair, 0, 20, "i8")
    plan = scaling("i8", 0, "i8", 20, pair[:2], "litert")
    numbers = np.random.default_rng(4).integers(-128, 128, SIZE)
    check(plan, numbers, [oracle], np.zeros(SIZE, int))
    assert plan.table is not None
    assert plan.table.is_built


@needs_tables
def test_a_number_without_a_result_is_found_as_ever() -> None:
    """TOSA's RESCALE with shift 2 takes -2 to 1."""
    plan = scaling("i8", 0, "i8", 0, (3, 2), "tosa")
    source, target = np.ones(SIZE, np.int8), np.empty(SIZE, np.int8)
    for _ in range(2):
        assert plan.run(source, target).saturated_low == 0
        assert set(target.tolist()) == {1}
    source[66_000] = 2
    with pytest.raises(PreconditionError) as caught:
        plan.run(source, target)
    assert caught.value.index == 66_000
    assert plan.table is not None
    assert not plan.table.is_built


@needs_tables
def test_which_plans_have_one() -> None:
    def of(input_type: str, output_type: str, profile: str = "litert") -> Table | None:
        plan = plan_requantize(tensor(input_type), parse_type(output_type), profile)
        assert isinstance(plan, TablePlan)
        return plan.table

    axis = "!quant.uniform<i8:f32:0, {0.5, 0.25}>"
    assert of(f"tensor<2x{uniform('i8', 0)}>", uniform("u8", 0)) is not None
    assert of(f"tensor<2x{uniform('i8', 0)}>", uniform("u8", 0), "onednn") is not None
    assert of(f"tensor<2x{uniform('i16', 0)}>", uniform("i8", 0)) is None
    assert of(f"tensor<2x{uniform('i8', 0)}>", uniform("i16", 0)) is None
    assert of(f"tensor<2x{axis}>", uniform("i8", 0)) is None
    assert of(f"tensor<2x{uniform('i8', 0)}>", axis) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamped(TablePlan):
    """Any function of a byte, clamped to 0 to 255."""

    function: Callable[[Array], Array]

    def compute(self, source: Array, target: Array, start: int, counts: Array) -> None:
        value = self.function(source.astype(np.int64))
        target[:] = np.clip(value, 0, 255)
        counts[:2] += np.count_nonzero(value < 0), np.count_nonzero(value > 255)


FUNCTIONS: dict[str, tuple[Callable[[Array], Array], bool]] = {
    "increasing": (lambda x: x * 2 - 100, True),
    "decreasing": (lambda x: 300 - 2 * x, True),
    "not monotone within the bounds": (lambda x: (x * 37) % 256, True),
    "low at both ends": (lambda x: 100 - abs(x - 128), False),
    "high in the middle": (lambda x: 300 - abs(x - 128), False),
    "all low": (lambda x: x - 256, False),
    "all high": (lambda x: x + 256, False),
    "all but one low": (lambda x: x - 255, True),
    "all but one high": (lambda x: x + 255, True),
}


@needs_tables
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_function(name: str) -> None:
    function, has_table = FUNCTIONS[name]
    flat = TensorType((SIZE,), parse_type("i8"))  # type: ignore[arg-type]
    plan = Clamped(
        profile="none",
        rounding=Rounding.NEAREST_EVEN,
        input_type=flat,
        output_type=flat,
        input_dtype=BYTE,
        output_dtype=BYTE,
        elements=SIZE,
        table=table_for(BYTE, BYTE, 1),
        function=function,
    )
    source = np.random.default_rng(5).integers(0, 256, SIZE).astype(np.uint8)
    expected, tally = np.empty(SIZE, np.uint8), plan.new_counts()
    plan.compute(source, expected, 0, tally)
    for size in (1000, 64, SIZE):
        target, counts = np.empty(SIZE, np.uint8), plan.new_counts()
        for start in range(0, SIZE, size):
            plan.step(source[start : start + size], target[start : start + size], start, counts)
        assert target.tobytes() == expected.tobytes()
        assert counts.tolist() == tally.tolist()
    assert plan.table is not None
    assert plan.table.is_built == has_table


def test_the_kernel_at_every_length() -> None:
    """Also where no plan takes it: byte by byte."""
    rng = np.random.default_rng(6)
    table = rng.permutation(256).astype(np.uint8)
    source = rng.integers(0, 256, 200).astype(np.uint8)
    for saturated in ((0, 0, 0, 0), (250, 20, 100, 1), (128, 255, 127, 0), (7, 0, 0, 255)):
        lows = {(saturated[0] + k) % 256 for k in range(saturated[1])}
        highs = {(saturated[2] + k) % 256 for k in range(saturated[3])}
        for size in (*range(131), 200):
            target, counts = np.zeros(200, np.uint8), np.zeros(4, np.int64)
            look_up(source[:size], target[:size], table, np.array(saturated, np.int64), counts)
            listed = source[:size].tolist()
            assert target[:size].tolist() == [table[x] for x in listed]
            assert counts.tolist() == [sum(x in lows for x in listed), sum(x in highs for x in listed), 0, 0]
