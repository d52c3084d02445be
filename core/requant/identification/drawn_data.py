"""Calls with other data, drawn where bugs live: ties, powers of two and what is beside them, subnormals, extremes.

What the other arguments of a call depend on stays: parameters, shapes, axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import numpy_dtype
from requant.description import Array, Kind, NumbersInput
from requant.formats.elements import FloatElement, IntegerElement
from requant.mlir.types import (
    AnyType,
    ElementType,
    TensorType,
    UniformQuantizedType,
)
from requant.plan.operands import kept_dtype, static_shape

KINDS = 64
"""So many kinds of data there are."""
ORDINARY_KINDS = 48
"""The numbers of the first kinds are none for which many systems have an exception."""


def with_data(call: ArrayCall, types: Mapping[str, TensorType], number: int, rng: np.random.Generator) -> ArrayCall:
    """Return a call with other data of these types. `number`: which kind of data."""
    kept = parameters_of(call)
    arrays = {
        name: each
        if name in kept
        else _tensor(types[name if name in types else name.rpartition("_")[0]], each, number, rng)
        for name, each in call.arrays.items()
    }
    numbers = {each.name: _numbers(each, call.numbers[each.name], number, rng) for each in _drawn_numbers(call)}
    types = {name: call.types[name] if name in kept else each for name, each in types.items()}
    return replace(call, types=types, arrays=arrays, numbers={**call.numbers, **numbers})


def parameters_of(call: ArrayCall) -> set[str]:
    """Return the inputs that are parameters of others: single numbers, and plain integers such as shapes and axes."""
    plain = {
        name
        for name, each in call.types.items()
        if isinstance(each.element, IntegerElement) and each.element.width > 16
    }
    single = {name for name, each in call.arrays.items() if each.size == 1}
    found = plain | single
    return set() if found >= set(call.types) else found


def _drawn_numbers(call: ArrayCall) -> list[NumbersInput]:
    return [each for each in call.operation.numbers if each.name in call.numbers]


def _tensor(type_: TensorType, like: Array, number: int, rng: np.random.Generator) -> Array:
    shape = static_shape(type_)
    element = type_.element
    stored = element.storage.element if isinstance(element, UniformQuantizedType | AnyType) else element
    if isinstance(stored, FloatElement):
        dtype = numpy_dtype(stored)
        with np.errstate(all="ignore"):
            finite = np.abs(like.astype(np.float64, copy=False).reshape(-1)) if like.dtype.kind != "u" else np.ones(1)
        finite = finite[np.isfinite(finite)]
        largest = float(finite.max(initial=0)) or 1.0
        with np.errstate(all="ignore"):
            reals: Array = _reals(prod(shape), largest, number, rng).astype(dtype).reshape(shape)
        return reals
    lowest, highest = bounds_of(element)
    integers = rng.integers(lowest, highest, prod(shape), endpoint=True)
    integers[rng.random(integers.size) < 0.1] = rng.choice([lowest, highest])
    stored_integers: Array = integers.astype(kept_dtype(element, "input")).reshape(shape)
    return stored_integers


def bounds_of(element: ElementType) -> tuple[int, int]:
    if isinstance(element, UniformQuantizedType):
        return int(element.storage.minimum), int(element.storage.maximum)
    if isinstance(element, IntegerElement):
        bits = min(element.width, 32) - element.signed
        return (-(1 << bits) if element.signed else 0), (1 << bits) - 1
    return 0, 1


def _reals(count: int, largest: float, number: int, rng: np.random.Generator) -> Array:
    """Return numbers up to about a magnitude: one of several kinds."""
    signs: Array = rng.choice([-1.0, 1.0], count)
    power = 2.0 ** np.floor(np.log2(largest))
    found: Array
    match number % 7:
        case 0:
            found = rng.normal(0, largest, count)
        case 1:
            # Few bits: halves and quarters of a block's unit.
            found = signs * rng.integers(0, 65, count) / 64 * power
        case 2:
            # A power of two, and what lies beside it in f32.
            found = signs * power * 2.0 ** rng.integers(-8, 2, count) * (1 + rng.integers(-2, 3, count) * 2.0**-23)
        case 3:
            found = signs * largest * 2.0 ** rng.uniform(-30, 8, count)
        case 4:
            # The largest magnitude is just above or below what the formats of blocks hold.
            found = signs * rng.integers(0, 97, count) / 96 * power * rng.choice([1.0, 1.5, 1.75, 1.875, 1.9375])
            found *= 1 + rng.integers(-1, 2) * 2.0**-12
        case 5:
            found = signs * rng.integers(0, 1 << 12, count) * 2.0**-149
        case _:
            found = rng.normal(0, largest, count)
            found[rng.random(count) < 0.5] = rng.choice([0.0, -0.0])
    return found


def _numbers(given: NumbersInput, like: Array, number: int, rng: np.random.Generator) -> Array:
    """Return as many numbers as a call has: near those that it has and in their order; near powers of two, at ties of
    31 and of 15 bits, and of any bits. They are of f32 if those of the call are.
    """
    if given.kind is Kind.INTEGER:
        return like
    with np.errstate(all="ignore"):
        reals = np.array([_real(each) for each in like.reshape(-1)])
    count = like.size
    scales = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(reals), 1e-30))) + rng.integers(-3, 4, count))
    found = _near(reals, number // 2) if number % 2 else np.copysign(_of_few_bits(scales, number // 2, rng), reals)
    found = found.reshape(like.shape)
    with np.errstate(over="ignore"):
        singles = found.astype(np.float32)
    if np.array_equal(reals, reals.astype(np.float32)) and np.isfinite(singles).all():
        found = singles.astype(np.float64)
    if like.dtype != object:
        numbers: Array = found.astype(like.dtype)
        return numbers
    texts = np.empty(like.shape, object)
    for place, each in np.ndenumerate(found):
        texts[place] = repr(float(each))
    return texts


def _near(reals: Array, number: int) -> Array:
    """Return numbers times factors, which are the same for all lists of a trial, so that the ends of ranges stay in
    order; some of one sign; of the last trials some are 0, or all subnormal.
    """
    rng = np.random.default_rng(number)
    powers = rng.integers(-20, 20, reals.size).astype(np.float64)
    if number >= ORDINARY_KINDS // 2:
        found: Array = reals * (2.0 ** (powers - 130) if number % 2 else rng.random(reals.size) < 0.5)
        return found
    scaled = reals * (2.0**powers if number % 2 else rng.uniform(0.5, 2, reals.size))
    signed: tuple[Array, ...] = scaled, np.abs(scaled), -np.abs(scaled)
    return signed[number // 2 % 3]


def _of_few_bits(scales: Array, number: int, rng: np.random.Generator) -> Array:
    count, found = scales.size, scales
    match number % 4:
        case 0:
            found = scales * (1 - 2.0 ** -rng.integers(8, 40, count).astype(np.float64))
        case 1:
            found = scales * (rng.integers(1 << 30, 1 << 31, count) + 0.5) * 2.0**-31
        case 2:
            found = scales * (rng.integers(1 << 14, 1 << 15, count) + 0.5) * 2.0**-15
        case _:
            found = scales * rng.uniform(0.5, 1, count)
    return found


def _real(number: Any) -> float:
    try:
        return float.fromhex(number) if isinstance(number, str) and "0x" in number.lower() else float(number)
    except (TypeError, ValueError):
        return 1.0
