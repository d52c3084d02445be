"""Kernels from integers to integers by multiplier and shift, for tensors of which it is proved that no element fails
what its scheme demands.

    v = q - z_in ;  y = multiply(v, m, s) ;  clamp(y + z_out, minimum, maximum)

All rules (`requant.kernels.convert.requantize.rules`) are one formula. With p = v * m * 2^left, where left = max(31 -
s, 0), and s standing for s + left from here on, so that s is at least 31:

    y = floor((p + first + half - [p < 0] * nudge) / 2^s)

| rule                | first             | half                     | nudge             |
| ------------------- | ----------------- | ------------------------ | ----------------- |
| NEAREST_UP          | 0                 | 2^(s-1)                  | 0                 |
| DOUBLE_UP           | 2^30              | 2^(s-1), 0 where s is 31 | 0                 |
| DOUBLE, TOSA_DOUBLE | 2^30              | 2^(s-1), 0 where s is 31 | 2^31, 0 likewise  |

For SRDHM gives x = floor((p + 2^30) / 2^31), and its saturation is out of reach; RDBPOT by r = s - 31 > 0 bits is
floor((x + 2^(r-1) - [x < 0]) / 2^r), in which the floor of the one division can wait for the other; and [p < 0] is as
good as [x < 0]: where they differ, x is 0, and 2^(r-1) - 1 and 2^(r-1) both have the quotient 0. TOSA's 2^30 with the
sign of v is 2^30 - [v < 0] * 2^31. NEAREST_AWAY is NEAREST_UP of the magnitude, with the sign of v.

So that no number but a product needs 64 bits, everything is doubled: 2p = v * M, M = 2m below 2^32. `half` and `nudge`
are multiples of 2^31, and doubled of 2^32: they are added to the upper 32 bits of the product, in which the rest of the
division is a shift by s - 31 bits. (NEAREST_UP with s = 31 has a half of 2^30, and it is in the place of `first`; where
other parameters of the tensor have a larger s, it is brought to s = 32 instead.) The processor multiplies numbers of 32
bits without a sign. v taken as one is too large by 2^32 where it is negative; the upper half of the product is then too
large by M, modulo 2^32, and M is subtracted with the nudge.

The upper half is right modulo 2^32, and the sum with `half` fits: the plan has proved |p| / 2^31 + half + 1 < 2^31.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from requant.kernels.jit.jit import Array, Number, device, inlined, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import I32, I64, U8, In, Out
from requant.kernels.loops import span_loop
from requant.kernels.simd.fixed_point import upper_product
from requant.kernels.simd.integer_lanes import (
    BLOCK,
    load_block,
    load_int32,
    store_integers,
)
from requant.kernels.simd.memory import elements_of, load, load_one
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import any_lane, clamp, convert, first, select, splat, total, zero_like
from requant.kernels.simd.words import splat_words, store_sums, store_wide_sums, tallied


class Parameter(IntEnum):
    """The rows of the kernel's parameters, each with one number for each parameter of the layout."""

    MULTIPLIER = 0
    """M, in 32 bits without a sign."""
    HALF = 1
    """2 half / 2^32, 0 where `first` stands for it."""
    NEGATIVE = 2
    """M + 2 nudge / 2^32, modulo 2^32; not looked at where ties go away from zero."""
    LEFT = 3
    RIGHT = 4
    """s - 31."""
    ZERO_IN = 5
    ZERO_OUT = 6


class Choice(IntEnum):
    """Where each choice stands in the kernel's `numbers`, behind the layout."""

    SOURCE = 5
    """Storage of the source, of up to 32 bits; not U32."""
    TARGET_BYTES = 6
    AWAY = 7
    """Whether ties go away from zero: NEAREST_AWAY."""
    FIRST = 8
    """2 first, for all parameters."""
    PLAIN = 9
    """Whether all z_in and all left are 0."""
    MINIMUM = 10
    MAXIMUM = 11
    WORDS = 12
    """Whether the target has bytes, and all z_out 14 bits and a sign: sums are then made in 16 bits, and saturate."""


_ROWS = len(Parameter)
_SOURCE, _TARGET_BYTES, _AWAY, _FIRST, _PLAIN, _MINIMUM, _MAXIMUM, _WORDS = (int(each) for each in Choice)


@device
def _loaded(rows: Any, columns: Number, at: Number, plain: bool, mask: Number = None) -> tuple[Number, ...]:
    """The parameters of sixteen elements, by Parameter. With `plain`, those that are 0 are not read."""
    none = splat(np.int32(0))
    return (
        load(rows, at, mask),
        load(rows, columns + at, mask),
        load(rows, 2 * columns + at, mask),
        none if plain else load(rows, 3 * columns + at, mask),
        load(rows, 4 * columns + at, mask),
        none if plain else load(rows, 5 * columns + at, mask),
        load(rows, 6 * columns + at, mask),
    )


@device
def _scaled(stored: Number, parameter: tuple[Number, ...], addend: Number, plain: bool, away: bool) -> Number:
    """y of q."""
    multiplier, half, negative, left, right, zero_in, _ = parameter
    value = stored if plain else (stored - zero_in) << left
    below = value < zero_like(value)
    if away:
        magnitude = (upper_product(select(below, -value, value), multiplier, addend) + half) >> right
        return select(below, -magnitude, magnitude)
    upper = upper_product(value, multiplier, addend) + half
    return select(below, upper - negative, upper) >> right


@device
def _sum(stored: Number, parameter: tuple[Number, ...], addend: Number, plain: bool, away: bool) -> Number:
    """y + z_out of q."""
    return _scaled(stored, parameter, addend, plain, away) + parameter[6]


@inlined
def _convert_rows(
    work: tuple[Number, ...],
    begin: Number,
    rows: Number,
    length: Number,
    parameter: Number,
    cycle: Number,
    check: Number,
    seen: tuple[Number, ...],
) -> tuple[Number, ...]:
    """`seen`: the tally, as in `store_wide_sums`; of words the extremes, and how many saturate low and high."""
    source, target, parameters, columns, numbers, twice_first, away, plain, in_words, bounds, word_bounds = work
    storage, target_bytes = numbers
    minimum, maximum = bounds
    tally, extremes, word_counts = seen
    counting = check > 0
    none, none_word = zero_like(minimum), splat_words(np.int64(0))
    # Where each row of the parameters begins.
    halves, negatives, lefts, rights = columns, 2 * columns, 3 * columns, 4 * columns
    zeros_in, zeros_out = 5 * columns, 6 * columns
    done = begin
    for index in range(parameter, parameter + rows):
        end = done + length
        # Of one parameter, the upper product takes `half` along.
        half = np.int64(0) if cycle else np.int64(parameters[halves + index])
        addend = splat(twice_first + (half << 32))
        left = load_one(parameters, lefts + index)
        zero_in, zero_out = load_one(parameters, zeros_in + index), load_one(parameters, zeros_out + index)
        of_all = (
            load_one(parameters, index),
            none,
            load_one(parameters, negatives + index),
            left,
            load_one(parameters, rights + index),
            zero_in,
            zero_out,
        )
        i = done
        if cycle:
            while i + BLOCK <= end:
                a, b, c, d = load_block(source, i, storage)
                at = index + (i - done)
                a = _sum(a, _loaded(parameters, columns, at, plain), addend, plain, away)
                b = _sum(b, _loaded(parameters, columns, at + LANES, plain), addend, plain, away)
                c = _sum(c, _loaded(parameters, columns, at + 2 * LANES, plain), addend, plain, away)
                d = _sum(d, _loaded(parameters, columns, at + 3 * LANES, plain), addend, plain, away)
                block = (a, b, c, d)
                if in_words:
                    extremes, word_counts = store_sums(
                        target, i, block, none_word, word_bounds, extremes, word_counts, counting
                    )
                else:
                    tally = store_wide_sums(target, i, block, bounds, tally, target_bytes, counting)
                i += BLOCK
        else:
            zero_word = splat_words(np.int64(parameters[zeros_out + index]))
            while i + BLOCK <= end:
                a, b, c, d = load_block(source, i, storage)
                if not plain:
                    a, b = (a - zero_in) << left, (b - zero_in) << left
                    c, d = (c - zero_in) << left, (d - zero_in) << left
                a = _scaled(a, of_all, addend, True, away)
                b = _scaled(b, of_all, addend, True, away)
                c = _scaled(c, of_all, addend, True, away)
                d = _scaled(d, of_all, addend, True, away)
                if in_words:
                    block = (a, b, c, d)
                    extremes, word_counts = store_sums(
                        target, i, block, zero_word, word_bounds, extremes, word_counts, counting
                    )
                else:
                    block = (a + zero_out, b + zero_out, c + zero_out, d + zero_out)
                    tally = store_wide_sums(target, i, block, bounds, tally, target_bytes, counting)
                i += BLOCK
        while i + LANES <= end:
            value = load_int32(source, i, storage)
            one = _loaded(parameters, columns, index + (i - done), plain) if cycle else of_all
            summed = _sum(value, one, addend, plain, away)
            stored = clamp(summed, minimum, maximum)
            tally = tallied(tally, summed, stored, bounds)
            store_integers(target, i, stored, target_bytes)
            i += LANES
        if i < end:
            valid = first(end - i)
            one = _loaded(parameters, columns, index + (i - done), False, valid) if cycle else of_all
            value = load_int32(source, i, storage, valid)
            summed = select(valid, _sum(value, one, addend, False, away), minimum)
            stored = clamp(summed, minimum, maximum)
            tally = tallied(tally, summed, stored, bounds)
            store_integers(target, i, stored, target_bytes, valid)
        done = end
    return tally, extremes, word_counts


@inlined
def _finish(work: tuple[Number, ...], check: Number, seen: tuple[Number, ...], counts: Array) -> Number:
    in_words, word_bounds = work[8], work[10]
    tally, extremes, word_counts = seen
    saturated = any_lane(tally[0] != zero_like(tally[0]))
    if in_words:
        saturated |= any_lane((extremes[0] < word_bounds[0]) | (extremes[1] > word_bounds[1]))
    if saturated and check > 0:
        counts[0] += total(convert(tally[1], np.int64)) + word_counts[0]
        counts[1] += total(convert(tally[2], np.int64)) + word_counts[1]
    return np.int64(saturated)


_convert_spans = span_loop(_convert_rows, _finish)


@kernel()
def requantize_by_multiplier(
    source: In[U8],  # as bytes
    target: Out[U8],  # as bytes
    start: I64,  # index of source[0] in the whole tensor
    size: I64,  # how many elements there are
    numbers: In[I64],  # requant.kernels.loops.unpacked, and by Choice
    parameters: In[I32],  # the rows of Parameter, one after the other
    counts: Out[I64],  # added to: low, high
) -> None:
    """The kernel."""
    prefer_wide_vectors()
    bounds = (splat(np.int32(numbers[_MINIMUM])), splat(np.int32(numbers[_MAXIMUM])))
    word_bounds = (splat_words(numbers[_MINIMUM]), splat_words(numbers[_MAXIMUM]))
    work = (
        elements_of(source), elements_of(target), elements_of(parameters), parameters.size // _ROWS,
        (numbers[_SOURCE], numbers[_TARGET_BYTES]), numbers[_FIRST],
        numbers[_AWAY] != 0, numbers[_PLAIN] != 0, numbers[_WORDS] != 0, bounds, word_bounds,
    )  # fmt: skip
    none = zero_like(bounds[0])
    nothing = ((none, none, none), (word_bounds[1], word_bounds[0]), (np.int64(0), np.int64(0)))
    _convert_spans(work, start, size, numbers, nothing, counts)
