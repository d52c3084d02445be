"""Profiles `litert` and `litert_xnnpack` against ai-edge-litert: its reference kernels, and its default interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.requantize import plan_requantize
from tests.interop import traps
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile as profile_row
from tests.interop.conformance.subject import scheme
from tests.interop.quantized_case import Case, bounds, per_stored_tensor, per_tensor, spread_parameters, zero_points
from tests.interop.seed_of_the_day import generator

pytest.importorskip("flatbuffers")
pytest.importorskip("ai_edge_litert")

from tests.interop.litert_models import (
    DEFAULT,
    DEQUANTIZE,
    QUANTIZE,
    REFERENCE,
    Operand,
    one_operator,
    run,
)

pytestmark = pytest.mark.interop

Array = NDArray[Any]

SCALES = (0.0237, 0.5, 1.0, 1 / 3, 1e-12, 3e37)
# Beside the scales that are subnormal themselves, and those whose reciprocal is.
LIMITS = (2.0**-126, 2.0**-125, 2.0**126, 2.0**127)
BESIDE = (float(np.nextafter(np.float32(limit), np.float32(to))) for limit in LIMITS for to in (0, limit, np.inf))
AT_THE_LIMITS = (*BESIDE, 1e-37, 3.4e38)
SUBNORMAL = (1e-40, 2.0**-149)
AXES = (((26, 4001), 0), ((31, 40, 101), 1), ((4001, 26), 1), ((3, 5, 7, 1009), 3))
RESOLVERS = {"litert": REFERENCE, "litert_xnnpack": DEFAULT}
QUANTIZED = [("litert", storage) for storage in ("i4", "u4", "i8", "u8", "i16")] + [
    ("litert_xnnpack", storage) for storage in ("i8", "u8")
]


def operand(case: Case) -> Operand:
    return Operand(case.storage, case.scales, case.zero_points, case.axis or 0)


def takes(profile: str, scale: float) -> bool:
    """Whether the system takes the scale: XNNPACK refuses subnormal ones, and the interpreter may crash then."""
    return profile != "litert_xnnpack" or scale >= 2.0**-126


def along_axes(storage: str, rng: np.random.Generator) -> list[Case]:
    return [
        Case(shape, storage, "f32", *spread_parameters((shape[axis],), storage, "f32", rng), axis)
        for shape, axis in AXES
    ]


@pytest.mark.parametrize(("profile", "storage"), QUANTIZED)
def test_quantize(profile: str, storage: str) -> None:
    rng = np.random.default_rng(41)
    comparison = Comparison(
        f"LiteRT {RESOLVERS[profile].name} quantize f32 to {storage}", systems.LITERT, profile_row(profile, "quantize")
    )
    scales = [scale for scale in SCALES + AT_THE_LIMITS + SUBNORMAL if takes(profile, scale)]
    cases = [per_tensor(storage, "f32", scale, z) for scale in scales for z in zero_points(storage)]
    if profile == "litert" and storage in ("i8", "u8", "i16"):
        cases += along_axes(storage, rng)
    for case in cases:
        source = case.real_data(rng)
        model = one_operator(QUANTIZE, case.shape, Operand("f32"), operand(case))
        comparison.add(case, source, case.quantized(source, profile), run(model, source, RESOLVERS[profile]))
    comparison.finish(1_800_000)


@pytest.mark.parametrize(("profile", "storage"), QUANTIZED)
def test_dequantize(profile: str, storage: str) -> None:
    """int16 has no zero point there, and only 8 and 4 bits have scales along an axis."""
    rng = np.random.default_rng(42)
    comparison = Comparison(
        f"LiteRT {RESOLVERS[profile].name} dequantize {storage} to f32",
        systems.LITERT,
        profile_row(profile, "dequantize"),
    )
    symmetric = storage == "i16"
    cases = [
        per_stored_tensor(storage, "f32", scale, z)
        for scale in SCALES + AT_THE_LIMITS + SUBNORMAL
        if takes(profile, scale)
        for z in zero_points(storage, symmetric=symmetric)
    ]
    if profile == "litert" and storage in ("i4", "u4", "i8", "u8"):
        cases += along_axes(storage, rng)
    for case in cases:
        source = case.stored_data(rng)
        model = one_operator(DEQUANTIZE, case.shape, operand(case), Operand("f32"))
        comparison.add(case, source, case.dequantized(source, profile), run(model, source, RESOLVERS[profile]))
    comparison.finish(15_000)


@pytest.mark.parametrize(("profile", "storage"), QUANTIZED)
def test_quantize_traps(profile: str, storage: str) -> None:
    rng = generator(44)
    comparison = Comparison(
        f"LiteRT {RESOLVERS[profile].name} quantize f32 to {storage}", systems.LITERT, profile_row(profile, "quantize")
    )
    granularities = ("per_axis",) if profile == "litert" and storage in ("i8", "u8", "i16") else ()
    for case, source in traps.reals(storage, "f32", rng, partial(takes, profile), granularities):
        model = one_operator(QUANTIZE, case.shape, Operand("f32"), operand(case))
        comparison.add(case, source, case.quantized(source, profile), run(model, source, RESOLVERS[profile]))
    comparison.finish(25_000)


@pytest.mark.parametrize(("profile", "storage"), QUANTIZED)
def test_dequantize_traps(profile: str, storage: str) -> None:
    rng = generator(45)
    comparison = Comparison(
        f"LiteRT {RESOLVERS[profile].name} dequantize {storage} to f32",
        systems.LITERT,
        profile_row(profile, "dequantize"),
    )
    granularities = ("per_axis",) if profile == "litert" and storage != "i16" else ()
    usable, symmetric = partial(takes, profile), storage == "i16"
    for case, source in traps.stored(storage, "f32", rng, usable, granularities, symmetric=symmetric):
        model = one_operator(DEQUANTIZE, case.shape, operand(case), Operand("f32"))
        comparison.add(case, source, case.dequantized(source, profile), run(model, source, RESOLVERS[profile]))
    comparison.finish(25_000)


REQUANTIZE = (profile_row("litert", "requantize"), scheme("litert"))
REQUANTIZED = (
    ("i8", "i8"), ("i8", "u8"), ("u8", "i8"), ("u8", "u8"), ("i8", "i16"),
    ("i16", "i8"), ("i16", "i16"), ("i16", "i32"), ("i32", "i8"), ("i32", "i16"),
)  # fmt: skip
RATIOS = (0.0237, 0.5, 1.0, 1.0000001, 1 / 3, 0.9999999, 2.0, 7.3, 3e-5, 2.0**-20, 1e-9, 300.0)


# What XNNPACK converts; beyond that the interpreter falls back to kernels that go by an element's position.
XNNPACK_RATIOS = (*(ratio for ratio in RATIOS if 2.0**-8 <= ratio <= 2.0**7), 0.0041, 0.01171875, 1.001, 127.9)
BY_DEFAULT = (
    ("i8", "i8"), ("u8", "u8"), ("i8", "i16"), ("i16", "i8"), ("i16", "i16"), ("i16", "i32"), ("i32", "i16"),
)  # fmt: skip


def compare_requantized(
    comparison: Comparison,
    source: str,
    target: str,
    z_outs: list[int],
    profile: str = "litert",
    ratios: tuple[float, ...] = RATIOS,
    out_scale: float | None = None,
) -> None:
    rng = np.random.default_rng(43)
    symmetric = (source, target) == ("i16", "i16")
    for ratio in ratios:
        scale = float(np.float32(rng.uniform(0.01, 1))) if out_scale is None else out_scale
        in_scale = float(np.float32(ratio * scale))
        for z_in in zero_points(source, symmetric=symmetric or source == "i32"):
            for z_out in z_outs:
                given = per_stored_tensor(source, "f32", in_scale, z_in)
                wanted = Case(given.shape, target, "f32", np.array(scale), np.array(z_out))
                stored = given.stored_data(rng)
                plan = plan_requantize(given.tensor, wanted.tensor, profile)
                ours = np.empty(stored.size, plan.output_dtype)
                plan.run(stored, ours)
                model = one_operator(QUANTIZE, given.shape, operand(given), operand(wanted))
                comparison.add(f"{given} to {wanted}", stored, ours, run(model, stored, RESOLVERS[profile]))


def reaches_beyond_int32(source: str, target: str) -> bool:
    """Whether a scaled value and a zero point of the target can have a sum that int32 does not hold."""
    return (source, target) in (("i16", "i32"), ("i32", "i16"))


# In steps of a power of two and one f32 beside it, of which the scale of the output is 1.
AT_POWERS = tuple(
    each for exponent in (-31, -30, -20, -9, -8, -1, 0, 1, 6, 7, 8, 20) for each in traps.beside(2.0**exponent, "f32")
)


@pytest.mark.parametrize(("source", "target"), REQUANTIZED)
def test_requantize(source: str, target: str) -> None:
    """The reference kernel for every pair that it has: all stored values, or a sample of 32 bits."""
    comparison = Comparison(f"LiteRT BUILTIN_REF requantize {source} to {target}", systems.LITERT, *REQUANTIZE)
    points = zero_points(target, symmetric=(source, target) == ("i16", "i16"))
    compare_requantized(comparison, source, target, points if not reaches_beyond_int32(source, target) else [-5, 0, 3])
    comparison.finish(100_000)


@pytest.mark.parametrize(("source", "target"), BY_DEFAULT)
def test_requantize_by_default(source: str, target: str) -> None:
    """XNNPACK's conversion of 8 bits to 8 bits, and the kernels that it leaves the other pairs to."""
    converted = (source, target) in (("i8", "i8"), ("u8", "u8"))
    used = "xnnpack_cvt8" if converted else "litert"
    comparison = Comparison(
        f"LiteRT AUTO requantize {source} to {target}",
        systems.LITERT,
        profile_row("litert_xnnpack", "requantize"),
        scheme(used),
    )
    points = zero_points(target, symmetric=(source, target) == ("i16", "i16"))
    compare_requantized(
        comparison,
        source,
        target,
        points if not reaches_beyond_int32(source, target) else [-5, 0, 3],
        "litert_xnnpack",
        XNNPACK_RATIOS if converted else RATIOS,
    )
    comparison.finish(100_000)


@pytest.mark.parametrize(("source", "target"), [pair for pair in REQUANTIZED if reaches_beyond_int32(*pair)])
def test_requantize_beyond_int32(source: str, target: str) -> None:
    comparison = Comparison(
        f"LiteRT BUILTIN_REF requantize {source} to {target}, sums beyond int32", systems.LITERT, *REQUANTIZE
    )
    compare_requantized(comparison, source, target, list(bounds(target)))
    comparison.finish(100_000)


@pytest.mark.parametrize(("source", "target"), [("i8", "i8"), ("u8", "u8"), ("i8", "i16"), ("i16", "i8")])
def test_requantize_beside_powers_of_two(source: str, target: str) -> None:
    """One pair of scales each, by the reference kernels, and by XNNPACK, which takes 2^-8 to 2^7 for 8 bits."""
    points = [int(each) for each in traps.zero_points(target)]
    comparison = Comparison(f"LiteRT BUILTIN_REF requantize {source} to {target}", systems.LITERT, *REQUANTIZE)
    compare_requantized(comparison, source, target, points, "litert", AT_POWERS, 1.0)
    comparison.finish(100_000)
    if source == target:
        taken = tuple(ratio for ratio in AT_POWERS if 2.0**-8 <= ratio <= 2.0**7)
        rows = (profile_row("litert_xnnpack", "requantize"), scheme("xnnpack_cvt8"))
        comparison = Comparison(f"LiteRT AUTO requantize {source} to {target}", systems.LITERT, *rows)
        compare_requantized(comparison, source, target, points, "litert_xnnpack", taken, 1.0)
        comparison.finish(50_000)
