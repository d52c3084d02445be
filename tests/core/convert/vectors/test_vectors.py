"""Vectors: the expected bits are the oracles', every reason is true in exact numbers, and what is promised is there.

The oracles are exact fractions and integers that import nothing of core (`tests.oracles`).
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from fractions import Fraction
from hashlib import sha256
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

from requant.convert.vectors.conversions import conversion_subjects
from requant.convert.vectors.export import c_header, readmemh
from requant.convert.vectors.subject import ParameterReason, Reason
from requant.convert.vectors.vectors import Vectors, vectors_of
from requant.errors import LimitError, PreconditionError, RequantError, TypeFitError, UnsupportedError
from requant.mlir import parse_type
from requant.operators.tosa.rescale_plan import RescaleRounding
from requant.operators.vectors import OPERATIONS, RESCALE, rescale_subjects
from requant.profiles import PROFILES, Operation, Rounding
from requant.schemes import SCHEMES, Multiplier
from tests.oracles import profiles as oracle
from tests.oracles import rounded_casts, schemes, small_floats, tosa
from tests.oracles.rounded_casts import RULES
from tests.support.cases import EXHAUSTIVE

STORAGES = ("i4", "u8", "i16", "i32", "f8E5M2") if EXHAUSTIVE else ("u8", "i4", "i16")


def made(operation: str, source: str, target: str | None, profile: str, count: int = 256, **options: Any) -> Vectors:
    to = None if target is None else parse_type(target)
    subjects = conversion_subjects(
        Operation(operation), parse_type(source), to, profile, max_sets=count // 16, **options
    )
    return vectors_of(subjects, count, 7, {})


def rescaled(source: str, target: str, count: int = 256, **options: Any) -> Vectors:
    subjects = rescale_subjects(parse_type(source), parse_type(target), max_sets=count // 16, **options)
    return vectors_of(subjects, count, 7, OPERATIONS[RESCALE].names)


def f32(bits: int) -> float:
    number: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return number


def order(bits: int) -> int:
    """The place of an f32 among all."""
    return bits if bits < 1 << 31 else -(bits - (1 << 31))


QUANTIZING = [name for name in oracle.QUANTIZE if name != "mlir"]
OUTPUTS = ["!quant.uniform<i8:f32, 0.1:3>", "!quant.uniform<u8:f32, 0.5:128>", "i8"]


@pytest.mark.parametrize(
    ("profile", "output"),
    list(product(QUANTIZING, OUTPUTS)) if EXHAUSTIVE else list(zip(QUANTIZING, cycle(OUTPUTS))),
)
def test_quantized_vectors_are_the_oracles(profile: str, output: str) -> None:
    found = made("quantize", "f32", output, profile, 96)
    storage = "u8" if "u8" in output else "i8"
    for index, each in enumerate(found.vectors):
        parameters = found.sets[each.parameters].numbers
        of_set = oracle.target(storage)
        x, scale, zero = f32(each.input), float(parameters["scale"]), int(parameters["zero_point"])
        stored = oracle.QUANTIZE[profile](x, scale, zero, of_set)
        assert stored is not None
        assert each.expected == stored.value, (index, each)
        saturates = {Reason.SATURATES_LOW: stored.low, Reason.SATURATES_HIGH: stored.high}
        for reason, holds in saturates.items():
            assert (reason in each.why) == holds, (index, each)


def test_every_reason_of_a_quantization_is_true() -> None:
    """RNE(f32(x / s)) + z, whose ties are those of f32(x / s)."""
    found = made("quantize", "f32", "!quant.uniform<i8:f32, 0.1:3>", "onnx", 320)
    scale = float(np.float32(0.1))
    by_place = {order(each.input): each for each in found.vectors if not math.isnan(f32(each.input))}
    finite = {place: each for place, each in by_place.items() if math.isfinite(f32(each.input))}

    def is_tie(place: int) -> bool:
        bits = place if place >= 0 else (1 << 31) - place
        quotient = oracle.quotient(f32(bits), scale, oracle.F32)
        return math.isfinite(quotient) and Fraction(quotient).denominator == 2

    for place, each in finite.items():
        why = set(each.why)
        assert (Reason.TIE in why) == is_tie(place), each
        if Reason.BELOW_TIE in why:
            assert is_tie(place + 1)
            assert not is_tie(place)
        if Reason.ABOVE_TIE in why:
            assert is_tie(place - 1)
            assert not is_tie(place)
        beside = [finite[other].expected for other in (place - 1, place + 1) if other in finite]
        assert (Reason.STEP_BOUNDARY in why) == any(other != each.expected for other in beside), each
        x = f32(each.input)
        assert (Reason.ZERO in why, Reason.NEGATIVE_ZERO in why) == (each.input == 0, each.input == 1 << 31)
        assert (Reason.SUBNORMAL in why) == (0 < abs(x) < 2.0**-126)
        assert (Reason.SMALLEST_NORMAL in why) == (abs(x) == 2.0**-126)
        assert (Reason.LARGEST_FINITE in why) == (abs(x) == (2 - 2.0**-23) * 2.0**127)
        assert (each.expected == -128) == bool(why & {Reason.STORAGE_MINIMUM, Reason.SATURATES_LOW})
        assert (each.expected == 127) == bool(why & {Reason.STORAGE_MAXIMUM, Reason.SATURATES_HIGH})
    counted = Counter(reason for each in found.vectors for reason in each.why)
    assert counted[Reason.NAN] == 4
    assert counted[Reason.POSITIVE_INFINITY] == counted[Reason.NEGATIVE_INFINITY] == 1
    assert min(counted[reason] for reason in (Reason.TIE, Reason.BELOW_TIE, Reason.ABOVE_TIE, Reason.RANDOM)) > 20


@pytest.mark.sample(1)
@pytest.mark.parametrize("profile", ["onnx", "litert_xnnpack"])
def test_one_element_beside_each_step_and_both_sides_of_saturation(profile: str) -> None:
    found = made("quantize", "f32", "!quant.uniform<i8:f32, 0.1:3>", profile, 1200)
    by_place = {order(each.input): each for each in found.vectors if math.isfinite(f32(each.input))}
    steps = {(each.expected, by_place[place + 1].expected) for place, each in by_place.items() if place + 1 in by_place}
    assert {(code, code + 1) for code in range(-128, 127)} <= steps
    for reason, other in ((Reason.SATURATES_LOW, 1), (Reason.SATURATES_HIGH, -1)):
        assert any(
            reason in each.why and place + other in by_place and reason not in by_place[place + other].why
            for place, each in by_place.items()
        )


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", list(RescaleRounding))
@pytest.mark.parametrize(("source", "target", "wide"), [
    ("i32", "i8", True), ("i16", "i16", True), ("ui8", "i8", True), ("i48", "i16", False), ("i8", "ui16", True),
])  # fmt: skip
def test_rescale_is_the_oracle_and_its_reasons_are_true(
    source: str, target: str, wide: bool, mode: RescaleRounding
) -> None:
    if mode is RescaleRounding.DOUBLE_ROUND and not wide:
        with pytest.raises(UnsupportedError):
            rescaled(source, target, scale32=wide, rounding_mode=mode)
        return
    found = rescaled(source, target, 256, scale32=wide, rounding_mode=mode)
    assert len(found.sets) >= 8
    for index, parameters in enumerate(each.numbers for each in found.sets):
        m, shift = int(parameters["multiplier"]), int(parameters["shift"])
        case = tosa.Rescale(
            in_t=source.removeprefix("u"), out_t=target.removeprefix("u"), shape=(1,), multiplier=(m,), shift=(shift,),
            input_zp=int(parameters["input_zp"]), output_zp=int(parameters["output_zp"]), scale32=wide,
            rounding_mode=mode, input_unsigned=source[0] == "u", output_unsigned=target[0] == "u",
        )  # fmt: skip
        vectors = [each for each in found.vectors if each.parameters == index]
        for each in vectors:
            assert each.expected == tosa.rescaled(case, each.input), each
            if mode is RescaleRounding.SINGLE_ROUND:
                half = (each.input - case.input_zp) * m % (1 << shift) == 1 << (shift - 1)
                assert (Reason.TIE in each.why) == half, each
            if Reason.STEP_BOUNDARY in each.why:
                sides = [tosa.rescaled(case, each.input + step) for step in (-1, 1)]
                assert any(isinstance(side, int) and side != each.expected for side in sides)
        lowest, highest = case.input_bounds
        for reason, bound, beyond in (
            (Reason.ACCUMULATOR_MINIMUM, lowest, -1),
            (Reason.ACCUMULATOR_MAXIMUM, highest, 1),
        ):
            (end,) = (each.input for each in vectors if reason in each.why)
            assert end == bound or isinstance(tosa.rescaled(case, end + beyond), tosa.Unpredictable), (parameters, end)


@pytest.mark.sample(4)
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "xnnpack_cvt8"])
def test_requantized_vectors_are_the_oracles(scheme: str) -> None:
    found = made("requantize", "i32", "i8", "litert", 192 if EXHAUSTIVE else 96, scheme=scheme)
    for each in found.vectors:
        numbers = {name: int(number) for name, number in found.sets[each.parameters].numbers.items()}
        z_in, z_out = numbers["input_zero_point"], numbers["output_zero_point"]
        expected = schemes.requantized(
            scheme, each.input, z_in, numbers["multiplier"], numbers["shift"], z_out, (-128, 127)
        )
        assert each.expected == expected, (numbers, each)


@pytest.mark.parametrize(("profile", "source", "target", "scheme"), [
    ("litert_xnnpack", "i8", "i8", "xnnpack_cvt8"),
    ("litert_xnnpack", "i32", "i8", "xnnpack_fp32"),
    ("litert", "i16", "i16", "litert"),
])  # fmt: skip
def test_a_profile_has_the_scheme_of_the_pair_of_types(profile: str, source: str, target: str, scheme: str) -> None:
    """And only the zero points that it takes, of which i16 in LiteRT has none but 0."""
    of_profile = made("requantize", source, target, profile, 64)
    assert len(of_profile.sets) == 4
    if source == "i16":
        numbers = [each.numbers for each in of_profile.sets]
        assert {(each["input_zero_point"], each["output_zero_point"]) for each in numbers} == {(0, 0)}
    else:
        assert of_profile == made("requantize", source, target, profile, 64, scheme=scheme)


def test_a_profile_refuses_the_types_that_its_conversion_refuses() -> None:
    for profile, source, target in (("litert", "i32", "i31"), ("torch", "i16", "i8"), ("litert_xnnpack", "i8", "ui8")):
        with pytest.raises(UnsupportedError):
            made("requantize", source, target, profile)
    assert made("requantize", "i32", "i31", "litert", 32, scheme="litert").vectors
    assert made("requantize", "i32", "i8", "mlir", 32, scheme="litert").vectors


def test_ties_of_both_roundings_and_wraps_of_two_roundings() -> None:
    found = made("requantize", "i32", "i8", "litert", 64, multipliers=[Multiplier(1 << 30, 3)])
    for each in found.vectors:
        assert (Reason.WRAPS in each.why) == (not -(2**31) <= each.input << 3 < 2**31)
        if Reason.BESIDE_WRAP in each.why:
            assert each.input in ((2**31 - 1) >> 3, -(2**28))
    assert {(2**31 - 1) >> 3, 2**28, -(2**28), -(2**28) - 1} <= {each.input for each in found.vectors}
    # High half rounded, then shifted by 4: h is a tie where it is an odd multiple of 8.
    found = made("requantize", "i32", "i8", "litert", 64, multipliers=[Multiplier((1 << 31) - 1, -4)])
    for each in found.vectors:
        product = Fraction(each.input * ((1 << 31) - 1), 1 << 31)
        high = math.floor(product + Fraction(1, 2))
        assert (Reason.TIE in each.why) == (product.denominator == 2 or high % 16 == 8), each


def test_dequantized_vectors_are_the_oracles() -> None:
    for profile in ("stablehlo", "onnx", "litert", "torch", "onednn"):
        found = made("dequantize", "i8", None, profile, 128)
        for each in found.vectors:
            parameters = found.sets[each.parameters].numbers
            scale, zero = float(parameters["scale"]), int(parameters["zero_point"])
            expected = oracle.dequantize(profile, each.input, scale, zero, oracle.target("i8"))
            assert struct.pack("<f", expected) == struct.pack("<I", each.expected), (profile, parameters, each)
            assert (Reason.STORAGE_MINIMUM in each.why) == (each.input == -128)
            assert (Reason.ZERO_POINT in each.why) == (each.input == zero)


def test_a_tie_of_a_product_of_floats() -> None:
    """d * s has one bit more than f32 where s has 24 and d is 3 times a power of two."""
    found = made("dequantize", f"!quant.uniform<i8:f32, {1 + 2.0**-23!r}:0>", None, "stablehlo")
    for each in found.vectors:
        exact = Fraction(each.input) * Fraction(1 + 2.0**-23)
        mantissa = abs(exact.numerator)
        while mantissa and mantissa % 2 == 0:
            mantissa //= 2
        assert (Reason.TIE in each.why) == (mantissa.bit_length() == 25), each
    assert any(Reason.TIE in each.why for each in found.vectors)


def test_casts_to_small_floats() -> None:
    found = made("quantize", "f32", "f8E4M3FN", "ml_dtypes", 1024)
    codes: Counter[int] = Counter()
    for each in found.vectors:
        x = f32(each.input)
        if math.isnan(x):
            assert each.expected & 0x7F == 0x7F
            continue
        if Reason.TIE in each.why:
            below, above = (small_floats.nearest("f8E4M3FN", abs(f32(each.input + by))) for by in (-1, 1))
            assert below != above
        codes[each.expected] += 1
    # One element beside each step: every finite code is a result.
    assert set(codes) >= {*range(0x7F), *range(0x80, 0xFF)}


def test_channels_are_vectors_of_one_tensor() -> None:
    for axis in (0, 1, 3):
        found = made("quantize", "f32", f"!quant.uniform<i8:f32:{axis}, {{0.1:3,0.5,0.25:-7}}>", "onnx", 96)
        assert [dict(each.numbers) for each in found.sets] == [
            {"scale": 0.1, "zero_point": 3}, {"scale": 0.5, "zero_point": 0}, {"scale": 0.25, "zero_point": -7}
        ]  # fmt: skip
        for each in found.vectors:
            scale, zero = (found.sets[each.parameters].numbers[name] for name in ("scale", "zero_point"))
            assert each.expected == oracle.onnx(f32(each.input), scale, int(zero), oracle.target("i8")).value


def test_designed_sets_are_what_their_reasons_say() -> None:
    found = made("quantize", "f32", "i8", "onnx")
    by_reason = {reason: each.numbers for each in found.sets for reason in each.why}
    one = np.float32(1)
    assert by_reason[ParameterReason.SCALE_ONE_ULP_ABOVE_ONE]["scale"] == np.nextafter(one, np.float32(2))
    assert by_reason[ParameterReason.SCALE_ONE_ULP_BELOW_ONE]["scale"] == np.nextafter(one, np.float32(0))
    assert 0 < by_reason[ParameterReason.SCALE_SUBNORMAL]["scale"] < 2.0**-126
    assert 0 < 1 / by_reason[ParameterReason.RECIPROCAL_SUBNORMAL]["scale"] < 2.0**-126
    assert by_reason[ParameterReason.ZERO_POINT_MAXIMUM]["zero_point"] == 127
    of_rescale = rescaled("i32", "i8")
    by_reason = {reason: each.numbers for each in of_rescale.sets for reason in each.why}
    assert by_reason[ParameterReason.MULTIPLIER_MAXIMUM]["multiplier"] == 2**31 - 1
    assert by_reason[ParameterReason.MULTIPLIER_MINIMUM]["multiplier"] == 0
    assert (by_reason[ParameterReason.SHIFT_MINIMUM]["shift"], by_reason[ParameterReason.SHIFT_MAXIMUM]["shift"]) == (
        2,
        62,
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_and_operation_has_vectors(name: str) -> None:
    """All expressed types and some storages of each rule; steps are compared with the results on the way."""
    done = 0
    for operation, rule in PROFILES[name].operations.items():
        storages = [each for each in STORAGES if each in rule.storages]
        for storage in storages:
            for expressed in rule.expressed if EXHAUSTIVE else rule.expressed[:1]:
                stored = f"!quant.uniform<{storage}:{expressed}, 0.5>"
                types = {
                    Operation.QUANTIZE: (expressed, stored),
                    Operation.DEQUANTIZE: (stored, None),
                    Operation.REQUANTIZE: (stored, f"!quant.uniform<{storages[0]}:{expressed}, 2.0>"),
                }[operation]
                try:
                    found = made(operation, *types, name, 24)
                except (UnsupportedError, TypeFitError, PreconditionError):
                    continue
                assert found.vectors
                assert all(each.why for each in found.vectors)
                done += 1
    assert done or name == "quantile" or not PROFILES[name].operations, name


@pytest.mark.sample(1)
@pytest.mark.parametrize("profile", RULES)
def test_casts_in_every_rounding(profile: str) -> None:
    for target in RULES[profile].targets:
        source = "f64" if target == "f32" else "f32"
        letters = ("<Q", "<d") if source == "f64" else ("<I", "<f")
        for rounding in RULES[profile].roundings_to(target):
            if rounding == "stochastic":
                continue
            found = made("quantize", source, target, profile, 64, rounding=Rounding(rounding))
            assert len(found.vectors) >= 32
            for each in found.vectors:
                (x,) = struct.unpack(letters[1], struct.pack(letters[0], int(each.input)))
                assert each.expected == rounded_casts.cast(profile, target, x, rounding=rounding).code, each


def test_the_same_request_has_the_same_bytes() -> None:
    """Digests of files: they are the same on every platform, and change only with what is chosen."""
    files = {
        "rescale.h": c_header(rescaled("i32", "i8", 64), "tosa.RESCALE", ["a", "b"]),
        "rescale.memh": readmemh(rescaled("i32", "i8", 64), "tosa.RESCALE", ["a"]),
        "quantize.h": c_header(made("quantize", "f32", "!quant.uniform<i8:f32, 0.1:3>", "onnx", 64), "quantize", []),
        "cast.memh": readmemh(made("quantize", "f64", "bf16", "ml_dtypes", 64), "quantize", []),
    }
    assert {name: sha256(text.encode()).hexdigest()[:16] for name, text in files.items()} == {
        "rescale.h": "0da43fe2299e6e18",
        "rescale.memh": "51da000fd223a1b8",
        "quantize.h": "1d1eac542e98c7c7",
        "cast.memh": "a928fcefad1d7530",
    }


def test_seeds_choose_other_inputs() -> None:
    subjects = conversion_subjects(Operation.QUANTIZE, parse_type("f32"), parse_type("i16"), "onnx", max_sets=1)
    one, same, other = ([each.input for each in vectors_of(subjects, 64, seed, {}).vectors] for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_comments_of_a_header_cannot_be_ended() -> None:
    found = made("quantize", "f32", "!quant.uniform<i8:f32, 0.1:3>", "onnx", 8)
    text = c_header(found, "quantize", ["*/ int evil; /*", "\\"])
    assert "*/ int" not in text
    assert text.count("/*") == text.count("*/")


@pytest.mark.parametrize(("source", "target", "error"), [
    ("tensor<4xf32>", "i8", TypeFitError),
    ("f32", "!quant.uniform<i8:f32:{0:1}, {0.5,0.5}>", RequantError),
    ("f32", "!quant.uniform<i8:f32:4000000, {0.5,0.5}>", LimitError),
    ("f32", "!quant.uniform<i8:f32:0, {" + ",".join(["0.5"] * 65) + "}>", LimitError),
    ("f32", "!quant.uniform<i8:f32:0, {" + ",".join(["0.5"] * 40) + "}>", LimitError),
    ("i8", "i8", UnsupportedError),
    ("f32", "i64", UnsupportedError),
    ("f32", "index", UnsupportedError),
])  # fmt: skip
def test_what_is_refused(source: str, target: str, error: type[RequantError]) -> None:
    with pytest.raises(error):
        made("quantize", source, target, "onnx")
