"""Tensors as JSON numbers: exact in both directions."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.arrays import json_values as values
from requant.errors import TensorDataError
from requant.formats.elements import FLOATS

F32 = np.dtype("<f4")
I8 = np.dtype("i1")


def decode(text: str, dtype: np.dtype[Any], elements: int | None = None) -> np.ndarray[Any, Any]:
    """Decode a JSON array as the route does it."""

    def literals() -> Sequence[str]:
        written: list[str] = json.loads(text, parse_float=str, parse_int=str)
        return written

    numbers = json.loads(text)
    return values.decode(numbers, dtype, len(numbers) if elements is None else elements, literals)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_every_f32_reads_back_to_its_bits(patterns: list[int]) -> None:
    array = np.array(patterns, np.uint32).view(np.float32)
    again = decode(values.encode(array).decode("ascii"), F32)
    assert np.array_equal(np.isnan(array), np.isnan(again))
    numbers = ~np.isnan(array)
    assert array[numbers].tobytes() == again[numbers].tobytes()


def test_floats_are_written_with_the_fewest_digits() -> None:
    array = np.array([0.1, 1.0, -0.0, 1e-45, 3.4028235e38, np.nan, np.inf, -np.inf], np.float32)
    assert values.encode(array) == b'[0.1,1.0,-0.0,1e-45,3.4028235e+38,"NaN","Infinity","-Infinity"]'
    assert values.encode(np.array([-128, 127], np.int8)) == b"[-128,127]"
    assert values.encode(np.array([], np.int8)) == b"[]"


@pytest.mark.parametrize(
    ("literal", "bits"),
    [
        ("1.000000059604644775390625", 0x3F800000),  # a tie, to even
        ("1.00000005960464477539062500000001", 0x3F800001),  # above the tie, and the same binary64
        ("1.00000017881393432617187499999999", 0x3F800001),  # below the next tie, and the same binary64
        ("-1.00000005960464477539062500000001", 0xBF800001),
        ("1152921573326323713", 0x5D800001),  # an integer above a tie, and the same binary64
        ("1152921573326323712", 0x5D800000),
        ("7.0064923216240853546186479164495807e-46", 0x00000001),  # above half of the smallest subnormal
        ("7.0064923216240853546186479164495806e-46", 0x00000000),
        ("340282356779733661637539395458142568447.9", 0x7F7FFFFF),  # just below what rounds to infinity
        ("-0.0", 0x80000000),
        ("1e-400", 0x00000000),
        ("16777217", 0x4B800000),
    ],
)
def test_decimals_round_once(literal: str, bits: int) -> None:
    assert decode(f"[{literal}]", F32).view(np.uint32)[0] == bits


@dataclass(frozen=True)
class Narrow:
    """A float narrower than binary64: how many digits and exponents it has, and how its elements are kept."""

    name: str
    precision: int
    largest_exponent: int
    dtype: str

    @property
    def last_pattern(self) -> int:
        """The pattern of the largest number."""
        return ((2 * self.largest_exponent + 1) << (self.precision - 1)) - 1

    def number(self, pattern: int) -> Fraction:
        """The number of a positive pattern, beyond the largest too: as if there were more exponents."""
        exponent, digits = divmod(pattern, 1 << (self.precision - 1))
        if exponent > 0:
            digits += 1 << (self.precision - 1)
        # Subnormal numbers have the last place of the smallest normal ones.
        return digits * Fraction(2) ** (max(exponent, 1) - self.largest_exponent - self.precision + 1)


NARROW = [Narrow("f32", 24, 127, "<u4"), Narrow("f16", 11, 15, "<u2"), Narrow("bf16", 8, 127, "<u2")]


def decode_narrow(text: str, narrow: Narrow) -> int:
    """The pattern of the first of a JSON array's numbers."""
    element = FLOATS[narrow.name]
    numbers = json.loads(text)

    def literals() -> Sequence[str]:
        written: list[str] = json.loads(text, parse_float=str, parse_int=str)
        return written

    decoded = values.decode_elements(numbers, element, element.tensor_dtype, [len(numbers)], literals)
    return int(decoded.view(narrow.dtype)[0])


@pytest.mark.parametrize("narrow", NARROW, ids=lambda narrow: narrow.name)
@given(data=st.data(), beside=st.integers(-2, 2), negative=st.booleans())
def test_literals_around_every_tie_round_once(narrow: Narrow, data: st.DataObject, beside: int, negative: bool) -> None:
    pattern = data.draw(st.integers(0, narrow.last_pattern - 1))
    digits = (narrow.number(pattern) + narrow.number(pattern + 1)) / 2 * 10**200 + beside
    assert digits.denominator == 1  # every tie of f32 has fewer decimals than 200
    literal = f"{'-' if negative else ''}{digits.numerator}.0e-200"
    expected = pattern + (beside > 0 or (beside == 0 and pattern % 2))
    sign = negative << (8 * np.dtype(narrow.dtype).itemsize - 1)
    assert decode_narrow(f"[{literal}]", narrow) == expected + sign


@pytest.mark.parametrize("narrow", NARROW, ids=lambda narrow: narrow.name)
@given(data=st.data())
def test_any_number_is_the_nearest_or_refused(narrow: Narrow, data: st.DataObject) -> None:
    number = data.draw(st.floats(allow_nan=False, allow_infinity=False))
    # The literal decides, not the binary64 next to it.
    exact, past = abs(Fraction(repr(number))), narrow.number(narrow.last_pattern + 1)
    if exact >= (narrow.number(narrow.last_pattern) + past) / 2:
        with pytest.raises(TensorDataError, match="value 0 is too large"):
            decode_narrow(f"[{number!r}]", narrow)
        return
    sign_bit = 8 * np.dtype(narrow.dtype).itemsize - 1
    found = decode_narrow(f"[{number!r}]", narrow)
    pattern = found & ~(1 << sign_bit)
    assert found >> sign_bit == (math.copysign(1, number) < 0)
    away = abs(narrow.number(pattern) - exact)
    for other in {max(pattern - 1, 0), pattern + 1} - {pattern}:
        further = abs(narrow.number(other) - exact)
        assert away < further or (away == further and pattern % 2 == 0)


@pytest.mark.parametrize(
    "other",
    ["1e-9999999999999999999", "0e9999999999999999999", f"0.{'0' * 50_000}1", f"1.{'1' * 50_000}", f"1{'0' * 30}"],
)
def test_beside_a_tie_other_literals_have_any_form(other: str) -> None:
    decoded = decode(f"[16777217,{other},16777219.0]", F32)
    assert decoded.tolist() == [16777216.0, float(np.float32(float(other))), 16777220.0]


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        (f"16777217.{'0' * 50_000}1", 16777218.0),
        (f"0.{'0' * 50_000}16777217e50008", 16777216.0),
        (f"16777217{'0' * 4000}e-4000", 16777216.0),
        (f"16777217{'0' * 4000}.5e-4000", 16777218.0),
        ("16777217e-000000000000000000000000", 16777216.0),
    ],
)
def test_ties_of_any_form(literal: str, expected: float) -> None:
    assert decode(f"[{literal}]", F32).tolist() == [expected]


def test_no_literals_are_asked_for_without_need() -> None:
    def never() -> Sequence[str]:
        raise AssertionError("not needed")

    assert values.decode([0.1, 1, "NaN", 3.5], F32, 4, never).size == 4


@pytest.mark.parametrize("text", ["[1.5]", "[1.0]", '["1"]', "[true]", "[128]", "[-129]", "[1e3]", f"[{10**30}]"])
def test_integers_have_to_be_integers_in_range(text: str) -> None:
    with pytest.raises(TensorDataError, match="-128 to 127"):
        decode(text, I8)


@pytest.mark.parametrize(
    "text", ["[1e39]", "[-1e39]", "[340282356779733661637539395458142568448]", f"[{10**400}]", "[1e999]"]
)
def test_floats_that_do_not_fit_are_not_infinity(text: str) -> None:
    with pytest.raises(TensorDataError, match="Infinity"):
        decode(text, F32)


@pytest.mark.parametrize("text", ['["nan"]', '["inf"]', '["0.5"]', "[NaN]", "[Infinity]"])
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(TensorDataError):
        decode(text, F32)


def test_the_number_of_values_is_that_of_the_type() -> None:
    with pytest.raises(TensorDataError, match=r"2 values.*3 elements"):
        decode("[1, 2]", I8, 3)
