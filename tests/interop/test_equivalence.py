"""Equivalences that a solver confirms: z3 reads the claim as bit vectors, and knows nothing of thresholds."""

from __future__ import annotations

import pytest
import z3

from requant.equality.decision import compare
from requant.equality.smt import smt2
from requant.schemes import Multiplier
from tests.core.equality.pairs import requantized

pytestmark = pytest.mark.interop

BY_31_BITS = Multiplier(1234567891, -7)
BY_SHIFT_RIGHT = Multiplier(1234567891, 38)
OF_24_BITS = Multiplier(9876543, 30)
SHIFTED_LEFT = Multiplier(1 << 30, 3)
PAIRS = [
    ("litert", BY_31_BITS, "litert_single_rounding", BY_31_BITS),
    ("litert", BY_31_BITS, "arm_vector", BY_31_BITS),
    ("litert", BY_31_BITS, "cmsis_nn", BY_31_BITS),
    ("litert", BY_31_BITS, "tosa_double_round", BY_SHIFT_RIGHT),
    ("tosa", BY_SHIFT_RIGHT, "litert_single_rounding", BY_31_BITS),
    ("tosa", BY_SHIFT_RIGHT, "tosa_double_round", BY_SHIFT_RIGHT),
    ("ethos_u", BY_SHIFT_RIGHT, "tosa", BY_SHIFT_RIGHT),
    ("xnnpack_rndnu", OF_24_BITS, "xnnpack_rndna", OF_24_BITS),
    ("xnnpack_rndnu", OF_24_BITS, "fbgemm_fixed_point", OF_24_BITS),
    ("cmsis_nn", SHIFTED_LEFT, "gemmlowp", SHIFTED_LEFT),
    ("litert", SHIFTED_LEFT, "cmsis_nn", SHIFTED_LEFT),
    ("litert", Multiplier(1 << 30, -3), "litert_single_rounding", Multiplier(1 << 30, -3)),
]


@pytest.mark.parametrize("target", ["i8", "i4"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}-{pair[2]}")
def test_z3_agrees(pair: tuple[str, Multiplier, str, Multiplier], target: str) -> None:
    first, second = (requantized(scheme, m, "i32", target) for scheme, m in (pair[:2], pair[2:]))
    decided = compare(first, second)
    solver = z3.Solver()
    solver.from_string(smt2(first, second))
    found = solver.check()
    assert str(found) == ("unsat" if decided.equal else "sat")
    if not decided.equal:
        model = solver.model()
        (x,) = (model[each].as_signed_long() for each in model.decls())
        assert first.outcome(first.parts[0], x) != second.outcome(second.parts[0], x)
