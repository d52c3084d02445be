"""The general kernel from floats to integers: every combination of rules, sixteen elements at a time.

What `core.kernels.quantize` is not specialised for goes through here, and where that stops. The rules are numbers that
the loop looks at for each vector. Formulas: spec/numerics.md A.3, B.2, C.6, E.1; spec/mlir.md 3.2, 4.2.

    v = x / s,  x * r  or  fma(x, r, a), rounded to P;   v + a, rounded to P;   round;   + a;   + z

Of the three additions at most one adds the zero point; a is it in the float type. Sources are f32, f16 and bf16, which
are computed with in f32, or f64. The integer that comes out is one of 32 bits for storage of up to 16, and one of 64
bits for more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.layout import advance, left_in_row, locate, unpacked
from core.kernels.processor import prefer_wide_vectors
from core.kernels.rounding import Precision
from core.kernels.vector_memory import load_as, load_first, store_as
from core.kernels.vector_rounding import nearest_integers, round_by, round_to_precision
from core.kernels.vectors import (
    LANES,
    Vector,
    convert,
    count,
    first,
    first_of,
    larger,
    multiply_add,
    select,
    smaller,
    some,
    splat,
)
from core.kernels.widen import widened


class Field(IntEnum):
    """Where each rule stands in the kernel's `rules`."""

    SOURCE = 0
    """Which float the source has, as Source."""
    QUOTIENT = 1
    PRECISION = 2
    """P, as `core.kernels.rounding.Precision`."""
    ADDITION = 3
    ROUNDING = 4
    OVERFLOW = 5
    NAN_UNDEFINED = 6
    """Whether NaN is an error."""
    SEED = 7
    BYTES = 8
    """Those of an element of the target."""


class Source(IntEnum):
    """The floats of a source in f32 lanes."""

    F32 = 0
    F16 = 1
    BF16 = 2


class Quotient(IntEnum):
    """x / s, x * r, or fma(x, r, a), with r the reciprocal that the caller computed."""

    DIVISION = 0
    RECIPROCAL = 1
    FUSED = 2


class Addition(IntEnum):
    """When a is added, beyond FUSED."""

    NONE = 0
    BEFORE = 1
    """Before rounding."""
    AFTER = 2
    """After rounding."""


class Overflow(IntEnum):
    """What becomes of an integer outside of the bounds."""

    SATURATE = 0
    """It becomes the first or last integer that is stored."""
    INDEFINITE = 1
    """What does not fit int32 becomes -2^31 first, the addition of z wraps, and then it saturates."""
    UNDEFINED = 2
    """It saturates, but is an error where it does not fit the storage type."""
    INDEFINITE_LAST = 3
    """It saturates, and then what does not fit int32 becomes -2^31."""


_F32, _F16 = int(Source.F32), int(Source.F16)
_RECIPROCAL, _FUSED = int(Quotient.RECIPROCAL), int(Quotient.FUSED)
_BEFORE, _AFTER = int(Addition.BEFORE), int(Addition.AFTER)
_INDEFINITE, _UNDEFINED = int(Overflow.INDEFINITE), int(Overflow.UNDEFINED)
_INDEFINITE_LAST = int(Overflow.INDEFINITE_LAST)
_NATIVE = int(Precision.NATIVE)

_INT32_MINIMUM, _BEYOND_INT32 = -2147483648.0, 2147483648.0
_INT32_MAXIMUM = 2147483647
# Beyond all bounds, with room for a zero point in the integer.
_FAR_NARROW = np.float32(1 << 21)
_FAR_WIDE = np.float64(1 << 40)


@device
def _clamp(value: Number, lowest: Number, highest: Number) -> Number:
    return smaller(larger(value, lowest), highest)


@device
def _integer_narrow(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    """The integral f32 plus z in int32. What is far is as far as any bound; NaN gives anything."""
    if overflow == _INDEFINITE:
        return convert(select(fits, rounded, splat(np.float32(_INT32_MINIMUM))), np.int32) + zero
    near = _clamp(rounded, splat(-_FAR_NARROW), splat(_FAR_NARROW))
    return nearest_integers(near) + zero


@device
def _integer_wide(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    """The same for f64 and int64."""
    if overflow == _INDEFINITE:
        converted = convert(convert(select(fits, rounded, splat(_INT32_MINIMUM)), np.int32), np.int64)
        # Cutting the sum to 32 bits is what wraps it.
        return convert(convert(converted + zero, np.int32), np.int64)
    near = _clamp(rounded, splat(-_FAR_WIDE), splat(_FAR_WIDE))
    return nearest_integers(near) + zero


def _integer(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    raise NotImplementedError("for kernels only")


@overload(_integer, strict=False)
def _integer_of(rounded: Vector, zero: Any, fits: Any, overflow: Any) -> Callable[..., Number]:
    if rounded.element is types.float32:
        return lambda rounded, zero, fits, overflow: _integer_narrow(rounded, zero, fits, overflow)
    return lambda rounded, zero, fits, overflow: _integer_wide(rounded, zero, fits, overflow)


@device
def _source_f32(source: Array, index: Number, valid: Number, kind: int) -> Number:
    if kind == _F32:
        return load_as(source, index, valid, np.float32)
    if kind == _F16:
        return widened(load_as(source, index, valid, np.int16))
    return widened(load_as(source, index, valid, np.uint16))


@device
def _value_f32(x: Number, factor: Number, addend: Number, quotient: int, precision: int, addition: int) -> Number:
    """What is rounded, in f32 lanes."""
    if quotient == _FUSED:
        return multiply_add(x, factor, addend)
    value = x * factor if quotient == _RECIPROCAL else x / factor
    if precision != _NATIVE:
        value = round_to_precision(value, precision)
    if addition == _BEFORE:
        value = value + addend
        if precision != _NATIVE:
            value = round_to_precision(value, precision)
    return value


@device
def _value_f64(x: Number, factor: Number, addend: Number, quotient: int, addition: int) -> Number:
    """What is rounded, in f64 lanes."""
    if quotient == _FUSED:
        return multiply_add(x, factor, addend)
    value = x * factor if quotient == _RECIPROCAL else x / factor
    return value + addend if addition == _BEFORE else value


@device
def _store(target: Array, index: Number, stored: Number, valid: Number, size: int) -> None:
    if size == 1:
        store_as(target, index, stored, valid, np.int8)
    elif size == 2:
        store_as(target, index, stored, valid, np.int16)
    else:
        store_as(target, index, stored, valid, np.int32)


def _quantize_any(lane: type[Any], wide: bool) -> Kernel:
    """The kernel that computes in `lane` and settles in int64 or int32."""
    real, integer = (types.float64 if lane is np.float64 else types.float32), (types.int64 if wide else types.int32)
    in_f64 = lane is np.float64
    settling = np.float64 if wide else np.float32
    integer_class = np.int64 if wide else np.int32

    @kernel(
        (
            readable(types.uint8),  # source, as bytes
            writable(types.uint8),  # target, as bytes
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # how many elements there are
            readable(types.int64),  # core.kernels.layout.unpacked
            readable(real),  # scales or reciprocals, one for each parameter
            readable(real),  # a, likewise
            readable(integer),  # z, likewise; 0 where a is added
            readable(integer),  # what NaN is stored as, likewise
            readable(types.int64),  # rules, by Field
            readable(
                integer
            ),  # minimum, maximum, first and last that are stored, lowest and highest of the storage type
            writable(types.int64),  # counts: saturated low, saturated high, NaN, first undefined element or -1
        )
    )
    def quantize(
        source: Array,
        target: Array,
        start: Number,
        size: Number,
        numbers: Array,
        factors: Array,
        addends: Array,
        zeros: Array,
        nans: Array,
        rules: Array,
        bounds: Array,
        counts: Array,
    ) -> None:
        prefer_wide_vectors()
        kind, quotient, precision, addition = rules[0], rules[1], rules[2], rules[3]
        rounding, overflow, nan_undefined, seed, item = rules[4], rules[5], rules[6] != 0, rules[7], rules[8]
        minimum, maximum = splat(bounds[0]), splat(bounds[1])
        first_stored, last_stored = splat(bounds[2]), splat(bounds[3])
        lowest, highest = splat(bounds[4]), splat(bounds[5])
        beyond = splat(integer_class(_INT32_MAXIMUM))
        indefinite = splat(integer_class(-_INT32_MAXIMUM - 1))
        layout = unpacked(numbers)
        cycle = layout[4] != 0
        place = locate(start, layout)
        low = 0
        high = 0
        missing = 0
        undefined = np.int64(-1)
        done = 0
        while done < size:
            end = done + min(left_in_row(place, layout), size - done)
            parameter = place[0] + place[1]
            place = advance(end - done, place, layout)
            factor = splat(factors[parameter])
            addend = splat(addends[parameter])
            zero = splat(zeros[parameter])
            stored_nan = splat(nans[parameter])
            for i in range(done, end, LANES):
                valid = first(end - i)
                if cycle:
                    at = parameter + (i - done)
                    factor = load_first(factors, at, valid)
                    addend = load_first(addends, at, valid)
                    zero = load_first(zeros, at, valid)
                    stored_nan = load_first(nans, at, valid)
                if in_f64:
                    value = _value_f64(load_as(source, i, valid, np.float64), factor, addend, quotient, addition)
                else:
                    x = _source_f32(source, i, valid, kind)
                    value = _value_f32(x, factor, addend, quotient, precision, addition)
                not_a_number = value != value
                rounded = round_by(rounding, value, seed, start + i)
                if addition == _AFTER:
                    rounded = rounded + addend
                exact = convert(rounded, settling)
                fits = (exact >= splat(settling(_INT32_MINIMUM))) & (exact < splat(settling(_BEYOND_INT32)))
                number = select(not_a_number, splat(settling(0.0)), exact)
                integers = _integer(number, zero, fits, overflow)
                is_low = integers < minimum
                is_high = integers > maximum
                if overflow == _INDEFINITE:
                    # What did not fit and is not clamped counts as low, as -2^31 is.
                    is_low = is_low | ~(fits | is_high)
                stored = _clamp(integers, first_stored, last_stored)
                if overflow == _INDEFINITE_LAST:
                    stored = select(stored > beyond, indefinite, stored)
                stored = select(not_a_number, stored_nan, stored)
                _store(target, i, stored, valid, item)
                not_a_number = not_a_number & valid
                is_number = valid & ~not_a_number
                low += count(is_low & is_number)
                high += count(is_high & is_number)
                missing += count(not_a_number)
                wrong = not_a_number & splat(nan_undefined)
                if overflow == _UNDEFINED:
                    wrong = wrong | (((integers < lowest) | (integers > highest)) & is_number)
                if undefined < 0 and some(wrong):
                    undefined = start + i + first_of(wrong)
            done = end
        counts[0] += low
        counts[1] += high
        counts[2] += missing
        if counts[3] < 0:
            counts[3] = undefined

    return quantize


QUANTIZE_ANY: dict[tuple[str, bool], Kernel] = {
    ("<f4", False): _quantize_any(np.float32, False),
    ("<f4", True): _quantize_any(np.float32, True),
    ("<f8", True): _quantize_any(np.float64, True),
}
"""The kernel for the dtype of the lanes, and whether stored integers have more than 16 bits."""
