"""Kernels from integers to integers by a real factor, for tensors of which it is proved that no element fails what its
scheme demands.

    v = q - z_in ;  y = round(f(v) * factor + offset) ;  clamp(y + z_out, minimum, maximum)

f is f32 or f64, each operation is rounded once, and v fits int32. The offset is 0 in the rules without one
(`requant.kernels.convert.requantize.rules`): its addition is exact.

y + z_out is added up in f too, or in words (`requant.kernels.simd.words`). In f it is exact where it matters:
z_out is at most 2^22 in f32, with bounds of at most 16 bits, and at most 2^31 in f64, so that whatever is not exact is
far outside of the bounds, and on the right side.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from requant.kernels.jit.jit import Array, Kernel, Number, inlined, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import I64, U8, In, Out, Real
from requant.kernels.loops import span_loop
from requant.kernels.simd.integer_lanes import (
    BLOCK,
    load_block,
    load_int32,
    store_block,
    store_integers,
)
from requant.kernels.simd.memory import elements_of, load, load_one
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import (
    any_lane,
    clamp,
    convert,
    first,
    half_away,
    half_even,
    larger,
    select,
    smaller,
    splat,
    total,
)
from requant.kernels.simd.words import splat_words, store_sums


class Parameter(IntEnum):
    """The rows of the kernels' parameters, each with one number for each parameter of the layout."""

    FACTOR = 0
    OFFSET = 1
    ZERO_IN = 2
    ZERO_OUT = 3


class Choice(IntEnum):
    """Where each choice stands in the kernels' `numbers`, behind the layout."""

    SOURCE = 5
    """Storage of the source, of up to 32 bits; not U32."""
    TARGET_BYTES = 6
    AWAY = 7
    """Whether ties go away from zero, not to even."""
    MINIMUM = 8
    MAXIMUM = 9
    WORDS = 10
    """Whether the target has bytes, and all z_out 14 bits and a sign: sums are then made in 16 bits, and saturate."""


_ROWS = len(Parameter)
_SOURCE, _TARGET_BYTES, _AWAY, _MINIMUM, _MAXIMUM, _WORDS = map(int, Choice)


def _requantize(wide: bool) -> Kernel:
    number = types.float64 if wide else types.float32
    number_class = np.float64 if wide else np.float32

    @inlined
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
        """`seen`: the lowest and the highest sum, and how many are low and high in each lane; the same of words."""
        source, target, parameters, columns, numbers, away, in_words, bounds, word_bounds = work
        storage, target_bytes = numbers
        minimum, maximum = bounds
        sums, extremes, word_counts = seen
        least, most, low, high = sums
        counting = check > 0
        # What words hold.
        furthest = splat(number_class(32767))
        # Where each row of the parameters begins.
        offsets, zeros_in, zeros_out = columns, 2 * columns, 3 * columns
        done = begin
        for index in range(parameter, parameter + rows):
            end = done + length
            factor = load_one(parameters, index)
            offset = load_one(parameters, offsets + index)
            zero_in = convert(load_one(parameters, zeros_in + index), np.int32)
            zero_out = load_one(parameters, zeros_out + index)
            zero_word = splat_words(np.int64(parameters[zeros_out + index]))
            i = done
            if cycle:
                while i + LANES <= end:
                    at = index + (i - done)
                    value = load_int32(source, i, storage) - convert(load(parameters, zeros_in + at), np.int32)
                    real = convert(value, number_class) * load(parameters, at) + load(parameters, offsets + at)
                    summed = load(parameters, zeros_out + at) + (half_away(real) if away else half_even(real))
                    least, most = smaller(summed, least), larger(summed, most)
                    if counting:
                        low = low - convert(summed < minimum, np.int32)
                        high = high - convert(summed > maximum, np.int32)
                    stored = convert(clamp(summed, minimum, maximum), np.int32)
                    store_integers(target, i, stored, target_bytes)
                    i += LANES
            else:
                while i + BLOCK <= end:
                    e, f, g, h = load_block(source, i, storage)
                    a = convert(e - zero_in, number_class) * factor + offset
                    b = convert(f - zero_in, number_class) * factor + offset
                    c = convert(g - zero_in, number_class) * factor + offset
                    d = convert(h - zero_in, number_class) * factor + offset
                    if away:
                        a, b, c, d = half_away(a), half_away(b), half_away(c), half_away(d)
                    else:
                        a, b, c, d = half_even(a), half_even(b), half_even(c), half_even(d)
                    if in_words:
                        e = convert(clamp(a, -furthest, furthest), np.int32)
                        f = convert(clamp(b, -furthest, furthest), np.int32)
                        g = convert(clamp(c, -furthest, furthest), np.int32)
                        h = convert(clamp(d, -furthest, furthest), np.int32)
                        block = (e, f, g, h)
                        extremes, word_counts = store_sums(
                            target, i, block, zero_word, word_bounds, extremes, word_counts, counting
                        )
                    else:
                        a, b, c, d = a + zero_out, b + zero_out, c + zero_out, d + zero_out
                        least = smaller(a, smaller(b, smaller(c, smaller(d, least))))
                        most = larger(a, larger(b, larger(c, larger(d, most))))
                        if counting:
                            low = low - convert(a < minimum, np.int32) - convert(b < minimum, np.int32)
                            low = low - convert(c < minimum, np.int32) - convert(d < minimum, np.int32)
                            high = high - convert(a > maximum, np.int32) - convert(b > maximum, np.int32)
                            high = high - convert(c > maximum, np.int32) - convert(d > maximum, np.int32)
                        e = convert(clamp(a, minimum, maximum), np.int32)
                        f = convert(clamp(b, minimum, maximum), np.int32)
                        g = convert(clamp(c, minimum, maximum), np.int32)
                        h = convert(clamp(d, minimum, maximum), np.int32)
                        store_block(target, i, e, f, g, h, target_bytes)
                    i += BLOCK
            while i < end:
                valid = first(end - i)
                if cycle:
                    at = index + (i - done)
                    factor = load(parameters, at, valid)
                    offset = load(parameters, offsets + at, valid)
                    zero_in = convert(load(parameters, zeros_in + at, valid), np.int32)
                    zero_out = load(parameters, zeros_out + at, valid)
                value = load_int32(source, i, storage, valid) - zero_in
                real = convert(value, number_class) * factor + offset
                summed = (half_away(real) if away else half_even(real)) + zero_out
                summed = select(valid, summed, minimum)
                least, most = smaller(summed, least), larger(summed, most)
                low = low - convert(summed < minimum, np.int32)
                high = high - convert(summed > maximum, np.int32)
                stored = convert(clamp(summed, minimum, maximum), np.int32)
                store_integers(target, i, stored, target_bytes, valid)
                i += LANES
            done = end
        return (least, most, low, high), extremes, word_counts

    @inlined
    def finish(work: tuple[Number, ...], check: Number, seen: tuple[Number, ...], counts: Array) -> Number:
        in_words, bounds, word_bounds = work[6], work[7], work[8]
        sums, extremes, word_counts = seen
        saturated = any_lane((sums[0] < bounds[0]) | (sums[1] > bounds[1]))
        if in_words:
            saturated |= any_lane((extremes[0] < word_bounds[0]) | (extremes[1] > word_bounds[1]))
        if saturated and check > 0:
            counts[0] += total(convert(sums[2], np.int64)) + word_counts[0]
            counts[1] += total(convert(sums[3], np.int64)) + word_counts[1]
        return np.int64(saturated)

    convert_spans = span_loop(convert_rows, finish)

    @kernel({Real: number})
    def requantize(
        source: In[U8],  # as bytes
        target: Out[U8],  # as bytes
        start: I64,  # index of source[0] in the whole tensor
        size: I64,  # how many elements there are
        numbers: In[I64],  # requant.kernels.loops.unpacked, and by Choice
        parameters: In[Real],  # the rows of Parameter, one after the other
        counts: Out[I64],  # added to: low, high
    ) -> None:
        prefer_wide_vectors()
        minimum, maximum = splat(number_class(numbers[_MINIMUM])), splat(number_class(numbers[_MAXIMUM]))
        word_bounds = (splat_words(numbers[_MINIMUM]), splat_words(numbers[_MAXIMUM]))
        work = (
            elements_of(source), elements_of(target), elements_of(parameters), parameters.size // _ROWS,
            (numbers[_SOURCE], numbers[_TARGET_BYTES]), numbers[_AWAY] != 0,
            numbers[_WORDS] != 0, (minimum, maximum), word_bounds,
        )  # fmt: skip
        none = splat(np.int32(0))
        nothing = (
            (maximum, minimum, none, none), (word_bounds[1], word_bounds[0]), (np.int64(0), np.int64(0)),
        )  # fmt: skip
        convert_spans(work, start, size, numbers, nothing, counts)

    return requantize


REQUANTIZE_F32 = _requantize(wide=False)
"""The kernel of the rules in f32."""

REQUANTIZE_F64 = _requantize(wide=True)
"""The kernel of the rules in f64."""
