"""Casts in every rounding: all patterns of 16 bits to every format, ties and ends with their neighbours, few bits and
many, in any pieces."""

from __future__ import annotations

import itertools
import math
import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant import quantize
from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize
from requant.convert.small_floats import decode_table
from requant.errors import ParameterError, PreconditionError, UnsupportedError
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Plan
from requant.profiles import PROFILES, Rounding
from tests.oracles import rounded_casts as oracle
from tests.oracles.rounded_casts import FINITE, FORMATS, RULES, Cast
from tests.support.cases import sample_array
from tests.support.float_samples import SPECIAL, neighbours, patterns, sixteen_bits

Array = NDArray[Any]
SOURCES = ("f16", "bf16", "f32", "f64")


def tensor(element: str, size: int) -> TensorType:
    parsed = parse_type(f"tensor<{size}x{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


def value_of(name: str, code: int) -> float:
    """The value of a finite magnitude code, or of the one beyond."""
    format_ = FORMATS[name]
    exponent, mantissa = divmod(code, 1 << format_.mantissa_bits)
    whole = mantissa + ((1 << format_.mantissa_bits) if exponent else 0)
    return math.ldexp(whole, max(exponent, 1) - format_.bias - format_.mantissa_bits)


@cache
def samples(source: str, target: str) -> Array:
    """What is cast: of 16 bits everything, else numbers of the format, ties and quarters, with their neighbours."""
    if source in ("f16", "bf16"):
        return sixteen_bits().view("<f2") if source == "f16" else sixteen_bits()
    rng = np.random.default_rng(43)
    largest = FORMATS[target].largest
    codes = np.unique([*range(min(8, largest)), *range(largest - 3, largest + 1), *rng.integers(0, largest, 60)])
    steps = [(value_of(target, code), value_of(target, code + 1)) for code in codes.tolist()]
    exact = np.array([low + (high - low) * part for low, high in steps for part in (0, 0.25, 0.5, 0.75)])
    tiny = value_of(target, 1) * np.exp2(-np.arange(1, 90, 7))
    with np.errstate(all="ignore"):
        exact = np.concatenate([exact, tiny])
        single = neighbours(np.concatenate([exact, -exact]).astype(np.float32))
        single = np.concatenate([SPECIAL, sample_array(single, 500), sample_array(patterns(2000, rng), 200)])
        if source == "f32":
            return single
        beside = [np.nextafter(exact, limit) for limit in (-np.inf, np.inf)]
        double = sample_array(rng.integers(0, 1 << 64, 2000, dtype=np.uint64).view("<f8"), 200)
        nans = np.array([0x7FF0000000000001, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF], "<u8").view("<f8")
        ends = np.array([5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308])
        return np.concatenate([single.astype("<f8"), exact, -exact, *beside, double, nans, ends])


def in_binary64(array: Array, source: str) -> list[float]:
    """The same as Python floats: NaNs with their sign, and their payload in the highest bits."""
    if source == "f64":
        return [float(x) for x in array.tolist()]
    width, mantissa = (16, 10) if source == "f16" else (32, 23)
    bits = [int(pattern) << (16 if source == "bf16" else 0) for pattern in array.view(f"<u{array.itemsize}").tolist()]
    kind = ("<e", "<H") if width == 16 else ("<f", "<I")
    values = []
    for pattern in bits:
        (number,) = struct.unpack(kind[0], struct.pack(kind[1], pattern))
        if math.isnan(number):
            payload = (pattern & ((1 << mantissa) - 1)) << (52 - mantissa)
            whole = (pattern >> (width - 1)) << 63 | 0x7FF << 52 | payload
            (number,) = struct.unpack("<d", struct.pack("<Q", whole))
        values.append(number)
    return values


def run(plan: Plan, source: Array) -> tuple[list[int], list[int]]:
    target = np.empty(source.size, plan.output_dtype)
    report = plan.run(source, target)
    return target.view(f"<u{target.itemsize}").tolist(), [report.saturated_low, report.saturated_high, report.nan]


def casts() -> list[tuple[str, str, str]]:
    """Profile, source and target of each cast."""
    return [
        (profile, source, target)
        for profile, rule in RULES.items()
        for target in rule.targets
        for source in PROFILES[profile].cast_rule().sources
        if source != target and (target != "f32" or source == "f64")
    ]


def saturations(profile: str, target: str) -> tuple[bool | None, ...]:
    return (None, False, True) if target in RULES[profile].choice else (None,)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("profile", "source", "target"), casts())
def test_every_rounding(profile: str, source: str, target: str) -> None:
    x = samples(source, target)
    values = in_binary64(x, source)
    if target in FINITE and profile == "gfloat":
        kept = [index for index, value in enumerate(values) if not math.isnan(value)]
        x, values = x[kept], [values[index] for index in kept]
    for rounding, saturate in itertools.product(RULES[profile].roundings_to(target), saturations(profile, target)):
        bits = (7, 32) if rounding == "stochastic" else (None,)
        for random_bits in bits:
            plan = plan_quantize(
                tensor(source, x.size),
                parse_type(target),
                profile,
                rounding=Rounding(rounding),
                saturate=saturate,
                seed=9,
                random_bits=random_bits,
            )
            count = oracle.DRAWN if random_bits is None else random_bits
            expected = [
                oracle.cast(
                    profile,
                    target,
                    value,
                    saturate=saturate,
                    rounding=rounding,
                    random=(count, oracle.drawn(9, index) >> (32 - count)),
                )
                for index, value in enumerate(values)
            ]
            check(plan, x, values, expected)


def check(plan: Plan, x: Array, values: list[float], expected: list[Cast]) -> None:
    codes, counts = run(plan, x)
    wrong = [
        (value.hex(), hex(code), each.code if each.code is None else hex(each.code))
        for value, code, each in zip(values, codes, expected, strict=True)
        if code != each.code
    ]
    assert not wrong, f"{plan.rounding}: {len(wrong)} of {len(values)}, (x, got, expected): {wrong[:4]}"
    assert counts == [sum(getattr(each, name) for each in expected) for name in ("low", "high", "nan")]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("profile", "source"), [(profile, name) for profile in RULES for name in RULES[profile].targets if name != "f32"]
)
def test_widening(profile: str, source: str) -> None:
    """Every code, to every wider float, and between f16 and bf16."""
    codes = np.arange(1 << FORMATS[source].width).astype("<u2" if FORMATS[source].width == 16 else "u1")
    values = [float(x) for x in decode_table(source).tolist()]
    for target in PROFILES[profile].cast_rule().sources:
        if target == source or (target in ("f16", "bf16") and target not in RULES[profile].targets):
            with pytest.raises(UnsupportedError):
                plan_dequantize(tensor(source, 4), parse_type(target), profile)
            continue
        plan = plan_dequantize(tensor(source, codes.size), parse_type(target), profile)
        got = np.empty(codes.size, plan.output_dtype)
        report = plan.run(codes.view(plan.input_dtype), got)
        assert report.nan == sum(map(math.isnan, values))
        if target in ("f32", "f64"):
            with np.errstate(invalid="ignore"):
                assert np.array_equal(got.astype("<f8"), np.array(values), equal_nan=True)
        else:
            expected = [oracle.cast(profile, target, value).code for value in values]
            found = got.view("<u2").tolist()
            pairs = zip(values, found, expected, strict=True)
            assert not [(v, f, e) for v, f, e in pairs if f != e]


def test_what_each_profile_offers() -> None:
    for profile, rule in RULES.items():
        casts = PROFILES[profile].cast_rule()
        assert sorted(casts.formats) == sorted(rule.targets)
        assert sorted(casts.chosen_saturation) == sorted(rule.choice)
        for target in rule.targets:
            assert tuple(map(str, casts.roundings_to(target))) == rule.roundings_to(target)


def test_stochastic_rounding_does_not_depend_on_pieces() -> None:
    x = np.random.default_rng(3).standard_normal(5000).astype(np.float32)
    plan = plan_quantize(tensor("f32", x.size), parse_type("f8E5M2"), "ofp8", rounding=Rounding.STOCHASTIC, seed=4)
    whole, _ = run(plan, x)
    for piece in (1, 17, 1024):
        again = np.empty(x.size, plan.output_dtype)
        for start in range(0, x.size, piece):
            plan.step(x[start : start + piece], again[start : start + piece], start, plan.new_counts())
        assert again.tolist() == whole
    other = plan_quantize(tensor("f32", x.size), parse_type("f8E5M2"), "ofp8", rounding=Rounding.STOCHASTIC, seed=5)
    assert run(other, x)[0] != whole


def test_stochastic_rounding_is_right_on_the_mean() -> None:
    """Of 2^16 times 1 + 2^-4, a quarter on the way from 1 to 1.25, a quarter goes up."""
    x = np.full(1 << 16, 1.0625, np.float32)
    up = int((quantize(x, "f8E5M2", profile="ofp8", rounding="stochastic") == 1.25).sum())
    assert abs(up - (1 << 14)) < 500


def test_odd_then_nearest_is_nearest_once() -> None:
    """By way of a format with two bits more."""
    x = sample_array(np.random.default_rng(5).integers(0, 1 << 64, 20_000, dtype=np.uint64).view("<f8"), 2000)
    x = np.concatenate([x[np.isfinite(x)], samples("f64", "f16")])
    with np.errstate(all="ignore"):
        odd = quantize(x, "f32", profile="softfloat", rounding="odd")
        twice = quantize(odd, "f16", profile="softfloat").view("<u2")
    once = quantize(x, "f16", profile="softfloat").view("<u2")
    assert twice.tolist() == once.tolist()


@pytest.mark.parametrize("rounding", ["nearest_even", "floor"])
def test_nan_that_is_an_error(rounding: str) -> None:
    x = np.zeros(100, np.float32)
    x[[70, 90]] = np.nan
    for profile, target, nan in (("gfloat", "f4E2M1FN", NanPolicy.PROFILE), ("riscv", "f16", NanPolicy.ERROR)):
        plan = plan_quantize(tensor("f32", 100), parse_type(target), profile, rounding=Rounding(rounding), nan=nan)
        with pytest.raises(PreconditionError, match="NaN") as caught:
            run(plan, x)
        assert caught.value.index == 70


def test_what_is_refused() -> None:
    f32, f16 = tensor("f32", 4), parse_type("f16")
    for profile, target, options in (
        ("ptx", "f8E5M2", {"rounding": Rounding.TOWARD_ZERO}),
        ("ptx", "f8E5M2", {"saturate": False}),
        ("ptx", "f16", {"rounding": Rounding.STOCHASTIC}),
        ("softfloat", "f16", {"saturate": True}),
        ("riscv", "f8E5M2", {"rounding": Rounding.ODD}),
        ("gfloat", "f16", {"rounding": Rounding.ODD}),
        ("gfloat", "f4E2M1FN", {"saturate": True}),
        ("ofp8", "f8E5M2", {"rounding": Rounding.NEAREST_UP}),
        ("onnx", "f16", {"rounding": Rounding.FLOOR}),
    ):
        with pytest.raises(UnsupportedError) as caught:
            plan_quantize(f32, parse_type(target), profile, **options)
        assert caught.value.pointer == f"/{next(iter(options))}"
    stochastic = Rounding.STOCHASTIC
    for random_bits, rounding in ((0, stochastic), (33, stochastic), (8, Rounding.FLOOR), (8, None)):
        with pytest.raises(ParameterError) as refused:
            plan_quantize(f32, f16, "gfloat", rounding=rounding, random_bits=random_bits)
        assert refused.value.pointer == "/random_bits"
    integers = parse_type("!quant.uniform<i8:f32, 0.5>")
    with pytest.raises(UnsupportedError, match="casts to floats"):
        plan_quantize(f32, integers, "onnx", rounding=stochastic, random_bits=8)
    with pytest.raises(UnsupportedError, match="does not round by odd"):
        plan_quantize(f32, integers, "onnx", rounding=Rounding.ODD)
    for source in ("f16", "bf16", "f32"):
        with pytest.raises(UnsupportedError):
            plan_quantize(tensor(source, 4), parse_type("f32"), "gfloat")
