"""Formulas as monotone steps: every step against brute force, and the segments of compositions of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.equality.steps import (
    MAX_SEGMENTS,
    WAYS,
    Encoding,
    Steps,
    TooManySegmentsError,
    exactly,
    outcome,
    segments,
    to_float,
)
from requant.formats.elements import FLOATS
from tests.oracles import small_floats
from tests.oracles.profiles import FORMATS
from tests.support.cases import examples

LOWEST, HIGHEST = -400, 400
NUMBERS = st.integers(-60, 60)
# Any chain of these takes an integer to an integer, if it ends in a rounding.
LINKS = st.one_of(
    st.tuples(st.just("add"), NUMBERS, st.integers(1, 8)),
    st.tuples(st.just("multiply"), NUMBERS, st.integers(1, 8)),
    st.tuples(st.just("float"), st.integers(2, 6), st.integers(-3, 1), st.integers(6, 12)),
    st.tuples(st.just("integer"), st.sampled_from(sorted(WAYS))),
    st.tuples(st.just("clamp"), st.integers(-300, -1), st.integers(0, 300)),
    st.tuples(st.just("nudge"), st.integers(0, 9)),
    st.tuples(st.just("flush"), st.integers(0, 20), st.integers(1, 4)),
    st.tuples(st.just("within"), st.integers(-300, -1), st.integers(0, 300), st.one_of(st.none(), NUMBERS)),
)
WRAPS = st.tuples(st.just("integer"), st.just("floor")), st.tuples(st.just("wrap"), st.integers(4, 8))
CHAINS = st.lists(LINKS, max_size=6)


def closed(before: list[tuple[object, ...]], wraps: bool, bits: int, after: list[tuple[object, ...]]) -> Steps:
    """A chain with a wrap in the middle, of numbers that are finite there, and an integer at the end."""
    wrap = (("clamp", -5000, 5000), ("integer", "floor"), ("wrap", bits)) if wraps else ()
    return (*before, *wrap, *after, ("clamp", -5000, 5000), ("integer", "even"))


@given(CHAINS, st.booleans(), st.integers(4, 8), CHAINS)
@settings(max_examples=examples(60), deadline=None)
def test_formulas_are_monotone_on_their_segments(
    before: list[tuple[object, ...]], wraps: bool, bits: int, after: list[tuple[object, ...]]
) -> None:
    steps = closed(before, wraps, bits, after)
    found = segments(steps, LOWEST, HIGHEST)
    assert [found[0].lowest, found[-1].highest] == [LOWEST, HIGHEST]
    assert all(before.highest + 1 == after.lowest for before, after in pairwise(found))
    for segment in found:
        results = [outcome(steps, x) for x in range(segment.lowest, segment.highest + 1)]
        assert len({branches for _, branches in results}) == 1
        values = [value for value, _ in results if value is not None]
        assert len(values) == (0 if segment.undefined else len(results))
        assert values in (sorted(values), sorted(values, reverse=True))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_rounding_to_floats(name: str) -> None:
    element = FLOATS[name]
    ulp = Fraction(2) ** (1 - element.precision)
    cases = [sign * (1 + n * ulp / 4) * Fraction(2) ** e for sign in (1, -1) for n in range(9) for e in (-3, 0, 100)]
    cases += [n * Fraction(element.smallest) / 4 for n in range(9)]
    cases += [Fraction(element.largest) + n * Fraction(element.largest) * ulp / 8 for n in range(9)]
    for number in cases:
        steps: Steps = (("multiply", number.numerator, number.denominator), *to_float(element))
        assert float(exactly(steps, 1)) == FORMATS[name].round(number)


@pytest.mark.parametrize("name", ["f8E4M3FN", "f8E5M2", "f6E3M2FN", "f4E2M1FN", "f8E4M3B11FNUZ"])
def test_codes_of_floats(name: str) -> None:
    element = FLOATS[name]
    code = Encoding(element.mantissa_bits, element.bias, element.sign_bit, 0, element.largest_code, 254, 255)
    for halves in range(-400, 400):
        number = Fraction(halves, 64)
        steps: Steps = (("multiply", number.numerator, number.denominator), *code.steps)
        found, (_, branch) = outcome(steps, 1)
        nearest = small_floats.nearest(name, abs(number))
        expected = 254 if nearest is None else nearest
        assert found == expected | (element.sign_bit if number < 0 and expected else 0)
        assert branch == (2 if nearest is None else 1) * (-1 if number < 0 else 1)


def test_a_negative_zero_keeps_its_sign_until_something_is_added() -> None:
    code = Encoding.ieee(FLOATS["f32"]).steps
    decode = ("decode", 23, 127, 255 << 23, -1)
    assert outcome((decode, *code), 0)[0] == 1 << 31
    assert outcome((decode, ("multiply", -3, 1), *code), 0)[0] == 0
    assert outcome((decode, ("add", 0, 1), *code), 0)[0] == 0
    assert outcome((decode, ("multiply", 1, 1 << 200), *to_float(FLOATS["f32"]), *code), 1)[0] == 1 << 31


def test_formulas_that_wrap_too_often_are_left_alone() -> None:
    steps: Steps = (("multiply", 1 << 12, 1), ("wrap", 12))
    assert len(segments(steps, 0, MAX_SEGMENTS - 1)) == MAX_SEGMENTS
    with pytest.raises(TooManySegmentsError):
        segments(steps, 0, 2 * MAX_SEGMENTS)
