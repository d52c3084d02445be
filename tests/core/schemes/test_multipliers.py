"""Multipliers: the values that they stand for, with all of their digits, and LiteRT's IntegerFrExp."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.errors import ParameterError, UnknownNameError
from requant.schemes import SCHEMES, Multiplier
from requant.schemes.litert import INFINITE_SHIFT, integer_frexp
from requant.schemes.multipliers import derive_multiplier
from tests.vector_cases import load


@pytest.mark.parametrize("scheme", SCHEMES)
@given(factor=st.floats(allow_nan=False, allow_infinity=False))
def test_represented_has_all_digits(scheme: str, factor: float) -> None:
    try:
        derived = derive_multiplier(repr(factor), scheme)
    except ParameterError:
        return
    assert derive_multiplier(factor.hex(), scheme) == derived
    value = SCHEMES[scheme].represented(Multiplier(derived.multiplier, derived.shift))
    assert Fraction(derived.represented) == value
    assert derived.relative_error == (float(value / Fraction(factor) - 1) if factor else 0.0)


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_value_beyond_every_double(sign: str) -> None:
    derived = derive_multiplier(f"{sign}1.7976931348623157e308", "litert")
    assert derived.represented == f"{sign}{2**1024}"
    assert derived.relative_error == 1 / (2**53 - 1)


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "1e999", "0x1p9999", "1_0", " 1", "1 ", "--1", "0x", "1e", "١", "1" * 200]
)
def test_factors_that_are_no_numbers(text: str) -> None:
    with pytest.raises(ParameterError):
        derive_multiplier(text, "litert")


def test_unknown_scheme() -> None:
    with pytest.raises(UnknownNameError, match="litert_single_rounding"):
        derive_multiplier("0.5", "nosuch")


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
