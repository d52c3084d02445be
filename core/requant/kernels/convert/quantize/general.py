"""The general kernel from floats to integers: every combination of rules, sixteen elements at a time.

What `requant.kernels.convert.quantize.native` is not specialised for goes through here, and where that stops. The rules
are numbers that the loops look at for each vector. As there, a span of the tensor is first converted without looking at
each element: where all integers are within the bounds, nothing saturates, and none comes from what is no number. Where
they are not far beyond, the span is converted once more and what saturates is counted; elsewhere by a loop that checks
everything.

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

from requant.formats.rounding import Rounding
from requant.formats.rules import Overflow, Quotient
from requant.kernels.jit.jit import Array, Kernel, Number, device, inlined, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import I64, U8, In, Integer, Out, Real
from requant.kernels.loops import next_vector, span_loop
from requant.kernels.scalar.rounding import Precision
from requant.kernels.simd.integer_lanes import store_integers
from requant.kernels.simd.memory import elements_of, load, load_as, load_one
from requant.kernels.simd.rounding import nearest_integers, round_by, round_to_precision
from requant.kernels.simd.vector import LANES, Vector
from requant.kernels.simd.vectors import (
    any_lane,
    clamp,
    convert,
    count,
    first,
    first_of,
    larger,
    multiply_add,
    select,
    smaller,
    splat,
)
from requant.kernels.simd.widen import FloatKind, load_f32


class Field(IntEnum):
    """Where each rule stands in the kernel's `rules`."""

    SOURCE = 0
    """FloatKind of the source, where the kernel computes in f32."""
    QUOTIENT = 1
    PRECISION = 2
    """P, as `requant.kernels.scalar.rounding.Precision`."""
    ADDITION = 3
    ROUNDING = 4
    OVERFLOW = 5
    NAN_UNDEFINED = 6
    """Whether NaN is an error."""
    SEED = 7
    BYTES = 8
    """Those of an element of the target."""


class Addition(IntEnum):
    """When a is added, beyond FUSED."""

    NONE = 0
    BEFORE = 1
    """Before rounding."""
    AFTER = 2
    """After rounding."""


_SOURCE, _QUOTIENT, _PRECISION, _ADDITION, _ROUNDING, _OVERFLOW, _NAN_UNDEFINED, _SEED, _BYTES = map(int, Field)
_F32, _NATIVE = int(FloatKind.F32), int(Precision.NATIVE)
_BEFORE, _AFTER = int(Addition.BEFORE), int(Addition.AFTER)
_DIVISION, _FUSED = Quotient.DIVISION.code, Quotient.FUSED.code
_SATURATE, _FLOAT_SATURATE = Overflow.SATURATE.code, Overflow.FLOAT_SATURATE.code
_INDEFINITE, _INDEFINITE_BELOW = Overflow.INDEFINITE.code, Overflow.INDEFINITE_BELOW.code
_UNDEFINED, _FLOAT_CLAMP = Overflow.UNDEFINED.code, Overflow.FLOAT_CLAMP.code
_TOWARD_ZERO, _FLOOR = Rounding.TOWARD_ZERO.code, Rounding.FLOOR.code
# What a span is checked for: nothing; saturation, which is counted; everything.
_CHECK_NONE, _CHECK_SATURATION, _CHECK_ALL = range(3)

_INT32_MINIMUM, _BEYOND_INT32 = -2147483648.0, 2147483648.0
_INT32_MAXIMUM = 2147483647
_LARGEST_F32_IN_INT32 = 2147483520.0
# Beyond all bounds, with room for a zero point in the integer.
_FAR_NARROW = np.float32(1 << 21)
_FAR_WIDE = np.float64(1 << 40)


@device
def _integer_narrow(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    """The integral f32 plus z in int32. What is far is as far as any bound; NaN gives anything."""
    if overflow == _INDEFINITE:
        return convert(select(fits, rounded, splat(np.float32(_INT32_MINIMUM))), np.int32) + zero
    if overflow == _INDEFINITE_BELOW:
        lowest, highest = splat(np.float32(_INT32_MINIMUM)), splat(np.float32(_LARGEST_F32_IN_INT32))
        return convert(clamp(rounded, lowest, highest), np.int32) + zero
    near = clamp(rounded, splat(-_FAR_NARROW), splat(_FAR_NARROW))
    return nearest_integers(near) + zero


@device
def _integer_wide(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    """The same for f64 and int64."""
    if overflow == _INDEFINITE:
        converted = convert(convert(select(fits, rounded, splat(_INT32_MINIMUM)), np.int32), np.int64)
        # Cutting the sum to 32 bits is what wraps it.
        return convert(convert(converted + zero, np.int32), np.int64)
    if overflow == _INDEFINITE_BELOW:
        clipped = clamp(rounded, splat(_INT32_MINIMUM), splat(_LARGEST_F32_IN_INT32))
        return convert(convert(nearest_integers(clipped) + zero, np.int32), np.int64)
    near = clamp(rounded, splat(-_FAR_WIDE), splat(_FAR_WIDE))
    return nearest_integers(near) + zero


def settled(rounded: Number, zero: Number, fits: Number, overflow: int) -> Number:
    """The integer: of an f32 in int32, of an f64 in int64. `fits`: where int32 holds it; `overflow`: an Overflow."""
    raise NotImplementedError("for kernels only")


@overload(settled, strict=False)
def _chosen_integer(rounded: Vector, zero: Any, fits: Any, overflow: Any) -> Callable[..., Number]:
    if rounded.element is types.float32:
        return lambda rounded, zero, fits, overflow: _integer_narrow(rounded, zero, fits, overflow)
    return lambda rounded, zero, fits, overflow: _integer_wide(rounded, zero, fits, overflow)


@device
def value_f32(x: Number, factor: Number, addend: Number, steps: tuple[int, int, int]) -> Number:
    """What is rounded, in f32. `steps`: QUOTIENT, PRECISION, ADDITION."""
    quotient, precision, addition = steps
    if quotient == _FUSED:
        return multiply_add(x, factor, addend)
    value = x / factor if quotient == _DIVISION else x * factor
    if precision != _NATIVE:
        value = round_to_precision(value, precision)
    if addition == _BEFORE:
        value = value + addend
        if precision != _NATIVE:
            value = round_to_precision(value, precision)
    return value


@device
def value_f64(x: Number, factor: Number, addend: Number, steps: tuple[int, int, int]) -> Number:
    """What is rounded, in f64."""
    quotient, _, addition = steps
    if quotient == _FUSED:
        return multiply_add(x, factor, addend)
    value = x / factor if quotient == _DIVISION else x * factor
    return value + addend if addition == _BEFORE else value


@device
def _load_f64(source: Array, index: Number, kind: int, mask: Number = None) -> Number:
    return load_as(source, index, np.float64, mask)


def _quantize_any(computed: type[Any], wide: bool) -> Kernel:
    """The kernel that computes in `computed` and settles in int64 or int32."""
    real, integer = (types.float64 if computed is np.float64 else types.float32), (types.int64 if wide else types.int32)
    in_f64 = computed is np.float64
    loaded, value_of = (_load_f64, value_f64) if in_f64 else (load_f32, value_f32)
    settling = np.float64 if wide else np.float32
    integer_class = np.int64 if wide else np.int32
    far = int(_FAR_WIDE if wide else _FAR_NARROW)

    @device
    def whole_vectors(
        source: Array,
        target: Array,
        begin: Number,
        rows: Number,
        length: Number,
        start: Number,
        parameters: tuple[Array, Array, Array],
        parameter: Number,
        cycle: bool,
        kind: int,
        steps: tuple[int, int, int],
        rounding: int,
        seed: int,
        size: int,
        counting: bool,
        bounds: tuple[Number, Number, Number, Number],
        so_far: tuple[Number, Number, Number, Number],
    ) -> tuple[Number, Number, Number, Number]:
        """Convert the whole vectors of rows, of which no integer is far beyond the bounds, and without `counting` none
        beyond them at all. `bounds`: minimum, maximum, the first and the last integer that are stored. `so_far`: the
        lowest and the highest integer, and how many saturated low and high.
        """
        factors, addends, zeros = parameters
        minimum, maximum, first_stored, last_stored = bounds
        least, most, low, high = so_far
        factor, addend, zero = load_one(factors, parameter), load_one(addends, parameter), load_one(zeros, parameter)
        left = length
        for i in range(begin, begin + rows * length - length % LANES, LANES):
            if cycle:
                at = parameter + (i - begin)
                factor, addend, zero = load(factors, at), load(addends, at), load(zeros, at)
            elif rows > 1:
                # Before the vector and not after it: behind the last row there may be no parameter.
                factor, addend = load_one(factors, parameter), load_one(addends, parameter)
                zero = load_one(zeros, parameter)
                parameter, left = next_vector(parameter, left, length)
            value = value_of(loaded(source, i, kind), factor, addend, steps)
            rounded = round_by(rounding, value, seed, start + i)
            if steps[2] == _AFTER:
                rounded = rounded + addend
            integers = nearest_integers(convert(rounded, settling)) + zero
            least, most = smaller(least, integers), larger(most, integers)
            if counting:
                low += count(integers < minimum)
                high += count(integers > maximum)
                integers = clamp(integers, first_stored, last_stored)
            store_integers(target, i, integers, size)
        return least, most, low, high

    @device
    def convert_rows(
        work: tuple[Number, ...],
        begin: Number,
        rows: Number,
        length: Number,
        parameter: Number,
        cycle: Number,
        check: Number,
        seen: tuple[Number, ...],
    ) -> tuple[Number, ...]:
        """`seen`: the lowest and the highest integer, how many saturated low and high and are NaN, and the first
        element without a result."""
        source, target, start, parameters, nans, choices, steps, all_bounds, _ = work
        kind, rounding, overflow, nan_undefined, seed, item = choices
        bounds, lowest, highest = all_bounds
        minimum, maximum, first_stored, last_stored = bounds
        least, most, low, high, missing, undefined = seen
        rest = length
        if check < _CHECK_ALL:
            so_far = (least, most, low, high)
            # With constants where it pays.
            if check == _CHECK_SATURATION:
                least, most, low, high = whole_vectors(
                    source, target, begin, rows, length, start, parameters, parameter, cycle, kind, steps,
                    rounding, seed, item, True, bounds, so_far,
                )  # fmt: skip
            elif cycle or kind != _F32 or item != 1 or rows > 1:
                least, most, low, high = whole_vectors(
                    source, target, begin, rows, length, start, parameters, parameter, cycle, kind, steps,
                    rounding, seed, item, False, bounds, so_far,
                )  # fmt: skip
            elif rounding == _TOWARD_ZERO:
                least, most, low, high = whole_vectors(
                    source, target, begin, 1, length, start, parameters, parameter, False, _F32, steps,
                    _TOWARD_ZERO, 0, 1, False, bounds, so_far,
                )  # fmt: skip
            elif rounding == _FLOOR:
                least, most, low, high = whole_vectors(
                    source, target, begin, 1, length, start, parameters, parameter, False, _F32, steps,
                    _FLOOR, 0, 1, False, bounds, so_far,
                )  # fmt: skip
            else:
                least, most, low, high = whole_vectors(
                    source, target, begin, 1, length, start, parameters, parameter, False, _F32, steps,
                    rounding, seed, 1, False, bounds, so_far,
                )  # fmt: skip
            rest = length % LANES
            begin += rows * length - rest
            if cycle:
                parameter += length - rest
            if rest == 0:
                rows = 0
        factors, addends, zeros = parameters
        beyond = splat(integer_class(_INT32_MAXIMUM))
        for index in range(parameter, parameter + rows):
            factor, addend = load_one(factors, index), load_one(addends, index)
            zero, stored_nan = load_one(zeros, index), load_one(nans, index)
            end = begin + rest
            for i in range(begin, end, LANES):
                valid = first(end - i)
                if cycle:
                    at = index + (i - begin)
                    factor, addend = load(factors, at, valid), load(addends, at, valid)
                    zero, stored_nan = load(zeros, at, valid), load(nans, at, valid)
                value = value_of(loaded(source, i, kind, valid), factor, addend, steps)
                not_a_number = value != value
                rounded = round_by(rounding, value, seed, start + i)
                if steps[2] == _AFTER:
                    rounded = rounded + addend
                exact = convert(rounded, settling)
                fits = (exact >= splat(settling(_INT32_MINIMUM))) & (exact < splat(settling(_BEYOND_INT32)))
                number = select(not_a_number, splat(settling(0.0)), exact)
                integers = settled(number, zero, fits, overflow)
                is_low = integers < minimum
                is_high = integers > maximum
                if overflow == _INDEFINITE:
                    # What did not fit and is not clamped counts as low, as -2^31 is.
                    is_low = is_low | ~(fits | is_high)
                stored = clamp(integers, first_stored, last_stored)
                if overflow == _FLOAT_CLAMP:
                    stored = select(stored > beyond, splat(integer_class(-_INT32_MAXIMUM - 1)), stored)
                stored = select(not_a_number, stored_nan, stored)
                store_integers(target, i, stored, item, valid)
                not_a_number = not_a_number & valid
                is_number = valid & ~not_a_number
                low += count(is_low & is_number)
                high += count(is_high & is_number)
                missing += count(not_a_number)
                wrong = not_a_number & splat(nan_undefined)
                if overflow == _UNDEFINED:
                    wrong = wrong | (((integers < lowest) | (integers > highest)) & is_number)
                if undefined < 0 and any_lane(wrong):
                    undefined = start + i + first_of(wrong)
            begin = end
        return least, most, low, high, missing, undefined

    @inlined
    def finish(work: tuple[Number, ...], check: Number, seen: tuple[Number, ...], counts: Array) -> Number:
        least, most, low, high, missing, undefined = seen
        least_within, most_within, least_near, most_near = work[8]
        needed = _CHECK_NONE
        if any_lane((least < least_within) | (most > most_within)):
            needed = _CHECK_SATURATION
        # A loop that checks everything does not look at extremes.
        if any_lane((least < least_near) | (most > most_near)) or (check == _CHECK_ALL and low + high + missing > 0):
            needed = _CHECK_ALL
        if needed <= check:
            counts[0] += low
            counts[1] += high
            counts[2] += missing
            if counts[3] < 0:
                counts[3] = undefined
        return needed

    convert_spans = span_loop(convert_rows, finish)

    @kernel({Real: real, Integer: integer})
    def quantize(
        source: In[U8],  # as bytes
        target: Out[U8],  # as bytes
        start: I64,  # index of source[0] in the whole tensor
        size: I64,  # how many elements there are
        numbers: In[I64],  # requant.kernels.loops.unpacked
        factors: In[Real],  # scales or reciprocals, one for each parameter
        addends: In[Real],  # a, likewise
        zeros: In[Integer],  # z, likewise; 0 where a is added
        nans: In[Integer],  # what NaN is stored as, likewise
        rules: In[I64],  # by Field
        # minimum, maximum, first and last that are stored, lowest and highest of the storage type, lowest and highest
        # sum that only a number of int32 has with any of the zero points
        bounds: In[Integer],
        counts: Out[I64],  # saturated low, saturated high, NaN, first undefined element or -1
    ) -> None:
        prefer_wide_vectors()
        parameters = (elements_of(factors), elements_of(addends), elements_of(zeros))
        overflow = rules[_OVERFLOW]
        choices = (rules[_SOURCE], rules[_ROUNDING], overflow, rules[_NAN_UNDEFINED] != 0, rules[_SEED], rules[_BYTES])
        steps = (rules[_QUOTIENT], rules[_PRECISION], rules[_ADDITION])
        minimum, maximum = splat(bounds[0]), splat(bounds[1])
        first_stored, last_stored = splat(bounds[2]), splat(bounds[3])
        lowest, highest = splat(bounds[4]), splat(bounds[5])
        least_within, most_within = larger(minimum, first_stored), smaller(maximum, last_stored)
        if overflow == _FLOAT_CLAMP:
            most_within = smaller(most_within, splat(integer_class(_INT32_MAXIMUM)))
        # Integers that are not far: they are what they seem to be, and what saturates is all that is to be counted.
        least_near, most_near = splat(integer_class(-far)), splat(integer_class(far))
        if overflow == _UNDEFINED:
            least_near, most_near = larger(least_near, lowest), smaller(most_near, highest)
        elif wide and overflow not in (_SATURATE, _FLOAT_SATURATE):
            # Only what int32 held before z was added is what it seems to be, even where the sum is within the bounds.
            least_near, most_near = larger(least_within, splat(bounds[6])), smaller(most_within, splat(bounds[7]))
        work = (
            elements_of(source), elements_of(target), start, parameters, elements_of(nans), choices, steps,
            ((minimum, maximum, first_stored, last_stored), lowest, highest),
            (least_within, most_within, least_near, most_near),
        )  # fmt: skip
        none = np.int64(0)
        nothing = (most_within, least_within, none, none, none, np.int64(-1))
        convert_spans(work, start, size, numbers, nothing, counts)

    return quantize


QUANTIZE_ANY: dict[tuple[str, bool], Kernel] = {
    ("<f4", False): _quantize_any(np.float32, False),
    ("<f4", True): _quantize_any(np.float32, True),
    ("<f8", True): _quantize_any(np.float64, True),
}
"""The kernel for the dtype that is computed in, and whether stored integers have more than 16 bits."""
