"""Kernels from integers to integers by a real factor, for tensors of which it is proved that no element fails what its
scheme demands. Formulas: spec/numerics.md H.3.

    v = q - z_in ;  y = round(f(v) * factor + offset) ;  clamp(y + z_out, minimum, maximum)

f is f32 or f64, each operation is rounded once, and v fits int32. The offset is 0 in the rules without one
(`core.kernels.convert.requantize.rules`): its addition is exact.

y + z_out is added up in f too, or in words (`core.kernels.simd.saturation`). In f it is exact where it matters: z_out
is at most 2^22 in f32, with bounds of at most 16 bits, and at most 2^31 in f64, so that whatever is not exact is far
outside of the bounds, and on the right side.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import types

from core.kernels.jit.jit import Array, Kernel, Number, kernel, readable, writable
from core.kernels.jit.processor import prefer_wide_vectors
from core.kernels.loop.layout import advance, left_in_row, locate, unpacked
from core.kernels.simd.integer_lanes import (
    BLOCK,
    load_block,
    load_int32,
    load_integers,
    store_block,
    store_int32,
    store_integers,
)
from core.kernels.simd.memory import load, load_first
from core.kernels.simd.saturation import clamped, store_sums
from core.kernels.simd.vector import LANES
from core.kernels.simd.vectors import (
    convert,
    first,
    half_away,
    half_even,
    larger,
    select,
    smaller,
    some,
    splat,
    total,
)
from core.kernels.simd.words import splat_words

# Long enough that looking at the extremes does not count, short enough to be in the cache when it is counted.
_SPAN = 4096


class Parameter(IntEnum):
    """The rows of the kernels' parameters, each with one number for each parameter of the layout."""

    FACTOR = 0
    OFFSET = 1
    ZERO_IN = 2
    ZERO_OUT = 3


class Choice(IntEnum):
    """Where each choice stands in the kernels' `numbers`, behind the layout."""

    SOURCE_BYTES = 5
    """Those of an element of the source: 1, 2 or 4, which is signed."""
    SOURCE_SIGNED = 6
    TARGET_BYTES = 7
    AWAY = 8
    """Whether ties go away from zero, not to even."""
    MINIMUM = 9
    MAXIMUM = 10
    WORDS = 11
    """Whether the target has bytes, and all z_out 14 bits and a sign: sums are then made in 16 bits, and saturate."""


_ROWS = len(Parameter)
_SOURCE_BYTES, _SIGNED, _TARGET_BYTES, _AWAY, _MINIMUM, _MAXIMUM, _WORDS = map(int, Choice)


def _requantize(wide: bool) -> Kernel:
    number = types.float64 if wide else types.float32
    number_class = np.float64 if wide else np.float32

    @kernel(
        (
            readable(types.uint8),  # source, as bytes
            writable(types.uint8),  # target, as bytes
            types.int64,  # start: index of source[0] in the whole tensor
            types.int64,  # how many elements there are
            readable(types.int64),  # core.kernels.loop.layout.unpacked, and by Choice
            readable(number),  # the rows of Parameter, one after the other
            writable(types.int64),  # counts, added to: low, high
        )
    )
    def requantize(
        source: Array,
        target: Array,
        start: Number,
        size: Number,
        numbers: Array,
        parameters: Array,
        counts: Array,
    ) -> None:
        prefer_wide_vectors()
        source_bytes, signed, target_bytes = numbers[_SOURCE_BYTES], numbers[_SIGNED] != 0, numbers[_TARGET_BYTES]
        away = numbers[_AWAY] != 0
        minimum, maximum = splat(number_class(numbers[_MINIMUM])), splat(number_class(numbers[_MAXIMUM]))
        in_words = numbers[_WORDS] != 0
        word_bounds = (splat_words(numbers[_MINIMUM]), splat_words(numbers[_MAXIMUM]))
        # What words hold.
        furthest = splat(number_class(32767))
        none = splat(np.int32(0))
        # Where each row of the parameters begins.
        columns = parameters.size // _ROWS
        offsets, zeros_in, zeros_out = columns, 2 * columns, 3 * columns
        layout = unpacked(numbers)
        cycle = layout[4] != 0
        place = locate(start, layout)
        # What one span needs the next one mostly needs too.
        counting = False
        span = 0
        while span < size:
            span_end = min(span + _SPAN, size)
            span_place = place
            least, most = maximum, minimum
            low, high = none, none
            extremes = (word_bounds[1], word_bounds[0])
            word_counts = (np.int64(0), np.int64(0))
            done = span
            while done < span_end:
                end = done + min(left_in_row(place, layout), span_end - done)
                parameter = place[0] + place[1]
                place = advance(end - done, place, layout)
                factor = splat(parameters[parameter])
                offset = splat(parameters[offsets + parameter])
                zero_in = splat(np.int32(parameters[zeros_in + parameter]))
                zero_out = splat(parameters[zeros_out + parameter])
                zero_word = splat_words(np.int64(parameters[zeros_out + parameter]))
                i = done
                if cycle:
                    while i + LANES <= end:
                        at = parameter + (i - done)
                        value = load_int32(source, i, source_bytes, signed) - convert(
                            load(parameters, zeros_in + at), np.int32
                        )
                        real = convert(value, number_class) * load(parameters, at) + load(parameters, offsets + at)
                        summed = load(parameters, zeros_out + at) + (half_away(real) if away else half_even(real))
                        least, most = smaller(summed, least), larger(summed, most)
                        if counting:
                            low = low - convert(summed < minimum, np.int32)
                            high = high - convert(summed > maximum, np.int32)
                        stored = convert(clamped(summed, minimum, maximum), np.int32)
                        store_int32(target, i, stored, target_bytes)
                        i += LANES
                else:
                    while i + BLOCK <= end:
                        e, f, g, h = load_block(source, i, source_bytes, signed)
                        a = convert(e - zero_in, number_class) * factor + offset
                        b = convert(f - zero_in, number_class) * factor + offset
                        c = convert(g - zero_in, number_class) * factor + offset
                        d = convert(h - zero_in, number_class) * factor + offset
                        if away:
                            a, b, c, d = half_away(a), half_away(b), half_away(c), half_away(d)
                        else:
                            a, b, c, d = half_even(a), half_even(b), half_even(c), half_even(d)
                        if in_words:
                            e = convert(clamped(a, -furthest, furthest), np.int32)
                            f = convert(clamped(b, -furthest, furthest), np.int32)
                            g = convert(clamped(c, -furthest, furthest), np.int32)
                            h = convert(clamped(d, -furthest, furthest), np.int32)
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
                            e = convert(clamped(a, minimum, maximum), np.int32)
                            f = convert(clamped(b, minimum, maximum), np.int32)
                            g = convert(clamped(c, minimum, maximum), np.int32)
                            h = convert(clamped(d, minimum, maximum), np.int32)
                            store_block(target, i, e, f, g, h, target_bytes)
                        i += BLOCK
                while i < end:
                    valid = first(end - i)
                    if cycle:
                        at = parameter + (i - done)
                        factor = load_first(parameters, at, valid)
                        offset = load_first(parameters, offsets + at, valid)
                        zero_in = convert(load_first(parameters, zeros_in + at, valid), np.int32)
                        zero_out = load_first(parameters, zeros_out + at, valid)
                    value = convert(load_integers(source, i, valid, source_bytes, signed), np.int32) - zero_in
                    real = convert(value, number_class) * factor + offset
                    summed = (half_away(real) if away else half_even(real)) + zero_out
                    summed = select(valid, summed, minimum)
                    least, most = smaller(summed, least), larger(summed, most)
                    low = low - convert(summed < minimum, np.int32)
                    high = high - convert(summed > maximum, np.int32)
                    stored = convert(clamped(summed, minimum, maximum), np.int32)
                    store_integers(target, i, stored, valid, target_bytes)
                    i += LANES
                done = end
            saturated = some((least < minimum) | (most > maximum))
            if in_words:
                saturated |= some((extremes[0] < word_bounds[0]) | (extremes[1] > word_bounds[1]))
            if saturated and not counting:
                # Once more, and counting.
                counting = True
                place = span_place
                continue
            if saturated:
                counts[0] += total(convert(low, np.int64)) + word_counts[0]
                counts[1] += total(convert(high, np.int64)) + word_counts[1]
            counting = saturated
            span = span_end

    return requantize


REQUANTIZE_F32 = _requantize(wide=False)
"""The kernel of the rules in f32."""

REQUANTIZE_F64 = _requantize(wide=True)
"""The kernel of the rules in f64."""
