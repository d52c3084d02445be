"""The small floats: every code decoded, and every f16 and bf16 pattern, every tie and its neighbours encoded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from requant.convert.float_encoding import encoder
from requant.convert.small_floats import SMALL_FLOATS, check_codes, decode, decode_table, small_float
from requant.errors import TensorDataError, UnsupportedError
from requant.formats.elements import FLOATS
from requant.profiles import PROFILES, Rounding
from requant.profiles.cast import CastRule, FloatOverflow, ScaleRange
from tests.oracles import small_floats as oracle
from tests.support.cases import sample_array
from tests.support.float_samples import sixteen_bits
from tests.vector_cases.conversion import floats, load

FORMATS = sorted(oracle.FORMATS)
NAMES = {name.lower().removeprefix("f8").removeprefix("f6").removeprefix("f4"): name for name in SMALL_FLOATS}
ML_DTYPES = {name: getattr(ml_dtypes, f"float{name[1]}_{short}") for short, name in NAMES.items() if name[0] == "f"
             and name != "f16"} | {"bf16": ml_dtypes.bfloat16, "f16": np.float16}  # fmt: skip

AUTHORITIES = {"onnxruntime": "onnx", "numpy": "ml_dtypes"}
"""The profiles of the authorities of float8.json that have another name."""
MODES = {"up": Rounding.CEILING, "down": Rounding.FLOOR, "nearest": Rounding.NEAREST_UP}


def rule_of(authority: str) -> CastRule:
    return PROFILES[AUTHORITIES.get(authority, authority)].cast_rule()


def any_rule(overflow: FloatOverflow = FloatOverflow.NON_SATURATING, **fields: Any) -> CastRule:
    """Every format, f64 rounded once."""
    return CastRule("a test", "", "", tuple(SMALL_FLOATS), overflow, f64_once=tuple(SMALL_FLOATS), **fields)


def encode(
    values: np.ndarray, name: str, rule: CastRule, saturate: bool | None = None, rounding: Rounding | None = None
) -> np.ndarray:
    codes = np.empty(values.size, small_float(name).code_dtype)
    source = "f64" if values.dtype == np.float64 else "f32"
    made = encoder(rule, name, source, saturate=saturate, rounding=rounding)
    made.encode(values, codes, 0, np.zeros(4, np.int64))
    return codes


def bits(patterns: np.ndarray) -> np.ndarray:
    return patterns.astype("<u4").view("<f4")


with np.errstate(invalid="ignore"):
    # A signalling NaN is an invalid operation on aarch64.
    ALL_F16 = sixteen_bits().view("<f2").astype("<f4")
ALL_BF16 = bits(sixteen_bits().astype("<u4") << 16)


def ties(name: str) -> np.ndarray:
    """Every representable value and what overflows first, and every midpoint of two; of 16 bits a sample has some."""
    values = [float(value) for code in range(oracle.FORMATS[name].sign)
              if isinstance(value := oracle.value_of(name, code), Fraction)]  # fmt: skip
    steps = np.array([*values, 2 * values[-1] - values[-2]])
    middles = (steps[:-1] + steps[1:]) / 2
    # The largest and the smallest are always among them.
    ends = np.concatenate([each[part] for each in (steps, middles) for part in (slice(4), slice(-4, None))])
    exact = np.concatenate([sample_array(steps, 400), sample_array(middles, 400), ends])
    return np.concatenate([exact, -exact])


def neighbours(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)])


def as_patterns(values: np.ndarray) -> np.ndarray:
    return values.view(f"<u{values.dtype.itemsize}")


def saturation_of(row: str) -> bool | None:
    return {"1": True, "0": False}[row[-1]] if "saturate=" in row else None


def assert_same(x: np.ndarray, got: np.ndarray, expected: np.ndarray) -> None:
    wrong = np.flatnonzero(got != expected)
    shown = [(float(x[i]).hex(), hex(int(got[i])), hex(int(expected[i]))) for i in wrong[:4]]
    assert not wrong.size, f"{wrong.size} of {x.size} differ, first (x, got, expected): {shown}"


@pytest.mark.parametrize("name", sorted(oracle.ROWS))
def test_numbers_of_a_format(name: str) -> None:
    format_ = small_float(name)
    row = (format_.largest, format_.largest_code, format_.smallest_normal, format_.smallest)
    assert row == oracle.ROWS[name]
    element = FLOATS[name]
    assert (element.width, element.precision) == (format_.width, format_.mantissa_bits + 1)
    assert (element.largest, element.smallest) == (format_.largest, format_.smallest)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sorted(oracle.ROWS))
def test_every_code_is_decoded(name: str) -> None:
    codes = np.arange(1 << small_float(name).width, dtype=small_float(name).code_dtype)
    expected = np.array([int(oracle.decode(name, int(code)), 16) for code in codes], "<u4")
    got, nan = decode(codes, name), np.isnan(bits(expected))
    assert_same(codes, as_patterns(got)[~nan], expected[~nan])
    assert np.isnan(got[nan]).all()
    assert_same(codes, as_patterns(decode_table(name)), expected)
    if name != "f8E8M0FNU":
        assert_same(codes[nan], np.signbit(got[nan]), np.signbit(bits(expected)[nan]))


@pytest.mark.parametrize("row", sorted(load("float8")["decode"]))
def test_decoding_vectors(row: str) -> None:
    expected = floats(load("float8")["decode"][row])
    codes = np.arange(expected.size, dtype="|u1")
    assert_same(codes, as_patterns(decode(codes, NAMES[row])), as_patterns(expected))


@pytest.mark.parametrize("group", ["encode", "encode16"])
def test_every_row_of_the_vectors_is_compared(group: str) -> None:
    """No authority's row is left out, and no value."""
    data = load("float8")
    x = floats(data["x" if group == "encode" else "x16"])
    for row, text in data[group].items():
        digits = 4 if NAMES[row.split(":")[1]] in ("f16", "bf16") else 2
        expected = np.array([int(text[i : i + digits], 16) for i in range(0, len(text), digits)])
        authority, name = row.split(":")[:2]
        assert_same(x, encode(x, NAMES[name], rule_of(authority), saturation_of(row)), expected)


@pytest.mark.parametrize("row", [row for row in load("float8")["e8m0"] if row != "x"])
def test_scale_vectors(row: str) -> None:
    data = load("float8")["e8m0"]
    authority, *mode = row.split(":")
    x = floats(data["x"])
    got = encode(x, "f8E8M0FNU", rule_of(authority), saturation_of(row), MODES[mode[0]] if mode else None)
    assert_same(x, got, np.frombuffer(bytes.fromhex(data[row]), "|u1"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("saturating", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_encoding_against_the_oracle(name: str, saturating: bool) -> None:
    """f32: all f16, all bf16, all ties with their f32 neighbours. f64: the ties with their f64 neighbours."""
    rule = any_rule(FloatOverflow.SATURATING if saturating else FloatOverflow.NON_SATURATING)
    special = oracle.special_codes(name, saturating=saturating)
    with np.errstate(over="ignore"):
        f32_ties = neighbours(ties(name).astype("<f4"))
    for x in (ALL_F16, ALL_BF16, f32_ties, neighbours(ties(name))):
        expected = np.array([oracle.encode(name, value, **special) for value in x.tolist()])
        assert_same(x, encode(x, name, rule), expected)


@pytest.mark.parametrize("name", FORMATS)
def test_encoding_against_ml_dtypes(name: str) -> None:
    """The same values and random patterns, through the library itself; numpy for f16.

    ml_dtypes takes an f64 to f32 first and so rounds twice; numpy does not.
    """
    rng = np.random.default_rng(8)
    with np.errstate(over="ignore"):
        f32_ties = neighbours(ties(name).astype("<f4"))
    random_f32 = bits(rng.integers(0, 1 << 32, 100_000))
    random_f64 = rng.standard_normal(100_000) * 2.0 ** rng.integers(-20, 20, 100_000)
    for x in (ALL_F16, ALL_BF16, f32_ties, random_f32, neighbours(ties(name)), random_f64):
        with np.errstate(all="ignore"):
            expected = as_patterns(x.astype(ML_DTYPES[name]))
        assert_same(x, encode(x, name, rule_of("ml_dtypes")), expected)


def test_scales_against_ml_dtypes_and_the_oracle() -> None:
    rng = np.random.default_rng(8)
    edges = (np.arange(512)[:, None] << 23) + np.array([0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF])
    x = np.concatenate([ALL_F16, ALL_BF16, bits(edges.reshape(-1)), bits(rng.integers(0, 1 << 32, 50_000))])
    with np.errstate(invalid="ignore"):
        expected = x.astype(ml_dtypes.float8_e8m0fnu).view("|u1")
    assert_same(x, encode(x, "f8E8M0FNU", rule_of("ml_dtypes")), expected)
    for mode, rounding in MODES.items():
        for saturating in (False, True):
            for positive_only in (False, True):
                rule = any_rule(
                    FloatOverflow.SATURATING if saturating else FloatOverflow.NON_SATURATING,
                    roundings={"f8E8M0FNU": (rounding,)},
                    scale_range=ScaleRange.POSITIVE_ONLY if positive_only else ScaleRange.AFTER_ROUNDING,
                )
                expected = np.array([
                    oracle.encode_scale(pattern, mode, saturating=saturating, positive_only=positive_only)
                    for pattern in as_patterns(x).tolist()
                ])  # fmt: skip
                assert_same(x, encode(x, "f8E8M0FNU", rule), expected)


@pytest.mark.parametrize("name", FORMATS)
def test_every_number_survives_a_round_trip(name: str) -> None:
    codes = np.arange(1 << small_float(name).width, dtype=small_float(name).code_dtype)
    values = decode(codes, name)
    finite = ~np.isnan(values)
    for x in (values[finite], values[finite].astype("<f8")):
        assert_same(x, encode(x, name, any_rule()), codes[finite])


def test_f64_is_rounded_once() -> None:
    """1 + 2^-4 + 2^-40 is beside a tie of E4M3 that it is on as an f32."""
    x = np.array([1 + 2.0**-4 + 2.0**-40])
    assert encode(x, "f8E4M3FN", any_rule()).tolist() == [0x39]
    assert encode(x.astype("<f4"), "f8E4M3FN", any_rule()).tolist() == [0x38]
    assert encode(x, "f8E4M3FN", rule_of("ml_dtypes")).tolist() == [0x38]


def test_onednn_rounds_twice_and_loses_the_sign_of_zero() -> None:
    x = np.array([2.0**-10 * (1 + 2.0**-23), -0.0, -1e-30, 464.0, 480.0], "<f4")
    assert encode(x, "f8E4M3FN", rule_of("onednn")).tolist() == [0x00, 0x00, 0x80, 0x7E, 0x7F]
    assert encode(x, "f8E4M3FN", rule_of("ml_dtypes")).tolist() == [0x01, 0x80, 0x80, 0x7E, 0x7F]


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="f8E4M3FN"):
        encoder(any_rule(), "f8e4m3fn")
    with pytest.raises(UnsupportedError, match="torch does not cast to f8E4M3B11FNUZ"):
        encoder(rule_of("torch"), "f8E4M3B11FNUZ")
    for authority, name, options in (
        ("torch", "f8E5M2", {"saturate": True}),
        ("onnxruntime", "f16", {"saturate": False}),
        ("onnxruntime", "f4E2M1FN", {"saturate": True}),
        ("onnxruntime", "f8E5M2", {"rounding": Rounding.FLOOR}),
        ("torch", "f8E8M0FNU", {"rounding": Rounding.CEILING}),
        ("onnxruntime", "f8E8M0FNU", {"rounding": Rounding.NEAREST_EVEN}),
    ):
        with pytest.raises(UnsupportedError) as caught:
            encoder(rule_of(authority), name, **options)
        assert caught.value.pointer == f"/{next(iter(options))}"
    with pytest.raises(TensorDataError, match="index 2"):
        decode(np.array([1, 15, 16], "|u1"), "f4E2M1FN")
    check_codes(np.array([], "|u1"), "f4E2M1FN")
    assert decode(np.array([], "|u1"), "f8E5M2").size == 0
