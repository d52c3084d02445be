"""Float texts: what MLIR prints, and that the text identifies the value."""

from __future__ import annotations

import struct
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.formats.elements import FLOATS
from requant.formats.float_format import round_to_format
from requant.mlir.printer import float_from_bits, float_text, scale_text


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
