"""Whether two additions give the same for every pair of operands.

Of few pairs all are computed: 2^16 of 8 bits. Of more, an addition is reduced to rules of one input where it is a sum
of what becomes of either operand alone, followed by a requantization of the sum, as LiteRT's and TOSA's are: if both
additions scale their operands alike, they are equal if the requantizations are for every sum; else the sums of all
pairs are computed.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from requant.equality.decision import compare
from requant.equality.rules import Array, scaling_rule, single
from requant.equality.sweep import SAMPLES, Tally, compared, convert_all, thinned
from requant.errors import UnsupportedError
from requant.errors.cancellation import check_cancelled, checked
from requant.integer.add import AddPlan, FixedPointAddition, plan_add
from requant.mlir.types import TensorType, Type
from requant.plan.operands import StoredOperand

MAX_PAIRS = 1 << 20
"""Of more pairs not all are computed."""
_ELEMENTS = 1 << 40
_ROWS = 1024


class AdditionMethod(StrEnum):
    """How two additions were compared."""

    PAIRS = "pairs"
    REDUCTION = "reduction"


@dataclass(frozen=True, slots=True)
class PairDifference:
    """Operands whose sums differ: None where an addition is undefined."""

    lhs: int
    rhs: int
    first: int | None
    second: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionEquivalence:
    """What two additions have in common, in pairs of operands; as `requant.equality.decision.Equivalence`."""

    method: AdditionMethod
    inputs: int
    differing: int
    only_first: int
    only_second: int
    neither: int
    sample: tuple[PairDifference, ...]

    @property
    def equal(self) -> bool:
        """Whether both give the same for every pair, and are defined for the same pairs."""
        return not (self.differing or self.only_first or self.only_second)


def addition(lhs: Type, rhs: Type, output: Type, profile: str = "litert", *, scheme: str | None = None) -> AddPlan:
    """Return the addition of `plan_add` for element types. Raise what that raises, and UnsupportedError for types with
    several parameters."""
    tensors = [TensorType((_ELEMENTS,), single(type_, side)) for type_, side in ((lhs, "lhs"), (rhs, "rhs"))]
    return plan_add(tensors[0], tensors[1], single(output, "output"), profile, scheme=scheme)


def compare_additions(first: AddPlan, second: AddPlan) -> AdditionEquivalence:
    """Decide whether two additions give the same for every pair of operands.

    Raise UnsupportedError for operands of other types than one another, and where there are more than MAX_PAIRS pairs
    and the additions cannot be reduced to rules of one input.
    """
    for side in ("lhs", "rhs"):
        one, other = getattr(first, side).storage, getattr(second, side).storage
        if one != other:
            raise UnsupportedError(f"{side} is {one} of the first addition, and {other} of the second")
    values = _values(first.lhs), _values(first.rhs)
    if values[0].size * values[1].size <= MAX_PAIRS:
        return _all_pairs(first, second, *values)
    scaled = _scaled_alike(first, second, *values)
    return _by_sums(first, second, values, scaled)


def _values(operand: StoredOperand) -> Array:
    return np.arange(operand.lowest, operand.highest + 1, dtype=operand.dtype)


def _sums(plan: AddPlan, lhs: Array, rhs: Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the output for each pair, and which are undefined."""
    target = np.empty(lhs.size, plan.output_dtype)

    def convert(piece: slice) -> int:
        counts = plan.arithmetic.new_counts()
        plan.arithmetic.step(lhs[piece], rhs[piece], target[piece], 0, counts)
        return int(counts[3])

    undefined = convert_all(convert, lhs.size)
    return target.astype(np.int64), np.zeros(lhs.size, np.bool_) if undefined is None else undefined


def _all_pairs(first: AddPlan, second: AddPlan, lhs: Array, rhs: Array) -> AdditionEquivalence:
    a, b = np.repeat(lhs, rhs.size), np.tile(rhs, lhs.size)
    check_cancelled()
    (one, lacks_one), (other, lacks_other) = (_sums(plan, a, b) for plan in (first, second))
    unequal = (one != other) & ~lacks_one & ~lacks_other
    places = np.flatnonzero(unequal | (lacks_one != lacks_other))
    if places.size > SAMPLES:
        places = places[np.arange(SAMPLES) * (places.size - 1) // (SAMPLES - 1)]
    return AdditionEquivalence(
        method=AdditionMethod.PAIRS,
        inputs=a.size,
        differing=int(np.count_nonzero(unequal)),
        only_first=int(np.count_nonzero(lacks_other & ~lacks_one)),
        only_second=int(np.count_nonzero(lacks_one & ~lacks_other)),
        neither=int(np.count_nonzero(lacks_one & lacks_other)),
        sample=tuple(
            PairDifference(
                int(a[place]),
                int(b[place]),
                None if lacks_one[place] else int(one[place]),
                None if lacks_other[place] else int(other[place]),
            )
            for place in places.tolist()
        ),
    )


def _scaled(plan: AddPlan, lhs: Array, rhs: Array) -> tuple[Array, Array]:
    """Return what becomes of each operand alone, before the sum. Raise UnsupportedError where that is not all."""
    arithmetic = plan.arithmetic
    if not isinstance(arithmetic, FixedPointAddition):
        raise UnsupportedError(
            f"there are {lhs.size * rhs.size} pairs of operands, and at most {MAX_PAIRS} are computed; the addition of "
            f"profile {plan.profile} is no requantization of a sum of two scaled operands, so that it cannot be reduced"
        )
    scaled = []
    for side, values in (("lhs", lhs), ("rhs", rhs)):
        others = np.zeros(values.size, (rhs if side == "lhs" else lhs).dtype)
        pair = (values, others) if side == "lhs" else (others, values)
        counts = arithmetic.new_counts()
        stages = arithmetic.step(pair[0], pair[1], np.empty(values.size, plan.output_dtype), 0, counts)
        scaled.append(stages[f"{side}_scaled"].astype(np.int64))
    return scaled[0], scaled[1]


def _scaled_alike(first: AddPlan, second: AddPlan, lhs: Array, rhs: Array) -> tuple[Array, Array]:
    """Return what both additions make of each operand alone. Raise UnsupportedError where they do not agree."""
    one, other = _scaled(first, lhs, rhs), _scaled(second, lhs, rhs)
    for side, a, b in zip(("lhs", "rhs"), one, other, strict=True):
        if not np.array_equal(a, b):
            raise UnsupportedError(
                f"there are {lhs.size * rhs.size} pairs of operands, and at most {MAX_PAIRS} are computed; these "
                f"additions scale {side} differently, so that they cannot be reduced to what they make of a sum"
            )
    return one


def _by_sums(
    first: AddPlan, second: AddPlan, values: tuple[Array, Array], scaled: tuple[Array, Array]
) -> AdditionEquivalence:
    """Compare what is made of sums: by thresholds of all sums, and where these differ by the sums of all pairs."""
    rules = []
    lowest, highest = (int(scaled[0].min() + scaled[1].min()), int(scaled[0].max() + scaled[1].max()))
    for plan in (first, second):
        assert isinstance(plan.arithmetic, FixedPointAddition)
        rule = scaling_rule(plan.arithmetic.last, f"sums of profile {plan.profile}")
        rules.append(replace(rule, parts=(replace(rule.parts[0], lowest=lowest, highest=highest),)))
    pairs = values[0].size * values[1].size
    decided = compare(rules[0], rules[1])
    if decided.equal and not decided.neither:
        return AdditionEquivalence(
            method=AdditionMethod.REDUCTION,
            inputs=pairs, differing=0, only_first=0, only_second=0, neither=0, sample=(),
        )  # fmt: skip
    count = values[1].size

    def row(index: int) -> Tally:
        sums = (scaled[0][index] + scaled[1]).astype(rules[0].plan.input_dtype)
        return compared(rules[0], rules[1], sums, index * count)

    total = Tally()
    with ThreadPoolExecutor(os.cpu_count() or 1, "requant-sums") as pool:
        try:
            # A part of the rows at a time, so that few results wait.
            for begin in checked(range(0, values[0].size, _ROWS), 1):
                for tally in pool.map(row, range(begin, min(begin + _ROWS, values[0].size))):
                    total += tally
        finally:
            pool.shutdown(cancel_futures=True)
    sample = []
    for place in thinned(total.found):
        a, b = divmod(place, count)
        sum_, part = int(scaled[0][a] + scaled[1][b]), rules[0].parts[0]
        sample.append(
            PairDifference(
                int(values[0][a]), int(values[1][b]), rules[0].outcome(part, sum_), rules[1].outcome(part, sum_)
            )
        )
    return AdditionEquivalence(
        method=AdditionMethod.REDUCTION, inputs=pairs, differing=total.differing, only_first=total.only_first,
        only_second=total.only_second, neither=total.neither, sample=tuple(sample),
    )  # fmt: skip
