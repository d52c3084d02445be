"""LiteRT's arithmetic on the bits of doubles against the vectors of its C++."""

from __future__ import annotations

import math

import pytest

from core.schemes.integer_double import (
    INFINITE_SHIFT,
    double_from_fraction_and_shift,
    integer_double_compare,
    integer_double_multiply,
    integer_frexp,
)
from tests.vector_cases import load

VECTORS = load("tflite_multiplier")


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def test_integer_frexp() -> None:
    assert len(VECTORS["integer_frexp"]) == 59
    for case in VECTORS["integer_frexp"]:
        assert integer_frexp(float.fromhex(case["d"])) == (case["fraction"], case["shift"]), case


def test_double_from_fraction_and_shift() -> None:
    assert len(VECTORS["double_from_fraction"]) == 12
    for case in VECTORS["double_from_fraction"]:
        found = double_from_fraction_and_shift(case["fraction"], case["shift"])
        assert same(found, float.fromhex(case["d"])), case


def test_integer_double_multiply_and_compare() -> None:
    assert len(VECTORS["integer_double_mul_cmp"]) == 35
    for case in VECTORS["integer_double_mul_cmp"]:
        a, b = float.fromhex(case["a"]), float.fromhex(case["b"])
        assert same(integer_double_multiply(a, b), float.fromhex(case["y"])), case
        assert integer_double_compare(a, b) == case["cmp"], case


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite(value: float) -> None:
    fraction, shift = integer_frexp(value)
    assert shift == INFINITE_SHIFT
    assert same(double_from_fraction_and_shift(fraction, shift), value)
    assert math.isnan(integer_double_multiply(value, 2.0))
    assert integer_double_compare(value, 2.0) == integer_double_compare(2.0, value) == 1


def test_its_quirks() -> None:
    """A fraction of 2^31 sets the exponent's lowest bit; two negative numbers of different shift are the wrong way."""
    assert double_from_fraction_and_shift(2**31, 1) == double_from_fraction_and_shift(2**31, 0) == 1.0
    assert integer_double_compare(-4.0, -1.0) == 1
    assert integer_frexp(5e-324) == (2**30, -1022)
