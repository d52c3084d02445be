"""The fixed-point primitives against exact fractions, at ties and at the ends of their domains."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from requant.kernels.simd.fixed_point import (
    high_multiply,
    multiply_double_rounding,
    multiply_double_rounding_up,
    rounding_divide_by_power_of_two,
    rounding_shift_away,
    rounding_shift_right,
    wrap_int32,
)
from tests.oracles import quantization as oracle
from tests.support.lanes import of_lanes

int32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from((-(2**31), 2**31 - 1, 0, 1, -1)))


@st.composite
def beside_ties(draw: st.DrawFn, most: int = 31) -> tuple[int, int]:
    """A value of 32 bits at or one beside a tie of value / 2^exponent, and the exponent."""
    exponent = draw(st.integers(1, most))
    odd = 2 * draw(st.integers(-(2 ** (31 - exponent)), 2 ** (31 - exponent) - 1)) + 1
    value = odd * 2 ** (exponent - 1) + draw(st.integers(-1, 1))
    return min(max(value, -(2**31)), 2**31 - 1), exponent


def exact_high_multiply(a: int, b: int) -> int:
    return min(oracle.nearest_up(Fraction(a * b, 2**31)), 2**31 - 1)


@given(a=int32, b=int32)
@example(-(2**31), -(2**31))
@example(2**30, 1)
@example(-(2**30), 1)
@example(2**15, -(2**15))
def test_high_multiply(a: int, b: int) -> None:
    assert of_lanes(high_multiply, a, b) == exact_high_multiply(a, b)


@given(beside_ties())
def test_roundings_by_a_power_of_two(drawn: tuple[int, int]) -> None:
    value, exponent = drawn
    exact = Fraction(value, 2**exponent)
    assert of_lanes(rounding_divide_by_power_of_two, value, exponent) == oracle.nearest_away(exact)
    assert of_lanes(rounding_shift_right, value, exponent) == oracle.nearest_up(exact)
    assert of_lanes(rounding_shift_away, value, exponent) == oracle.nearest_away(exact)


@given(value=int32, multiplier=int32, shift=st.integers(1, 62))
@example(-1, 2**30, 32)
@example(2**30, 2**31 - 1, 30)
def test_two_roundings(value: int, multiplier: int, shift: int) -> None:
    left, right = max(31 - shift, 0), max(shift - 31, 0)
    product = exact_high_multiply((value * 2**left + 2**31) % 2**32 - 2**31, multiplier)
    exact = Fraction(product, 2**right)
    assert of_lanes(multiply_double_rounding, value, multiplier, shift) == oracle.nearest_away(exact)
    assert of_lanes(multiply_double_rounding_up, value, multiplier, shift) == oracle.nearest_up(exact)


@given(value=int32, multiplier=st.integers(0, 2**31 - 1), shift=st.integers(1, 61))
@example(1, 2**30, 31)
@example(-1, 2**30, 31)
@example(3, 2**30, 31)
def test_one_rounding(value: int, multiplier: int, shift: int) -> None:
    exact = Fraction(value * multiplier, 2**shift)
    assert of_lanes(rounding_shift_right, value * multiplier, shift) == oracle.nearest_up(exact)


@given(value=st.integers(-(2**40), 2**40))
def test_wrapping(value: int) -> None:
    assert of_lanes(wrap_int32, value) == oracle.wrap32(value)
