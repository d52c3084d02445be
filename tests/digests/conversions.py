"""Quantize, dequantize and casts: every profile, for the types that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import count

import numpy as np

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.small_floats import SMALL_FLOATS, decode_table
from requant.errors import RequantError
from requant.formats.elements import FLOATS
from requant.formats.rounding import Rounding
from requant.mlir.types import TensorType
from requant.plan.plan import Plan
from requant.profiles import PROFILES, Operation, Profile
from requant.profiles.cast import FINITE, FiniteNan
from tests.digests.cases import Array, Case, Found, converted, element_type, lengths_of, number, tensor
from tests.digests.patterns import ELEMENTS, SHAPE, any_f32, integers, reals, specials, words

_F32_ONE = np.float32(1)
SCALES: dict[str, tuple[float, ...]] = {
    # 1 and what lies beside it; no power of two; subnormal; with a subnormal reciprocal; the largest.
    "f32": (
        1.0, float(np.nextafter(_F32_ONE, np.float32(2))), float(np.nextafter(_F32_ONE, np.float32(0))),
        0.30000001192092896, 0.0078125, 1.0000015e-36, 1.0e-40, 2.0e38,
    ),
    "f16": (1.0, 1.0009765625, 0.99951171875, 0.300048828125, 5.9604644775390625e-08, 3.0517578125e-05, 65504.0),
    "bf16": (1.0, 1.0078125, 0.99609375, 0.30078125, 1.0e-39, 2.0e38),
    "f64": (1.0, 1.0000000000000002, 0.9999999999999999, 0.3, 1.0e-300, 5.0e-324, 1.0e308),
}  # fmt: skip
_STORAGES = {
    "f32": ("i2", "u2", "i4", "u4", "i7", "i8", "u8", "i12", "i16", "u16", "i24", "i32", "u32"),
    "f16": ("i4", "u8", "i8", "i16", "i32"),
    "bf16": ("i4", "u8", "i8", "i16", "i32"),
    "f64": ("i4", "u8", "i8", "i16", "i32"),
}
_SMALL = tuple(name for name, format_ in SMALL_FLOATS.items() if format_.width <= 8)
_QUANTILE = "!quant.quantile<{storage}:{expressed}, {{-1.0, -0.25, 0.25, 1.5}}>"


def bounds(storage: str) -> tuple[int, int]:
    """Return those of an integer storage."""
    width = int(storage[1:])
    return (0, (1 << width) - 1) if storage[0] == "u" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


@cache
def _listed(storage: str, parameters: int) -> list[str]:
    """Return that many scales and zero points, no two beside each other alike."""
    lowest, highest = bounds(storage) if storage[0] in "iu" else (0, 0)
    scales = [number(scale) for scale in (0.30000001192092896, 0.5, 1.0, 0.75, 2.0, 0.109375, 3.0)]
    points = integers(max(lowest, -1000), min(highest, 1000), parameters, stream=40)
    return [f"{scales[index % 7]}:{point}" for index, point in enumerate(points.tolist())]


def _types(storage: str, expressed: str) -> Iterator[tuple[str, str, float, int]]:
    """Yield what tells a type from the others, its text, and a scale and zero point for the inputs."""
    for index, scale in enumerate(SCALES[expressed]):
        yield f"scale {index}", f"!quant.uniform<{storage}:{expressed}, {number(scale)}>", scale, 0
    if storage[0] == "f":
        return
    lowest, highest = bounds(storage)
    point = max(lowest, min(highest // 3 + 1, 40_000))
    for index in (0, 3):
        scale = SCALES[expressed][index]
        text = f"!quant.uniform<{storage}:{expressed}, {number(scale)}:{point}>"
        yield f"scale {index}, zero point", text, scale, point
    narrow = f"{storage}<{max(lowest + 1, -(1 << 31) + 1)}:{highest - 1}>"
    yield "narrow", f"!quant.uniform<{narrow}:{expressed}, {number(SCALES[expressed][3])}>", SCALES[expressed][3], 0
    rows, columns = SHAPE
    for axis, size in enumerate(SHAPE):
        one_each = ", ".join(_listed(storage, size))
        yield f"axis {axis}", f"!quant.uniform<{storage}:{expressed}:{axis}, {{{one_each}}}>", 0.5, 0
    for block in ((1, 19), (13, 1), (1, 1)):
        # As many parameters as elements take long to read.
        if block == (1, 1) and (storage, expressed) != ("i4", "f32"):
            continue
        across = columns // block[1]
        listed = _listed(storage, rows // block[0] * across)
        nested = ", ".join(f"{{{', '.join(listed[i : i + across])}}}" for i in range(0, len(listed), across))
        text = f"!quant.uniform<{storage}:{expressed}:{{0:{block[0]}, 1:{block[1]}}}, {{{nested}}}>"
        yield f"blocks of {block[0]} by {block[1]}", text, 0.5, 0


def _storages(profile: Profile, operation: Operation, expressed: str) -> Iterator[str]:
    rule = profile.operations[operation]
    if "quantile" in rule.storages:
        yield "quantile"
    taken = _STORAGES[expressed] + (_SMALL if expressed != "f64" else ())
    yield from (storage for storage in taken if storage in rule.storages)


def _quantile_types(expressed: str) -> Iterator[tuple[str, str, float, int]]:
    table = _QUANTILE.format(storage="ui2", expressed=expressed)
    for index, scale in enumerate(SCALES[expressed][:4]):
        yield f"scale {index}", f"!quant.uniform<{table}:{expressed}, {number(scale)}:1>", scale, 0


@cache
def _named_types(storage: str, expressed: str) -> Sequence[tuple[str, str, float, int]]:
    return list(_quantile_types(expressed) if storage == "quantile" else _types(storage, expressed))


def _plan(operation: Operation, source: TensorType, text: str, profile: str) -> Plan | None:
    try:
        if operation is Operation.QUANTIZE:
            return plan_quantize(source, element_type(text), profile)
        return plan_dequantize(source, None, profile)
    except RequantError:
        return None


def quantize_cases() -> Iterator[Case]:
    numbered = count()
    for profile in PROFILES.values():
        rule = profile.operations.get(Operation.QUANTIZE)
        for expressed in rule.expressed if rule else ():
            source = tensor(expressed, SHAPE)
            for storage in _storages(profile, Operation.QUANTIZE, expressed):
                lowest, highest = bounds(storage) if storage[0] in "iu" else (-20, 20)
                for name, text, scale, point in _named_types(storage, expressed):
                    plan = _plan(Operation.QUANTIZE, source, text, profile.name)
                    if plan is not None:
                        yield Case(
                            f"quantize {profile.name} {expressed} to {storage} {name}",
                            partial(_quantized, plan, expressed, scale, point, lowest, highest, next(numbered)),
                        )


def _quantized(plan: Plan, expressed: str, scale: float, point: int, lowest: int, highest: int, index: int) -> Found:
    source = reals(expressed, scale, point, lowest, highest).view(plan.input_dtype)
    return converted(plan, source, lengths_of(index))


def rounding_cases() -> Iterator[Case]:
    """Every rounding, in place of a profile's."""
    for rounding in Rounding:
        for expressed in ("f32", "f16", "f64"):
            for storage in ("i8", "i16", "i32"):
                for index, scale in enumerate(SCALES[expressed][:4]):
                    text = f"!quant.uniform<{storage}:{expressed}, {number(scale)}:3>"
                    try:
                        plan = plan_quantize(
                            tensor(expressed, SHAPE), element_type(text), "stablehlo", rounding=rounding, seed=7
                        )
                    except RequantError:
                        continue
                    yield Case(
                        f"quantize stablehlo {expressed} to {storage} {rounding} scale {index}",
                        partial(_quantized, plan, expressed, scale, 3, *bounds(storage), 3),
                    )


def dequantize_cases() -> Iterator[Case]:
    numbered = count()
    for profile in PROFILES.values():
        rule = profile.operations.get(Operation.DEQUANTIZE)
        for expressed in rule.expressed if rule else ():
            for storage in _storages(profile, Operation.DEQUANTIZE, expressed):
                for name, text, _, _ in _named_types(storage, expressed):
                    plan = None
                    try:
                        source = tensor(text, SHAPE)
                    except RequantError:
                        continue
                    plan = _plan(Operation.DEQUANTIZE, source, text, profile.name)
                    if plan is not None:
                        yield Case(
                            f"dequantize {profile.name} {storage} to {expressed} {name}",
                            partial(_dequantized, plan, storage, next(numbered)),
                        )


def _dequantized(plan: Plan, storage: str, index: int) -> Found:
    if plan.input_bounds is not None:
        lowest, highest = plan.input_bounds
    elif storage[0] == "f":
        lowest, highest = 0, (1 << SMALL_FLOATS[storage].width) - 1
    else:
        lowest, highest = (0, 3) if storage == "quantile" else bounds(storage)
    return converted(plan, integers(lowest, highest).astype(plan.input_dtype), lengths_of(index))


_WIDE = ("f16", "bf16", "f32", "f64")


def cast_cases() -> Iterator[Case]:
    for profile in PROFILES.values():
        if profile.casts is None:
            continue
        for target in profile.casts.formats:
            if profile.casts.finite_nan is FiniteNan.ERROR and target in FINITE:
                # NaN is among all inputs.
                continue
            roundings = (None, *profile.casts.roundings_to(target)[1:])
            for source in profile.casts.sources:
                yield from _narrowing(profile.name, source, target, roundings)
                if target in SMALL_FLOATS:
                    yield from _widening(profile.name, target, source)


def _narrowing(profile: str, source: str, target: str, roundings: tuple[Rounding | None, ...]) -> Iterator[Case]:
    inputs = _cast_inputs(source, target)
    for saturate in (None, False, True):
        for rounding in roundings:
            try:
                plan = plan_quantize(
                    tensor(source, inputs.shape), element_type(target), profile, saturate=saturate, rounding=rounding
                )
            except RequantError:
                continue
            name = f"cast {profile} {source} to {target}{_said('saturate', saturate)}{_said('rounding', rounding)}"
            yield Case(name, partial(_cast, plan, inputs))


def _widening(profile: str, source: str, target: str) -> Iterator[Case]:
    codes = 1 << SMALL_FLOATS[source].width
    inputs = np.concatenate([np.arange(codes), np.arange(codes)[::-1], np.arange(17) % codes]).astype(np.uint16)
    try:
        plan = plan_dequantize(tensor(source, inputs.shape), element_type(target), profile)
    except RequantError:
        return
    yield Case(f"cast {profile} {source} to {target} of every code", partial(_cast, plan, inputs))


def _said(name: str, value: object) -> str:
    return "" if value is None else f" {name} {value}"


def _cast_inputs(source: str, target: str) -> Array:
    """Return every f16 and bf16; of f32 and f64 the values of the target, the middles between them, their neighbours,
    what is special, and random bits."""
    if source in ("f16", "bf16"):
        return np.arange(1 << 16, dtype=np.uint16)
    if FLOATS[target].width > 8:
        near = specials(source)
    else:
        values = decode_table(target)
        # Of magnitudes: which of two zeros comes first in a sorted array is not the same everywhere.
        positive = np.unique(np.abs(values[np.isfinite(values)])).astype(np.float64)
        finite = np.concatenate([-positive[::-1], positive])
        middles = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, finite * 1.5])
        bits = middles.astype(np.float32).view(np.uint32) if source == "f32" else middles.view(np.uint64)
        near = np.concatenate([bits, bits + bits.dtype.type(1), bits - bits.dtype.type(1), specials(source)])
    if source == "f32":
        rest: Array = any_f32(2 * ELEMENTS, 50).view(np.uint32)
        return np.concatenate([near, rest, words(333, 55).astype(np.uint32)])
    # What becomes an f32 exactly, and what does not.
    with np.errstate(invalid="ignore"):
        wide = any_f32(ELEMENTS, 50).astype(np.float64).view(np.uint64)
    return np.concatenate([near, wide, wide + np.uint64(1), wide | np.uint64(1 << 28), words(333, 55)])


def _cast(plan: Plan, inputs: Array) -> Found:
    return converted(plan, inputs.astype(f"u{plan.input_dtype.itemsize}").view(plan.input_dtype), _CAST_LENGTHS)


_CAST_LENGTHS: Sequence[int] = range(0, 131, 9)


def cases() -> Iterator[Case]:
    yield from quantize_cases()
    yield from rounding_cases()
    yield from dequantize_cases()
    yield from cast_cases()
