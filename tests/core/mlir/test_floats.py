"""Rounding to small formats against an exact search in the list of all their values, and the texts of floats."""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from fractions import Fraction
from math import inf, nan
from random import Random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.formats.elements import FLOATS
from requant.formats.float_format import reads_back, round_to_format
from requant.mlir.printer import float_from_bits, float_text, scale_text

_DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3": ml_dtypes.float8_e4m3,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f8E3M4": ml_dtypes.float8_e3m4,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f6E2M3FN": ml_dtypes.float6_e2m3fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
}


def _values(name: str) -> list[float]:
    """Return the positive finite values of a format in order; an even index is an even bit pattern, less one."""
    width = FLOATS[name].width
    codes = np.arange(1 << width, dtype=np.uint16 if width > 8 else np.uint8)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        numbers = codes.view(_DTYPES[name]).astype(np.float64)
    return sorted({float(x) for x in numbers if np.isfinite(x) and x > 0})


@pytest.mark.parametrize("name", _DTYPES)
def test_nearest_with_ties_to_even(name: str) -> None:
    element, values = FLOATS[name], _values(name)
    assert (values[0], values[-1]) == (element.smallest, element.largest)
    random = Random(5)
    picks = values if len(values) < 600 else random.sample(values[:-1], 600)
    for value in picks:
        assert round_to_format(value, element) == value
    for low in picks:
        index = bisect_left(values, low)
        if index + 1 == len(values):
            continue
        high = values[index + 1]
        # With one bit of precision every significand is odd, and a tie goes to the greater exponent.
        even = high if name == "f8E8M0FNU" or index % 2 == 0 else low
        middle = (low + high) / 2
        for x in (
            middle,
            float(np.nextafter(middle, low)),
            float(np.nextafter(middle, high)),
            random.uniform(low, high),
        ):
            distance = Fraction(x) - Fraction(low), Fraction(high) - Fraction(x)
            expected = even if distance[0] == distance[1] else low if distance[0] < distance[1] else high
            assert round_to_format(x, element) == expected, (low, x, high)


@pytest.mark.parametrize("name", ["f32", "tf32"])
def test_wide_formats(name: str) -> None:
    random = Random(6)
    for _ in range(2000):
        x = random.uniform(1.0, 2.0) * 2.0 ** random.randint(-130, 126)
        rounded = round_to_format(x, FLOATS[name])
        if name == "f32":
            assert rounded == float(np.float32(x))
        else:
            assert abs(rounded - x) <= 2.0**-11 * x or x < 2.0**-126
            assert round_to_format(rounded, FLOATS[name]) == rounded


@pytest.mark.parametrize("name", ["f64", "f80", "f128"])
def test_formats_that_hold_every_f64(name: str) -> None:
    for x in (0.0, -0.0, float("inf"), 5e-324, 0.1):
        assert round_to_format(x, FLOATS[name]) == x


def test_decimal_is_rounded_once() -> None:
    """Just above the middle of two f32, where going through f64 first would lose the difference."""
    one_up = float(np.nextafter(np.float32(1), np.float32(2)))
    middle = f"1.{'0' * 7}5960464477539062500001"
    assert float(middle) == 1 + 2.0**-24
    assert reads_back(middle, one_up, FLOATS["f32"])
    assert not reads_back(middle, 1.0, FLOATS["f32"])
    assert reads_back("1.000000059604644775390625", 1.0, FLOATS["f32"])
    assert not reads_back("0.1", 0.1, FLOATS["f128"])
    assert reads_back("0.5", 0.5, FLOATS["f128"])
    assert reads_back("0.000000e+00", 0.0, FLOATS["f80"])


@pytest.mark.parametrize("name", ["f80", "f128"])
def test_the_interval_that_rounds_to_a_value_in_a_finer_format(name: str) -> None:
    element, random = FLOATS[name], Random(9)
    values = [1.0, 0.1, 3.0, 5e-324, 2.0**-1022, 2.0**-1000, 1.7976931348623157e308, 2.0**1023]
    values += [random.uniform(0.5, 1) * 2.0 ** random.randrange(-300, 300) for _ in range(200)]
    for value in values:
        above = Fraction(2) ** (math.frexp(value)[1] - element.precision - 1)
        below = above / 2 if math.frexp(value)[0] == 0.5 else above
        for offset, inside in ((above, True), (-below, True), (above * 101 / 100, False), (-below * 101 / 100, False)):
            number = (Fraction(value) + offset) * 10**1300
            # More digits than any of these numbers has, but for the last of them.
            assert number.denominator == 1 or not inside
            assert reads_back(f"{round(number)}.0e-1300", value, element) is inside, (value, offset)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "1.000000e-01"),
        (0.2, "2.000000e-01"),
        (34.0, "3.400000e+01"),
        (1e22, "1.000000e+22"),
        (0.998, "0.998"),
        (0.7, "0.69999999999999996"),
        (0.99, "0.98999999999999999"),
        (0.999, "0.99899999999999999"),
        (0.9999, "9.999000e-01"),
        (1.1, "1.100000e+00"),
        (0.0001234567, "1.234567E-4"),
        (1e38, "9.9999999999999997E+37"),
        (1 / 3, "0.33333333333333331"),
        (1234567.0, "0x4132D68700000000"),
        (16777217.0, "0x4170000010000000"),
        (123456.0, "1.234560e+05"),
        (1000000.0, "1.000000e+06"),
        (-0.998, "-0.998"),
        (0.0, "0.000000e+00"),
        (-0.0, "-0.000000e+00"),
        (inf, "0x7FF0000000000000"),
        (-inf, "0xFFF0000000000000"),
        (nan, "0x7FF8000000000000"),
        (5e-324, "4.940660e-324"),
        (1.7976931348623157e308, "1.7976931348623157E+308"),
    ],
)
def test_table(value: float, text: str) -> None:
    assert float_text(value) == text


@pytest.mark.parametrize(
    ("value", "expressed", "text"),
    [
        (0.1, "f32", "1.000000e-01"),
        (0.333333333333, "f32", "0.333333343"),
        (0.1, "bf16", "1.000980e-01"),
        (0.2, "f16", "1.999510e-01"),
        (0.1, "f8E4M3FN", "1.015630e-01"),
        (1.2e-38, "f8E8M0FNU", "1.175490e-38"),
        (0.1, "f128", "0.100000000000000005551115123125782702"),
        (5.09733857, "f80", "5.09733856999999979109"),
        (1234567.0, "f32", "1234567.0"),
        (1234567.0, "f64", "1234567.0"),
        (inf, "f80", "1.0E+400"),
        (FLOATS["f32"].largest, "f32", "3.4028234663852886E+38"),
        (FLOATS["f16"].smallest, "f16", "5.9604644775390625E-8"),
    ],
)
def test_scale_of_a_format(value: float, expressed: str, text: str) -> None:
    """All but the last five are what iree-opt 3.13 prints; those are read back by it (tests/interop)."""
    assert scale_text(round_to_format(value, FLOATS[expressed]), FLOATS[expressed]) == text


def _read(text: str) -> float:
    return float_from_bits(int(text, 16)) if "0x" in text else float(text)


@given(st.integers(0, (1 << 64) - 1))
def test_text_reads_back_to_the_same_bits(bits: int) -> None:
    value = float_from_bits(bits)
    assert struct.pack("<d", _read(float_text(value))) == struct.pack("<d", value)


@given(st.sampled_from([e for e in FLOATS.values() if e.precision < 53]), st.data())
def test_scale_reads_back_to_the_same_value(element: object, data: st.DataObject) -> None:
    assert isinstance(element, type(FLOATS["f32"]))
    value = round_to_format(data.draw(st.floats(element.smallest, element.largest)), element)
    assert round_to_format(float(scale_text(value, element)), element) == value
