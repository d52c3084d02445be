"""Casts between floats by every profile: all patterns of 16 bits, all ties with their neighbours, all codes."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize
from requant.errors import PreconditionError, UnknownNameError, UnsupportedError
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Plan
from requant.profiles import PROFILES, Operation, Rounding
from tests.oracles import casts as cast_oracle
from tests.oracles import small_floats as small_float_oracle
from tests.oracles.casts import CHOOSE_SATURATION, SOURCES, TARGETS, WIDE, Cast
from tests.oracles.quantization import from_bits
from tests.oracles.rounded_casts import RULES
from tests.support.cases import sample_array
from tests.support.float_samples import SPECIAL, neighbours, patterns, sixteen_bits

Array = NDArray[Any]
NUMPY = {"f16": "<f2", "bf16": "<u2", "f32": "<f4", "f64": "<f8"}
FORMATS = sorted(small_float_oracle.ROWS)
SCALE_ROUNDINGS = ("ceil", "floor", "nearest_up")


def tensor(element: str, size: int) -> TensorType:
    parsed = parse_type(f"tensor<{size}x{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


def numbers(name: str) -> Array:
    """Every representable number, every midpoint of two, and the first overflow."""
    if name == "f8E8M0FNU":
        exact = np.ldexp(1.0, np.arange(-151, 129))
    else:
        sign = small_float_oracle.FORMATS[name].sign
        codes = range(0, sign, 1 if sign < 1000 else 37)
        found = np.unique([abs(from_bits(small_float_oracle.decode(name, code))) for code in codes])
        exact = found[np.isfinite(found)]
        exact = np.append(exact, 2 * exact[-1] - exact[-2])
    return np.concatenate([exact, (exact[:-1] + exact[1:]) / 2])


def as_list(array: Array) -> list[float]:
    found: list[float] = array.tolist()
    return found


@cache
def samples(source: str, target: str) -> Array:
    """What is cast: of 16 bits everything, else ties and their neighbours at both precisions, specials, patterns."""
    if source in ("f16", "bf16"):
        return sixteen_bits().view("<f2") if source == "f16" else sixteen_bits()
    rng = np.random.default_rng(41)
    with np.errstate(all="ignore"):
        exact = np.concatenate([numbers(target), [480.0, 495.9, 496.0, 61440.0, 65535.0, 65536.0]])
        single = neighbours(np.concatenate([exact, -exact]).astype(np.float32))
        single = np.concatenate([SPECIAL, sample_array(single, 500), sample_array(patterns(2000, rng), 200)])
        if source == "f32":
            return single
        # What an f32 cannot tell from a tie, and payloads that it does not hold.
        beside = [np.nextafter(exact, limit) for limit in (-np.inf, np.inf)]
        double = sample_array(rng.integers(0, 1 << 64, 2000, dtype=np.uint64).view("<f8"), 200)
        nans = np.array([0x7FF0000000000001, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF], "<u8").view("<f8")
        ties = sample_array(np.concatenate([*beside, -exact, exact * (1 + 2.0**-30)]), 500)
        return np.concatenate([single.astype("<f8"), ties, double, nans])


@cache
def in_binary64(source: str, target: str) -> list[float]:
    """The same as Python floats: NaNs with their sign, and their payload in the highest bits."""
    array = samples(source, target)
    if source == "f64":
        return as_list(array)
    bits = array.view(f"<u{array.itemsize}").astype(np.uint64)
    if source == "bf16":
        bits <<= np.uint64(16)
    width, mantissa = (16, 10) if source == "f16" else (32, 23)
    with np.errstate(invalid="ignore"):
        real = (bits.astype("<u4").view("<f4") if width == 32 else array).astype("<f8")
    nan = np.isnan(real)
    sign, payload = bits >> np.uint64(width - 1), bits & np.uint64((1 << mantissa) - 1)
    kept = sign << np.uint64(63) | np.uint64(0x7FF << 52) | payload << np.uint64(52 - mantissa)
    return as_list(np.where(nan, kept, real.view("<u8")).view("<f8"))


def choices(profile: str, target: str) -> list[tuple[bool | None, str | None]]:
    """The values of saturate and rounding that can be asked for; a saturate that is true changes nothing."""
    if profile not in CHOOSE_SATURATION or not target.startswith("f8"):
        return [(None, None)]
    roundings = (None, *SCALE_ROUNDINGS) if target == "f8E8M0FNU" else (None,)
    return [(saturate, rounding) for saturate in (None, False) for rounding in roundings]


def run(plan: Plan, source: Array) -> tuple[Array, list[int]]:
    target = np.empty(source.size, plan.output_dtype)
    report = plan.run(source, target)
    return target, [report.saturated_low, report.saturated_high, report.nan]


@pytest.mark.sample(1)
@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("target", FORMATS)
def test_narrowing(target: str, source: str) -> None:
    x, values = samples(source, target), in_binary64(source, target)
    for profile in TARGETS:
        if target not in TARGETS[profile] or source not in SOURCES[profile] or source == target:
            with pytest.raises(UnsupportedError):
                plan_quantize(tensor(source, 4), parse_type(target), profile)
            continue
        for saturate, rounding in choices(profile, target):
            plan = plan_quantize(
                tensor(source, x.size),
                parse_type(target),
                profile,
                saturate=saturate,
                rounding=None if rounding is None else Rounding(rounding),
            )
            got, counts = run(plan, x)
            expected = [
                cast_oracle.cast(
                    profile,
                    source,
                    target,
                    value,
                    saturate=saturate,
                    rounding=rounding,
                    tail=cast_oracle.in_tail(profile, source, target, index, x.size),
                )
                for index, value in enumerate(values)
            ]
            codes = got.view(f"<u{got.itemsize}").tolist()
            wrong = [
                (value.hex(), hex(code), hex(each.code))
                for value, code, each in zip(values, codes, expected, strict=True)
                if code != each.code
            ]
            assert not wrong, f"{profile} {saturate} {rounding}: {len(wrong)}, (x, got, expected): {wrong[:4]}"
            assert counts == [sum(getattr(each, name) for each in expected) for name in ("low", "high", "nan")]


@pytest.mark.parametrize("source", WIDE)
def test_nan_at_every_place_of_short_tensors(source: str) -> None:
    """All lengths modulo 16, whole and in pieces."""
    for target, profile, size in itertools.product(FORMATS, TARGETS, (*range(1, 18), 31, 33)):
        if target not in TARGETS[profile] or source not in SOURCES[profile] or source == target:
            continue
        values = [math.nan if index % 3 else 1.5 for index in range(size)]
        x = np.array(values, "<f8").astype("<f4" if source == "bf16" else NUMPY[source])
        x = (x.view("<u4") >> 16).astype("<u2") if source == "bf16" else x
        expected = [
            cast_oracle.cast(
                profile, source, target, value, tail=cast_oracle.in_tail(profile, source, target, index, size)
            ).code
            for index, value in enumerate(values)
        ]
        plan = plan_quantize(tensor(source, size), parse_type(target), profile)
        for piece in (size, 5):
            got = np.empty(size, plan.output_dtype)
            for start in range(0, size, piece):
                plan.step(x[start : start + piece], got[start : start + piece], start, plan.new_counts())
            assert got.view(f"<u{got.itemsize}").tolist() == expected, (profile, target, size, piece)


@pytest.mark.parametrize("target", WIDE)
@pytest.mark.parametrize("source", FORMATS)
def test_widening(source: str, target: str) -> None:
    """Every code of 8 bits and fewer, and every pattern of f16 and bf16, to every wide float."""
    sixteen = source in ("f16", "bf16")
    narrow = 256 if source == "f8E8M0FNU" else small_float_oracle.FORMATS[source].codes
    codes = sixteen_bits() if sixteen else np.arange(narrow)
    stored = codes.view(NUMPY[source]) if sixteen else codes.astype("|u1")
    values = [from_bits(small_float_oracle.decode(source, code)) for code in codes.tolist()]
    for profile in TARGETS:
        if source not in TARGETS[profile] or target not in SOURCES[profile] or source == target:
            with pytest.raises(UnsupportedError):
                plan_dequantize(tensor(source, 4), parse_type(target), profile)
            continue
        got, counts = run(plan_dequantize(tensor(source, codes.size), parse_type(target), profile), stored)
        if target in ("f16", "bf16"):
            expected = [cast_oracle.cast(profile, source, target, value) for value in values]
            patterns_ = got.view("<u2").tolist()
            pairs = zip(values, patterns_, expected, strict=True)
            # Which NaN another NaN becomes is compared where both have 16 bits, on the way down.
            assert not [(v, p, e) for v, p, e in pairs if not math.isnan(v) and p != e.code]
            assert np.isnan(as_f32(got, target)).tolist() == [each.nan for each in expected]
            assert counts[:2] == [sum(each.low for each in expected), sum(each.high for each in expected)]
        else:
            assert [value.hex() for value in got.tolist()] == [value.hex() for value in values]
            assert counts[:2] == [0, 0]
        assert counts[2] == sum(map(math.isnan, values))


def as_f32(array: Array, element: str) -> Array:
    return (array.astype("<u4") << 16).view("<f4") if element == "bf16" else array.astype("<f4")


@pytest.mark.parametrize("source", ["f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E8M0FNU"])
def test_the_nan_of_a_small_float_is_quiet_with_the_sign_of_its_code(source: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    real, _ = run(plan_dequantize(tensor(source, 256), None, "ml_dtypes"), codes)
    nan = np.isnan(real)
    negative = nan & (codes >= 128) & (source != "f8E8M0FNU")
    assert nan.any()
    assert set(real[nan & ~negative].view("<u4").tolist()) <= {0x7FC00000}
    assert set(real[negative].view("<u4").tolist()) <= {0xFFC00000}


@pytest.mark.parametrize("piece", [1, 7, 20_000])
def test_pieces_of_any_size_are_the_same(piece: int) -> None:
    x = samples("f32", "f8E4M3FN")
    plan = plan_quantize(tensor("f32", x.size), parse_type("f8E4M3FN"), "onnx", saturate=False)
    whole, counts = run(plan, x)
    again, tally = np.empty_like(whole), plan.new_counts()
    for start in range(0, x.size, piece):
        plan.step(x[start : start + piece], again[start : start + piece], start, tally)
    assert again.tolist() == whole.tolist()
    assert tally.tolist()[:3] == counts


@pytest.mark.parametrize("output", ["f8E5M2", "f4E2M1FN", "f8E8M0FNU", "bf16", "!quant.uniform<f8E4M3FN:f32, 0.5>"])
def test_nan_as_an_error(output: str) -> None:
    x = np.zeros(40_000, np.float32)
    x[[33_333, 39_000]] = np.nan
    plan = plan_quantize(tensor("f32", x.size), parse_type(output), "onnx", nan=NanPolicy.ERROR)
    with pytest.raises(PreconditionError, match="NaN") as caught:
        run(plan, x)
    assert caught.value.index == 33_333
    assert run(plan, np.zeros_like(x))[1][2] == 0
    for policy in (NanPolicy.LOWEST, NanPolicy.ZERO_POINT):
        with pytest.raises(UnsupportedError, match=r"NaN") as refused:
            plan_quantize(tensor("f32", 4), parse_type(output), "onnx", nan=policy)
        assert refused.value.pointer == "/nan"


def test_saturation_is_the_default_where_it_is_a_choice() -> None:
    x = samples("f32", "f8E5M2")
    for profile in CHOOSE_SATURATION:
        for target in (*cast_oracle.F8, "f8E8M0FNU"):
            plans = [
                plan_quantize(tensor("f32", x.size), parse_type(target), profile, saturate=saturate)
                for saturate in (None, True, False)
            ]
            default, saturating, wrapping = (run(plan, x)[0].tolist() for plan in plans)
            assert default == saturating != wrapping


@pytest.mark.parametrize("saturate", [None, True, False])
def test_saturation_of_scaled_storage(saturate: bool | None) -> None:
    x = samples("f32", "f8E5M2")
    output = parse_type("!quant.uniform<f8E5M2:f32, 0.5>")
    for profile in CHOOSE_SATURATION:
        got, _ = run(plan_quantize(tensor("f32", x.size), output, profile, saturate=saturate), x)
        with np.errstate(all="ignore"):
            doubled = x * np.float32(2)  # exact, or an infinity, as the division by 0.5 is
        plain, _ = run(plan_quantize(tensor("f32", x.size), parse_type("f8E5M2"), profile, saturate=saturate), doubled)
        nan = np.isnan(x)
        assert got[~nan].tolist() == plain[~nan].tolist()
    with pytest.raises(UnsupportedError, match="saturation") as caught:
        plan_quantize(tensor("f32", 4), output, "onednn", saturate=True)
    assert caught.value.pointer == "/saturate"


def test_profiles_without_casts_say_so() -> None:
    without = [name for name in PROFILES if name not in TARGETS and name not in RULES]
    assert without
    for name in without:
        with pytest.raises(UnsupportedError, match=f"profile {name} does not define casts"):
            plan_quantize(tensor("f32", 4), parse_type("f16"), name)
        with pytest.raises(UnsupportedError, match=f"profile {name} does not define casts"):
            plan_dequantize(tensor("f16", 4), None, name)
    with pytest.raises(UnknownNameError):
        plan_dequantize(tensor("f16", 4), None, "onyx")
    with pytest.raises(UnsupportedError, match="it defines casts between floats"):
        PROFILES["ml_dtypes"].rule(Operation.QUANTIZE)


def test_what_is_no_cast_is_refused() -> None:
    for source, target in (("f32", "f64"), ("f64", "f32"), ("f32", "tf32"), ("f16", "f16"), ("i8", "f16")):
        with pytest.raises(UnsupportedError):
            plan_quantize(tensor(source, 4), parse_type(target), "onnx")
    for source, target in (("f8E5M2", "f8E4M3FN"), ("f32", "f64"), ("f16", "i8"), ("bf16", "bf16")):
        with pytest.raises(UnsupportedError):
            plan_dequantize(tensor(source, 4), parse_type(target), "onnx")
    with pytest.raises(UnsupportedError, match="small floats") as caught:
        plan_quantize(tensor("f32", 4), parse_type("!quant.uniform<i8:f32, 0.5>"), "onnx", saturate=True)
    assert caught.value.pointer == "/saturate"


def test_the_counts_of_an_element_that_is_rounded_twice() -> None:
    """464.0001 is 464 as an f16, and that is 448: no overflow."""
    x = np.array([464.0001, 465.0, -465.0], np.float32)
    assert run(plan_quantize(tensor("f32", 3), parse_type("f8E4M3FN"), "onednn"), x)[1] == [1, 1, 0]
    assert cast_oracle.cast("onednn", "f32", "f8E4M3FN", float(x[0])) == Cast(0x7E)
