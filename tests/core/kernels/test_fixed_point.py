"""The fixed-point primitives against exact fractions, at ties and at the ends of their domains."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from core.kernels.scalar.fixed_point import (
    multiply_double_rounding,
    multiply_double_rounding_up,
    multiply_single_rounding,
    quantize_down_int32_to_uint8_scale,
    rounding_divide_by_power_of_two,
    rounding_shift_away,
    rounding_shift_right,
    saturating_rounding_doubling_high_multiply,
    saturating_rounding_doubling_high_multiply_int16,
    wrap_int32,
)
from tests.oracles import quantization as oracle

int32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from((-(2**31), 2**31 - 1, 0, 1, -1)))
int16 = st.one_of(st.integers(-(2**15), 2**15 - 1), st.sampled_from((-(2**15), 2**15 - 1)))
rights = st.integers(0, 31)


@st.composite
def beside_ties(draw: st.DrawFn, most: int = 31) -> tuple[int, int]:
    """A value of 32 bits at or one beside a tie of value / 2^exponent, and the exponent."""
    exponent = draw(st.integers(1, most))
    odd = 2 * draw(st.integers(-(2 ** (31 - exponent)), 2 ** (31 - exponent) - 1)) + 1
    value = odd * 2 ** (exponent - 1) + draw(st.integers(-1, 1))
    return min(max(value, -(2**31)), 2**31 - 1), exponent


def high_multiply(a: int, b: int) -> int:
    return min(oracle.nearest_up(Fraction(a * b, 2**31)), 2**31 - 1)


@given(a=int32, b=int32)
@example(-(2**31), -(2**31))
@example(2**30, 1)
@example(-(2**30), 1)
@example(2**15, -(2**15))
def test_high_multiply(a: int, b: int) -> None:
    assert saturating_rounding_doubling_high_multiply(a, b) == high_multiply(a, b)


@given(a=int16, b=int16)
@example(-(2**15), -(2**15))
@example(2**14, 1)
@example(-(2**14), 1)
@example(3 * 2**7, 2**7)
def test_high_multiply_of_16_bits(a: int, b: int) -> None:
    expected = min(oracle.nearest_up(Fraction(a * b, 2**15)), 2**15 - 1)
    assert saturating_rounding_doubling_high_multiply_int16(a, b) == expected


@given(beside_ties())
def test_roundings_by_a_power_of_two(drawn: tuple[int, int]) -> None:
    value, exponent = drawn
    exact = Fraction(value, 2**exponent)
    assert rounding_divide_by_power_of_two(value, exponent) == oracle.nearest_away(exact)
    assert rounding_shift_right(value, exponent) == oracle.nearest_up(exact)
    assert rounding_shift_away(value, exponent) == oracle.nearest_away(exact)


@given(value=int32, multiplier=int32, left=st.integers(0, 30), right=rights)
@example(-1, 2**30, 0, 1)
@example(2**30, 2**31 - 1, 1, 0)
def test_two_roundings(value: int, multiplier: int, left: int, right: int) -> None:
    product = high_multiply((value * 2**left + 2**31) % 2**32 - 2**31, multiplier)
    exact = Fraction(product, 2**right)
    assert multiply_double_rounding(value, multiplier, left, right) == oracle.nearest_away(exact)
    assert multiply_double_rounding_up(value, multiplier, left, right) == oracle.nearest_up(exact)


@given(value=int32, multiplier=st.integers(0, 2**31 - 1), shift=st.integers(1, 61))
@example(1, 2**30, 31)
@example(-1, 2**30, 31)
@example(3, 2**30, 31)
def test_one_rounding(value: int, multiplier: int, shift: int) -> None:
    assert multiply_single_rounding(value, multiplier, shift, 0) == oracle.nearest_up(
        Fraction(value * multiplier, 2**shift)
    )


@given(value=st.integers(-(2**40), 2**40))
def test_wrapping(value: int) -> None:
    assert wrap_int32(value) == oracle.wrap32(value)


@given(
    offset=st.integers(-1000, 1000),
    multiplier=st.integers(-1000, 1000),
    drawn=beside_ties(20),
)
@example(0, 1, (-(2**19), 20))
def test_gemmlowps_legacy_stage(offset: int, multiplier: int, drawn: tuple[int, int]) -> None:
    """The offset is added first, and the product has to fit int32."""
    tie, shift = drawn
    value = tie // multiplier - offset if multiplier else tie
    product = (value + offset) * multiplier
    if -(2**31) <= product < 2**31:
        expected = oracle.nearest_away(Fraction(product, 2**shift))
        assert quantize_down_int32_to_uint8_scale(value, offset, multiplier, shift) == expected
