"""Requantize by every profile and scheme, multipliers, and products with their output stages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count

import numpy as np

from requant.convert.requantize import plan_requantize
from requant.errors import RequantError
from requant.integer.add import plan_add
from requant.integer.conv2d import Padding, Window, conv2d_integers, plan_conv2d
from requant.integer.matmul import matmul_integers, plan_matmul
from requant.plan.plan import Plan
from requant.profiles import PROFILES, Operation
from requant.profiles.rule import Accumulator, SumOverflow
from requant.schemes import SCHEMES
from tests.digests.cases import Array, Case, Found, converted, element_type, lengths_of, number, tensor
from tests.digests.conversions import bounds
from tests.digests.patterns import SHAPE, any_f32, finite_f32, integers

# Input and output scale: their ratio is 1, beside 1, a power of two, small, large, at the ends of what schemes take.
_RATIOS = (
    (1.0, 1.0), (1.0000001192092896, 1.0), (0.9999999403953552, 1.0), (0.5, 0.25), (0.1, 0.3), (1.0e-7, 0.5),
    (0.0009765625, 0.30000001192092896), (3.0, 0.015625), (4.656612873077393e-10, 1.0), (1.0e-38, 0.75),
)  # fmt: skip
_PAIRS = (
    ("i32", "i8"), ("i32", "u8"), ("i32", "i16"), ("i32", "i4"), ("i32", "i32"), ("i16", "i8"), ("i16", "i16"),
    ("i8", "i8"), ("i8", "u8"), ("u8", "i8"), ("u8", "u8"), ("i8", "i16"), ("i8", "i32"), ("u16", "i16"),
    ("i4", "i8"), ("i8", "i4"),
)  # fmt: skip


_OF_SCHEMES = ("i32 to i8", "i32 to i16", "i8 to i8", "i16 to i16 ratio")


def _uniform(storage: str, scale: float, point: int = 0) -> str:
    return f"!quant.uniform<{storage}:f32, {number(scale)}:{point}>"


def _point(storage: str) -> int:
    lowest, highest = bounds(storage)
    return 0 if storage == "i32" else max(lowest, min(highest, -3 if storage[0] == "i" else 131)) % (highest + 1)


def _per_axis(storage: str, scale: float, axis: int) -> str:
    listed = ", ".join(f"{number(scale * (1 + index % 9 / 8))}" for index in range(SHAPE[axis]))
    return f"!quant.uniform<{storage}:f32:{axis}, {{{listed}}}>"


def _sides() -> Iterator[tuple[str, str, str]]:
    """Yield what tells a pair of types from the others, and both texts."""
    for source, target in _PAIRS:
        for index, (scale_in, scale_out) in enumerate(_RATIOS):
            name = f"{source} to {target} ratio {index}"
            if index % 3 and not name.startswith(_OF_SCHEMES) and index != 4:
                continue
            yield name, _uniform(source, scale_in), _uniform(target, scale_out)
            if index == 4:
                yield (
                    f"{name}, zero points",
                    _uniform(source, scale_in, _point(source)),
                    _uniform(target, scale_out, _point(target)),
                )
    for source, target in _PAIRS[::3]:
        for axis in (0, 1):
            yield f"{source} to {target} axis {axis}", _per_axis(source, 0.01, axis), _uniform(target, 0.5)
            yield f"{source} to {target} axes {axis}", _per_axis(source, 0.01, axis), _per_axis(target, 0.3, axis)


def requantize_cases() -> Iterator[Case]:
    numbered = count()
    with_rule = [name for name, profile in PROFILES.items() if Operation.REQUANTIZE in profile.operations]
    ways = [(name, None) for name in with_rule] + [("litert", name) for name in SCHEMES]
    for profile, scheme in ways:
        for name, source, target in _sides():
            if scheme is not None and not name.startswith(_OF_SCHEMES):
                continue
            try:
                plan = plan_requantize(tensor(source, SHAPE), element_type(target), profile, scheme=scheme)
            except RequantError:
                continue
            way = f"profile {profile}" if scheme is None else f"scheme {scheme}"
            yield Case(f"requantize {way} {name}", partial(_requantized, plan, name.split()[0], next(numbered)))


def _requantized(plan: Plan, storage: str, index: int) -> Found:
    lowest, highest = plan.input_bounds or bounds(storage)
    if storage == "i32" and index % 2:
        lowest, highest = -(1 << 22), 1 << 22
    return converted(plan, integers(lowest, highest).astype(plan.input_dtype), lengths_of(index))


def multiplier_cases() -> Iterator[Case]:
    """The multiplier and shift of some thousand factors, by each scheme."""
    with np.errstate(all="ignore"):
        factors = [
            *(scale_in / scale_out for scale_in, scale_out in _RATIOS),
            *np.abs(finite_f32(1500, 60, 60, 140).astype(np.float64)).tolist(),
            *np.abs(any_f32(300, 61).astype(np.float64)).tolist(),
        ]
    for scheme in SCHEMES.values():

        def derived(scheme: object = scheme) -> Found:
            found = []
            for factor in factors:
                try:
                    made = scheme.derive_checked(factor)  # type: ignore[attr-defined]
                    found.append((made.multiplier, made.shift))
                except RequantError:
                    found.append((-1, -1))
            yield np.array(found, np.int64)

        yield Case(f"multipliers of scheme {scheme.name}", derived)
        yield Case(f"factors of scheme {scheme.name}", partial(_factors, scheme.factor))


def _factors(factor: object) -> Found:
    first, weight, second = (np.abs(any_f32(500, stream)).astype(np.float64) for stream in (62, 66, 70))
    given = [np.where(np.isfinite(each) & (each > 0), each, 0.375) for each in (first, weight, second)]
    yield np.array(factor.of_each(*given))  # type: ignore[attr-defined]


_DTYPES = ("int8", "uint8", "int16", "uint16")
# Rows, depth and columns: odd, of one, longer than a chunk of k.
_SIZES = ((1, 1, 1), (3, 5, 7), (7, 131, 17), (13, 1037, 33), (65, 64, 1))


def _whole(dtype: str, shape: tuple[int, ...], stream: int) -> Array:
    info = np.iinfo(dtype)
    return integers(int(info.min), int(info.max), int(np.prod(shape)), stream).astype(dtype).reshape(shape)


def sum_cases() -> Iterator[Case]:
    for lhs in _DTYPES:
        for rhs in _DTYPES:
            for accumulator in Accumulator:
                for rows, depth, columns in _SIZES:
                    yield Case(
                        f"matmul {lhs} {rhs} {accumulator} {rows} by {depth} by {columns}",
                        partial(_sums, lhs, rhs, accumulator, rows, depth, columns),
                    )
                for name, weights, window in _WINDOWS:
                    yield Case(
                        f"conv2d {lhs} {rhs} {accumulator} {name}",
                        partial(_window, lhs, rhs, accumulator, weights, window),
                    )


def _sums(lhs: str, rhs: str, accumulator: Accumulator, rows: int, depth: int, columns: int) -> Found:
    a, b = _whole(lhs, (rows, depth), 70), _whole(rhs, (depth, columns), 71)
    yield matmul_integers(a, b, 3, 5, accumulator=accumulator)
    yield matmul_integers(a, b, 3, 5, accumulator=accumulator, overflow=SumOverflow.SATURATE)


_WINDOWS = (
    ("depthwise", (7, 3, 3, 1), Window(padding=Padding.SAME_UPPER, groups=7)),
    ("grouped", (14, 3, 3, 1), Window(padding=Padding.SAME_LOWER, groups=7, strides=(2, 1))),
    ("few channels", (5, 3, 3, 7), Window(dilations=(2, 2), pads=(2, 1, 0, 3))),
    ("tiled", (40, 3, 3, 7), Window(padding=Padding.SAME_UPPER)),
)


def _window(lhs: str, rhs: str, accumulator: Accumulator, weights: tuple[int, int, int, int], window: Window) -> Found:
    a, b = _whole(lhs, (2, 9, 11, 7), 72), _whole(rhs, weights, 73)
    yield conv2d_integers(a, b, 3, 5, window=window, accumulator=accumulator)


_SIDES = (("i8", "i8", "i8"), ("u8", "i8", "u8"), ("i16", "i8", "i16"), ("i16", "i16", "i16"), ("i8", "i4", "i8"))


def product_cases() -> Iterator[Case]:
    for profile in PROFILES.values():
        for lhs, rhs, output in _SIDES:
            for number_of, scale in enumerate((0.05, 0.0003, 1.0)):
                name = f"{profile.name} {lhs} {rhs} to {output} scale {number_of}"
                texts = _uniform(lhs, 0.02), _uniform(rhs, 0.007), _uniform(output, scale, _point(output))
                yield from _planned(f"product {name}", "matmul", profile.name, texts)
                yield from _planned(f"convolution {name}", "conv2d", profile.name, texts)
                yield from _planned(f"add {name}", "add", profile.name, texts)


def _planned(name: str, operation: str, profile: str, texts: tuple[str, str, str]) -> Iterator[Case]:
    lhs, rhs, output = texts
    shapes = {"matmul": ((7, 67), (67, 33)), "conv2d": ((1, 9, 11, 7), (5, 3, 3, 7)), "add": (SHAPE, SHAPE)}[operation]
    types = tensor(lhs, shapes[0]), tensor(rhs, shapes[1])
    try:
        if operation == "matmul":
            plan: object = plan_matmul(*types, element_type(output), profile)
        elif operation == "conv2d":
            plan = plan_conv2d(*types, element_type(output), profile, window=Window(padding=Padding.SAME_UPPER))
        else:
            plan = plan_add(*types, element_type(output), profile)
    except RequantError:
        return
    storages = [each.removeprefix("!quant.uniform<").partition(":")[0] for each in (lhs, rhs)]
    yield Case(name, partial(_run_planned, plan, storages, shapes, operation != "add"))


def _run_planned(plan: object, storages: list[str], shapes: tuple[tuple[int, ...], ...], of_product: bool) -> Found:
    made = []
    for stream, (storage, shape, side) in enumerate(zip(storages, shapes, ("lhs", "rhs"), strict=True), 75):
        _, taken = plan.operand(side)  # type: ignore[attr-defined]
        made.append(integers(*bounds(storage), int(np.prod(shape)), stream).astype(taken.dtype))
    target = np.zeros(plan.elements, plan.output_dtype)  # type: ignore[attr-defined]
    report = plan.run(*made, None, target) if of_product else plan.run(*made, target)  # type: ignore[attr-defined]
    yield target
    yield np.array([report.saturated_low, report.saturated_high])


def cases() -> Iterator[Case]:
    yield from requantize_cases()
    yield from multiplier_cases()
    yield from sum_cases()
    yield from product_cases()
