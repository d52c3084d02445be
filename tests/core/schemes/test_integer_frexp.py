"""LiteRT's IntegerFrExp, on the bits of doubles, against the vectors of its C++."""

from __future__ import annotations

import math

import pytest

from requant.schemes.litert import INFINITE_SHIFT, integer_frexp
from tests.vector_cases import load

VECTORS = load("tflite_multiplier")


def test_integer_frexp() -> None:
    assert len(VECTORS["integer_frexp"]) == 59
    for case in VECTORS["integer_frexp"]:
        assert integer_frexp(float.fromhex(case["d"])) == (case["fraction"], case["shift"]), case


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite(value: float) -> None:
    fraction, shift = integer_frexp(value)
    assert shift == INFINITE_SHIFT
    assert fraction == {math.inf: 2**63 - 1, -math.inf: -(2**63)}.get(value, 0)


def test_a_subnormal_is_read_with_a_hidden_one() -> None:
    assert integer_frexp(5e-324) == (2**30, -1022)
