"""Schemes and rules that no package has compiled, against the systems' sources, which from_source/install compiles."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.errors import RequantError
from requant.schemes import Multiplier
from tests.interop.comparison import Comparison
from tests.interop.conformance import subject, systems
from tests.interop.integer.quantized_tensors import DTYPES
from tests.interop.range_cases import RangeComparison, beside, ranges
from tests.interop.schemes.accumulators import (
    accumulators,
    derived,
    factors,
    output_zero_points,
    requantized,
    right_shift,
)
from tests.interop.seed_of_the_day import generator

pytestmark = pytest.mark.interop

Array = NDArray[Any]

SINGLE_ROUNDING, EMULATE_FLOAT = "litert_TFLITE_SINGLE_ROUNDING", "litert_TFLITE_EMULATE_FLOAT"


@cache
def library(name: str) -> Any:
    """One of the compiled libraries. Skip if it is not installed."""
    path = systems.FROM_SOURCE / f"{name}.so"
    if not path.exists():
        pytest.skip(f"{name} is not installed")
    return ctypes.CDLL(str(path))


def pointer(array: Array) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def quantize_multiplier(name: str, factor: float) -> Multiplier:
    """LiteRT's QuantizeMultiplier."""
    multiplier, shift = ctypes.c_int32(), ctypes.c_int()
    library(name).quantize_multiplier(ctypes.c_double(factor), ctypes.byref(multiplier), ctypes.byref(shift))
    return Multiplier(multiplier.value, shift.value)


def by_litert(name: str, values: Array, given: Multiplier, zero_point: int, storage: str) -> Array:
    """LiteRT's reference_ops::Requantize, of int32 with zero point 0."""
    found = np.empty(values.size, DTYPES[storage])
    numbers = (values.size, given.multiplier, given.shift, 0, zero_point)
    run = getattr(library(name), f"requantize_{storage}")
    run(pointer(values), *(ctypes.c_int32(each) for each in numbers), pointer(found))
    return found


@pytest.mark.parametrize("storage", ["i8", "u8", "i16", "i32"])
@pytest.mark.parametrize(
    ("name", "scheme", "profiles"),
    [
        (SINGLE_ROUNDING, "litert_single_rounding", ["litert_single_rounding"]),
        (EMULATE_FLOAT, "litert_emulate_float", []),
    ],
)
def test_litert(name: str, scheme: str, profiles: list[str], storage: str) -> None:
    """Multiplier and accumulators; where what is scaled leaves int32, the schemes are not defined."""
    library(name)
    rng = generator(120, len(storage))
    rows = [subject.profile(profile, "requantize") for profile in profiles]
    comparison = Comparison(f"LiteRT, {name} i32 to {storage}", systems.LITERT_SOURCE, subject.scheme(scheme), *rows)
    # Ties of the multiplier's own rounding too: half of its last bit.
    halves = [
        (2 * int(m) + 1) * 2.0 ** int(e)
        for m, e in zip(rng.integers(1 << 30, 1 << 31, 100), rng.integers(-62, -32, 100), strict=True)
    ]
    for factor in [*factors(rng, 300, 2.0**-33, 2.0**30), *halves]:
        multiplier = derived(scheme, factor)
        theirs_given = quantize_multiplier(name, factor)
        pair, their_pair = (np.array([each.multiplier, each.shift], np.int32) for each in (multiplier, theirs_given))
        comparison.add((factor, "multiplier and shift"), np.array([factor, factor]), pair, their_pair)
        zero_point = output_zero_points(rng, storage)
        left = max(multiplier.shift, 0)
        values = accumulators(rng, multiplier.multiplier, right_shift(scheme, multiplier), min(left, 30))
        fitting = np.abs(values.astype(np.float64) * factor) + abs(zero_point) < 2.0**31 - 2
        values = np.where(fitting, values, np.int32(0)).astype(np.int32)
        ours = requantized(scheme, values, multiplier, zero_point, storage)
        comparison.add((factor, zero_point), values, ours, by_litert(name, values, theirs_given, zero_point, storage))
    comparison.finish(300_000)


@pytest.mark.parametrize("narrow", [False, True], ids=["full", "narrow"])
@pytest.mark.parametrize("storage", ["i8", "u8", "i16", "u16", "i32"])
def test_choose_quantization_params(storage: str, narrow: bool) -> None:
    """Ranges with 0 in them, which LiteRT demands, from f64 subnormals on."""
    choose = getattr(library("litert_as_released"), f"choose_{storage}")
    rng = generator(121, len(storage), narrow)
    lows, highs = beside(*ranges(rng, 1000))
    lows = np.concatenate([np.minimum(lows, 0).astype(np.float64), -(2.0 ** rng.uniform(-1060, 1000, 500)), [-0.0]])
    highs = np.concatenate([np.maximum(highs, 0).astype(np.float64), 2.0 ** rng.uniform(-1060, 1000, 500), [0.0]])
    scales, zero_points = np.empty(lows.size), np.empty(lows.size, np.int64)
    ends = (pointer(lows), pointer(highs), ctypes.c_int(lows.size), ctypes.c_int(narrow))
    choose(*ends, pointer(scales), pointer(zero_points))
    comparison = RangeComparison(systems.LITERT_SOURCE, "litert", storage, **({"narrow": True} if narrow else {}))
    theirs = zip(scales.tolist(), zero_points.tolist(), strict=True)
    for (low, high, scale, zero_point), found in zip(comparison.pairs(lows, highs), theirs, strict=True):
        comparison.add((low, high), (scale, zero_point), found)
    comparison.finish(5000)


def in_f32(rng: np.random.Generator, largest: float) -> list[float]:
    return [float(np.float32(each)) for each in factors(rng, 300, 2.0**-32, largest) if np.float32(each) < largest]


@pytest.mark.parametrize("storage", ["i8", "u8"])
def test_xnnpack_rndnu(storage: str) -> None:
    """Its scalar depthwise convolution, and the function that its tests take for the definition."""
    xnnpack = library("xnnpack")
    rng = generator(122, storage == "u8")
    comparison = Comparison(f"XNNPACK rndnu i32 to {storage}", systems.XNNPACK, subject.scheme("xnnpack_rndnu"))
    low, high = (-128, 127) if storage == "i8" else (0, 255)
    for factor in in_f32(rng, 256.0):
        multiplier = derived("xnnpack_rndnu", factor)
        zero_point = output_zero_points(rng, storage)
        values = accumulators(rng, multiplier.multiplier, right_shift("xnnpack_rndnu", multiplier))
        # Its int32 between the shift and the clamp.
        values = np.where(np.abs(values.astype(np.float64) * factor) < 2.0**31 - 2, values, 1).astype(np.int32)
        ours = requantized("xnnpack_rndnu", values, multiplier, zero_point, storage)
        for function in ("requantize", "one_by_one"):
            found = np.empty_like(ours)
            run = getattr(xnnpack, f"{function}_q{'s' if storage == 'i8' else 'u'}8")
            bounds = (ctypes.c_int(each) for each in (zero_point, low, high))
            run(pointer(values), ctypes.c_int(values.size), ctypes.c_float(factor), *bounds, pointer(found))
            comparison.add((factor, zero_point, function), values, ours, found)
    comparison.finish(300_000)


@pytest.mark.parametrize(
    ("scheme", "functions"),
    [
        ("xnnpack_rndna", ["precise__scalar_unsigned32", "precise__scalar_unsigned64", "precise__scalar_signed64"]),
        ("xnnpack_gemmlowp", ["q31__scalar"]),
    ],
)
def test_qnnpack(scheme: str, functions: list[str]) -> None:
    """The functions that XNNPACK took from QNNPACK, and later renamed, for factors below 1."""
    qnnpack = library("qnnpack")
    rng = generator(123)
    comparison = Comparison(f"QNNPACK, {scheme} i32 to u8", systems.QNNPACK, subject.scheme(scheme))
    for factor in in_f32(rng, 1.0):
        multiplier = derived(scheme, factor)
        zero_point = output_zero_points(rng, "u8")
        values = accumulators(rng, multiplier.multiplier, right_shift(scheme, multiplier))
        # The functions take four at a time.
        values = np.resize(values, -(-values.size // 4) * 4)
        ours = requantized(scheme, values, multiplier, zero_point, "u8")
        for function in functions:
            found = np.empty_like(ours)
            run = getattr(qnnpack, f"pytorch_qnnp_requantize_{function}")
            bounds = (ctypes.c_uint8(each) for each in (zero_point, 0, 255))
            run(ctypes.c_size_t(values.size), pointer(values), ctypes.c_float(factor), *bounds, pointer(found))
            comparison.add((factor, zero_point, function), values, ours, found)
    comparison.finish(200_000)


def test_factors_that_litert_refuses() -> None:
    """Shifts above 30 become the largest multiplier."""
    for factor in (2.0**31, 2.0**40, 1e300):
        assert derived("litert_single_rounding", factor) == quantize_multiplier(SINGLE_ROUNDING, factor)
    with pytest.raises(RequantError):
        derived("litert_single_rounding", -1.0)
