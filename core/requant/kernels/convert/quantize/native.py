"""Kernels from floats to integers, for the rules that most tensors are quantized by: the forms of two formulas.

    v = x / s  or  fma(x, r, fma(x, c, a))       one rounding to f32 each
    t = RNE(v) + z  or  RNE(v + z)  or  RNA(v) + z

Reciprocals. x / s is the same as fma(x, r, x * c), r = RN(1 / s), c = RN(1 / s - r), for all but a few x, and
`requant.kernels.scalar.reciprocal` proves for a scale that none of these matters. A product with the reciprocal alone,
as some systems have it, is the case c = 0; with the zero point added in the same rounding, a = z.

Subnormal x are taken for zero when the scales are such that both give the same: |x / s| far below 1/2.

Systems differ in what becomes of an integer outside of the bounds and of NaN, not in the others. So a span of the
tensor is converted without looking at each element's bounds: the loop keeps the lowest and the highest t, of words the
furthest from the minimum, where one below it counts as the furthest. If these are within the bounds, that is all. If
they are not, the span is converted again with more checks (`_CHECK_NONE` and the others below). The last are right for
everything that rules which saturate whatever is too large can meet; for others the kernel stops before that and says
how far it came, and `requant.kernels.convert.quantize.general` knows the rest.

To bytes, elements go as words of 16 bits on the way out (`requant.kernels.simd.words`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, device, inlined, kernel
from requant.kernels.jit.processor import begin_flushing, end_flushing, prefer_wide_vectors
from requant.kernels.jit.signature import F32, I8, I16, I32, I64, U16, In, Integer, Out
from requant.kernels.loops import STOP, span_loop
from requant.kernels.simd.integer_lanes import BLOCK
from requant.kernels.simd.memory import elements_of, load, load_one, new_tally, prefetch, store
from requant.kernels.simd.rounding import nearest_integers
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import (
    any_lane,
    clamp,
    convert,
    first,
    half_away,
    larger,
    magnitude,
    multiply_add,
    select,
    smaller,
    splat,
    total,
    zero_like,
)
from requant.kernels.simd.widen import widened
from requant.kernels.simd.words import (
    WORDS,
    add_saturating,
    count_words,
    larger_unsigned,
    larger_words,
    smaller_words,
    splat_words,
    store_bytes,
    store_bytes_of_two,
    store_low_bytes_of_two,
    words_of,
)

_INFINITY = np.float32(np.inf)
# Beyond all bounds of bytes, whatever their zero point, and beyond WORDS_HOLD.
_BEYOND_BYTES = np.float32(20000.0)

WORDS_HOLD = 1 << 14
"""Words are what the integers are as long as they are this small; all zero points of bytes are far below."""

WINDOW = {8: 1 << 21, 16: 1 << 21, 32: 1 << 50}
"""By the bits of the target: integers of at least this magnitude are outside of the window."""


class Form(NamedTuple):
    """Which of the formulas above. `source` is f32, f16 or bf16; `bits` those of the target's elements.

    `exact`: whether all c are 0, so that v is one product, fma(x, r, a).
    """

    multiplied: bool
    before: bool
    away: bool = False
    source: str = "f32"
    bits: int = 8
    exact: bool = False


class Quotient(IntEnum):
    """How v is had: a form's first and last choice as one number."""

    DIVISION = 0
    CORRECTED = 1
    PRODUCT = 2


class Field(IntEnum):
    """Where each number stands in the kernels' `numbers`, after those of `requant.kernels.loops.unpacked`."""

    PARAMETERS = 5
    """How many there are."""
    FLUSHING = 6
    """Whether subnormals may be taken for zero."""
    SATURATING = 7
    """Whether all that is too large saturates, and NaN is stored."""
    WORDS_SUFFICE = 8
    """Whether it also stores NaN within the bounds, so that words can hold whatever there is."""
    MINIMUM = 9
    MAXIMUM = 10
    LOWEST = 11
    """Of the window."""
    HIGHEST = 12


_DIVISION, _CORRECTED, _PRODUCT = map(int, Quotient)


def _quotient_of(form: Form) -> Quotient:
    if not form.multiplied:
        return Quotient.DIVISION
    return Quotient.PRODUCT if form.exact else Quotient.CORRECTED


@device
def quotient(x: Number, parameter: tuple[Number, ...], how: int, before: bool, away: bool) -> Number:
    """v, or v + z: what is rounded to the nearest integer. A parameter is s or r, c, a and z; all are vectors."""
    factor, correction, addend, zero = parameter
    if how == _DIVISION:
        value = x / factor
    else:
        value = multiply_add(x, factor, addend if how == _PRODUCT else multiply_add(x, correction, addend))
    if before:
        value = value + convert(zero, np.float32)
    return half_away(value) if away else value


@device
def nearest(source: Array, i: Number, parameter: tuple[Number, ...], how: int, before: bool, away: bool) -> Number:
    """t of sixteen elements, z not yet added if it is added to integers."""
    return nearest_integers(quotient(widened(load(source, i)), parameter, how, before, away))


@device
def two_nearest(source: Array, i: Number, parameter: tuple[Number, ...], how: int, before: bool, away: bool) -> Number:
    """The same of thirty-two, as words."""
    return words_of(
        nearest(source, i, parameter, how, before, away),
        nearest(source, i + LANES, parameter, how, before, away),
    )


@device
def finished(value: Number, x: Number, factor: Number, how: int) -> Number:
    """v where it is infinite too: an infinity times a correction of 0 would be NaN."""
    if how != _CORRECTED:
        return value
    product = x * factor
    return select(magnitude(product) < splat(_INFINITY), value, product)


@device
def any_nearest(
    source: Array, i: Number, parameter: tuple[Number, ...], nan: Number, how: int, before: bool, away: bool
) -> tuple[Number, Number]:
    """`nearest` of whatever there is, as far as bytes that saturate tell, NaN as `nan`; and -1 where it is NaN."""
    x = widened(load(source, i))
    value = finished(quotient(x, parameter, how, before, away), x, parameter[0], how)
    number = value == value
    limit = splat(_BEYOND_BYTES)
    integers = select(number, nearest_integers(smaller(larger(value, -limit), limit)), nan)
    return integers, convert(~number, np.int32)


@device
def two_of_any(
    source: Array, i: Number, parameter: tuple[Number, ...], nan: Number, how: int, before: bool, away: bool
) -> tuple[Number, Number]:
    """The same of thirty-two, as words; and less than 0 by how many are NaN, for each lane."""
    low, low_missing = any_nearest(source, i, parameter, nan, how, before, away)
    high, high_missing = any_nearest(source, i + LANES, parameter, nan, how, before, away)
    return words_of(low, high), low_missing + high_missing


@device
def with_zero(integers: Number, zero: Number, before: bool) -> Number:
    """t of what was rounded."""
    return integers if before else integers + zero


Source = TypeVar("Source", F32, I16, U16)
Target = TypeVar("Target", I8, I16, I32)

# How far ahead the source is asked for, and how much of it comes at once.
_AHEAD_BYTES = 4096
_LINE_BYTES = 64

# What a span is checked for: nothing; saturation, which is counted; also integers that words do not hold; also those
# outside of the window, and NaN.
_CHECK_NONE, _CHECK_SATURATION, _CHECK_WIDE, _CHECK_WINDOW = range(4)

_PARAMETERS, _FLUSHING, _SATURATING, _WORDS_SUFFICE, _MINIMUM, _MAXIMUM, _LOWEST, _HIGHEST = (
    int(each) for each in Field
)
_SOURCES = {"f32": types.float32, "f16": types.int16, "bf16": types.uint16}
_TARGETS: dict[int, types.Type] = {8: types.int8, 16: types.int16, 32: types.int32}


def _quantize(form: Form) -> Kernel:
    how = int(_quotient_of(form))
    before, away = form.before, form.away
    # Integers of 32 bits, and what they are rounded from, need 64.
    wide = form.bits == 32
    in_words = form.bits == 8
    settled = np.float64 if wide else np.float32
    integer = types.int64 if wide else types.int32
    integer_class = np.int64 if wide else np.int32
    furthest = 2 * WINDOW[form.bits] - 1
    size = 4 if form.source == "f32" else 2
    ahead, line = _AHEAD_BYTES // size, _LINE_BYTES // size

    @device
    def blocks_within(
        source: Array,
        target: Array,
        begin: Number,
        end: Number,
        numbers: tuple[Number, ...],
        offset: Number,
        lowest_byte: Number,
        furthest_word: Number,
    ) -> Number:
        """Convert whole blocks as if every t were within the bounds. `offset`: z less the minimum, as words."""
        for i in range(begin, end, BLOCK):
            for near in range(0, BLOCK, line):
                prefetch(source, i + ahead + near)
            a = add_saturating(two_nearest(source, i, numbers, how, before, away), offset)
            b = add_saturating(two_nearest(source, i + WORDS, numbers, how, before, away), offset)
            furthest_word = larger_unsigned(furthest_word, larger_unsigned(a, b))
            store_bytes_of_two(target, i, a, b, lowest_byte)
        return furthest_word

    @device
    def blocks_beyond(
        source: Array,
        target: Array,
        begin: Number,
        end: Number,
        numbers: tuple[Number, ...],
        zero_word: Number,
        nan: Number,
        bounds: tuple[Number, Number],
        extremes: tuple[Number, Number],
        tally: tuple[Number, Number, Number],
        any_number: bool,
    ) -> tuple[tuple[Number, Number], tuple[Number, Number, Number]]:
        """The same, saturating. `any_number`: of whatever there is, NaN too."""
        low, high, missing = tally
        for i in range(begin, end, BLOCK):
            for near in range(0, BLOCK, line):
                prefetch(source, i + ahead + near)
            if any_number:
                a, in_a = two_of_any(source, i, numbers, nan, how, before, away)
                b, in_b = two_of_any(source, i + WORDS, numbers, nan, how, before, away)
                missing = missing - (in_a + in_b)
            else:
                a = two_nearest(source, i, numbers, how, before, away)
                b = two_nearest(source, i + WORDS, numbers, how, before, away)
            a, b = add_saturating(a, zero_word), add_saturating(b, zero_word)
            extremes = (
                smaller_words(extremes[0], smaller_words(a, b)), larger_words(extremes[1], larger_words(a, b)),
            )  # fmt: skip
            low = count_words(count_words(low, a < bounds[0]), b < bounds[0])
            high = count_words(count_words(high, a > bounds[1]), b > bounds[1])
            a = smaller_words(larger_words(a, bounds[0]), bounds[1])
            b = smaller_words(larger_words(b, bounds[0]), bounds[1])
            store_low_bytes_of_two(target, i, a, b)
        return extremes, (low, high, missing)

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
        """`seen`: the lowest and the highest t, as integers and as words; of words that are converted as if within the
        bounds, the furthest from the minimum; and for each lane how many saturate low and high and are NaN, of integers
        and of words."""
        source, target, factors, zeros, parameters, words_suffice, bounds, word_bounds, _ = work
        limit = splat(settled(furthest))
        minimum, maximum = bounds
        extremes, word_extremes, furthest_word, tally, word_tally = seen
        least, most = extremes
        low, high, missing = tally
        lowest_byte = convert(minimum, np.int8)
        done = begin
        in_one_loop = in_words and rows > 1 and length & (WORDS - 1) == 0 and check == _CHECK_NONE
        if in_one_loop:
            # Short rows in one loop: a loop for each would cost more than what is in it.
            index, left = parameter, length
            for i in range(begin, begin + rows * length, WORDS):
                for near in range(0, WORDS, line):
                    prefetch(source, i + ahead + near)
                zero = load_one(zeros, index)
                numbers = (
                    load_one(factors, index),
                    load_one(factors, parameters + index),
                    load_one(factors, 2 * parameters + index),
                    zero,
                )
                offset = zero_like(minimum) - minimum if before else zero - minimum
                a = add_saturating(two_nearest(source, i, numbers, how, before, away), words_of(offset, offset))
                furthest_word = larger_unsigned(furthest_word, a)
                store_bytes(target, i, a, lowest_byte)
                left -= WORDS
                if left == 0:
                    index, left = index + 1, length
            rows = 0
        for index in range(parameter, parameter + rows):
            end = done + length
            factor = load_one(factors, index)
            correction = load_one(factors, parameters + index)
            addend = load_one(factors, 2 * parameters + index)
            zero = load_one(zeros, index)
            numbers = (factor, correction, addend, zero)
            if in_words and (check <= _CHECK_SATURATION or words_suffice) and not cycle:
                blocks_end = done + ((end - done) & -BLOCK)
                nan = load_one(zeros, parameters + index)
                none = zero_like(minimum)
                if before:
                    zero = none
                else:
                    nan = nan - zero
                if check == _CHECK_NONE:
                    offset = zero - minimum
                    furthest_word = blocks_within(
                        source, target, done, blocks_end, numbers, words_of(offset, offset), lowest_byte, furthest_word
                    )
                elif check == _CHECK_WINDOW:
                    word_extremes, word_tally = blocks_beyond(
                        source, target, done, blocks_end, numbers, words_of(zero, zero), nan, word_bounds,
                        word_extremes, word_tally, True,
                    )  # fmt: skip
                else:
                    word_extremes, word_tally = blocks_beyond(
                        source, target, done, blocks_end, numbers, words_of(zero, zero), nan, word_bounds,
                        word_extremes, word_tally, False,
                    )  # fmt: skip
                done = blocks_end
                zero = load_one(zeros, index)
            fast = done + ((end - done) & -LANES) if check == _CHECK_NONE else done
            for i in range(done, fast, LANES):
                prefetch(source, i + ahead)
                if cycle:
                    at = index + (i - done)
                    zero = load(zeros, at)
                    numbers = (load(factors, at), correction, addend, zero)
                value = quotient(widened(load(source, i)), numbers, how, before, away)
                integers = with_zero(nearest_integers(convert(value, settled)), zero, before)
                least = smaller(least, integers)
                most = larger(most, integers)
                store(target, i, integers)
            for i in range(fast, end, LANES):
                valid = first(end - i)
                nan = load_one(zeros, parameters + index)
                if cycle:
                    at = index + (i - done)
                    zero = load(zeros, at, valid)
                    nan = load(zeros, parameters + at, valid)
                    factor = load(factors, at, valid)
                    numbers = (factor, correction, addend, zero)
                x = widened(load(source, i, valid))
                value = quotient(x, numbers, how, before, away)
                if check == _CHECK_WINDOW:
                    value = finished(value, x, factor, how)
                value = convert(value, settled)
                number = value == value
                if check == _CHECK_WINDOW:
                    value = select(number, clamp(value, -limit, limit), zero_like(value))
                integers = with_zero(nearest_integers(value), zero, before)
                # What is not there, and with checks of the window also NaN, is no integer to look at.
                looked_at = valid & number if check == _CHECK_WINDOW else valid
                integers = select(looked_at, integers, minimum)
                least = smaller(least, integers)
                most = larger(most, integers)
                low = low - convert(integers < minimum, integer_class)
                high = high - convert(integers > maximum, integer_class)
                stored = clamp(integers, minimum, maximum)
                if check == _CHECK_WINDOW:
                    missing = missing - convert(valid & ~number, integer_class)
                    stored = select(number, stored, nan)
                if end - i >= LANES:
                    store(target, i, stored)
                else:
                    store(target, i, stored, valid)
            done = end
        return (least, most), word_extremes, furthest_word, (low, high, missing), word_tally

    @inlined
    def finish(work: tuple[Number, ...], check: Number, seen: tuple[Number, ...], counts: Array) -> Number:
        minimum, maximum = work[6]
        minimum_word, maximum_word = work[7]
        lowest, highest, lowest_small, highest_small, lowest_word, highest_word, range_word, saturating = work[8]
        extremes, word_extremes, furthest_word, tally, word_tally = seen
        least, most = extremes
        least_word, most_word = word_extremes
        missing = total(tally[2]) + total(word_tally[2])
        needed = _CHECK_NONE
        if (
            any_lane((least < minimum) | (most > maximum))
            or any_lane((least_word < minimum_word) | (most_word > maximum_word))
            or any_lane(larger_unsigned(furthest_word, range_word) != range_word)
        ):
            needed = _CHECK_SATURATION
        if in_words and (
            any_lane((least < lowest_small) | (most > highest_small))
            or any_lane((least_word < lowest_word) | (most_word > highest_word))
        ):
            needed = _CHECK_WINDOW if saturating else _CHECK_WIDE
        if any_lane((least < lowest) | (most > highest)) or missing > 0:
            needed = _CHECK_WINDOW if saturating else STOP
        if needed <= check:
            counts[0] += total(tally[0]) + total(word_tally[0])
            counts[1] += total(tally[1]) + total(word_tally[1])
            counts[2] += missing
        return needed

    convert_spans = span_loop(convert_rows, finish)

    @kernel({Source: _SOURCES[form.source], Target: _TARGETS[form.bits], Integer: integer})
    def quantize(
        source: In[Source],
        target: Out[Target],  # signed or not
        start: I64,  # index of source[0] in the whole tensor
        numbers: In[I64],  # by Field
        factors: In[F32],  # s or r of each parameter; then c, 0 in a cycle; then a, 0 in a cycle
        zeros: In[Integer],  # z of each parameter, 0 where a is it; then what NaN is stored as
    ) -> tuple[I64, I64, I64, I64]:
        """Return how many elements were converted, and of these how many saturated low and high and are NaN."""
        prefer_wide_vectors()
        counts = new_tally()
        minimum, maximum = splat(integer(numbers[_MINIMUM])), splat(integer(numbers[_MAXIMUM]))
        lowest, highest = splat(integer(numbers[_LOWEST])), splat(integer(numbers[_HIGHEST]))
        # The same bounds as words, and those within which words hold what there is.
        word_bounds = (splat_words(numbers[_MINIMUM]), splat_words(numbers[_MAXIMUM]))
        small_least = max(numbers[_LOWEST], -WORDS_HOLD)
        small_most = min(numbers[_HIGHEST], WORDS_HOLD)
        windows = (
            lowest, highest, splat(integer(small_least)), splat(integer(small_most)), splat_words(small_least),
            splat_words(small_most), splat_words(numbers[_MAXIMUM] - numbers[_MINIMUM]), numbers[_SATURATING] != 0,
        )  # fmt: skip
        work = (
            elements_of(source), elements_of(target), elements_of(factors), elements_of(zeros), numbers[_PARAMETERS],
            numbers[_WORDS_SUFFICE] != 0, (minimum, maximum), word_bounds, windows,
        )  # fmt: skip
        none, no_words, none_missing = zero_like(minimum), splat_words(np.int64(0)), splat(np.int32(0))
        nothing = (
            (maximum, minimum), (word_bounds[1], word_bounds[0]), no_words, (none, none, none),
            (no_words, no_words, none_missing),
        )  # fmt: skip
        mode = begin_flushing(numbers[_FLUSHING] != 0)
        done = convert_spans(
            work, start, source.size, numbers, nothing, counts, (source.ctypes.data % _LINE_BYTES) // size
        )
        end_flushing(mode)
        return done, counts[0], counts[1], counts[2]

    return quantize


_BITS = (8, 16, 32)
# Of f32 to bytes; kernels are compiled in this order where none is asked for.
_COMMON_FORMS = (
    Form(True, True),
    # What most tensors have whose quotient is a product.
    Form(True, False, exact=True),
    Form(True, False, away=True),
    Form(True, False),
)
_OTHER_FORMS = (
    *(Form(False, before, bits=bits) for before in (False, True) for bits in _BITS),
    # No profile adds the zero point after it rounded a product to i32.
    *(Form(True, before, bits=bits) for before in (False, True) for bits in _BITS if before or bits < 32),
    *(Form(False, False, away=True, bits=bits) for bits in _BITS),
    *(Form(True, False, away=True, bits=bits) for bits in (8, 16)),
    *(Form(multiplied, False, source=source) for multiplied in (False, True) for source in ("f16", "bf16")),
)
FORMS = tuple(dict.fromkeys((*_COMMON_FORMS, *_OTHER_FORMS)))
QUANTIZE: dict[Form, Kernel] = {form: _quantize(form) for form in FORMS}
"""The kernels there are."""
