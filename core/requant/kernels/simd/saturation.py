"""Sums on their way into bytes, and what is known of those that saturate.

A kernel first stores sums as if none saturated, and keeps the lowest and the highest. Only where these are outside of
the bounds it goes through the elements once more, clamps and counts.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Array, Number, device
from requant.kernels.simd.integer_lanes import store_block
from requant.kernels.simd.vectors import clamp, convert, count
from requant.kernels.simd.words import add_saturating, larger_words, smaller_words, store_low_bytes_of_two, words_of


@device
def store_sums(
    target: Array,
    index: Number,
    block: tuple[Number, Number, Number, Number],
    zero: Number,
    bounds: tuple[Number, Number],
    extremes: tuple[Number, Number],
    counts: tuple[Number, Number],
    counting: bool,
) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    """target[index : index + 64] = the block + zero, in bytes. Return the extremes, and how many saturate low and high.

    `block` has four vectors of int32; `zero`, `bounds` and `extremes` are words, the first of less than 15 bits. In
    words what is too large saturates on the far side of the bounds. Only with `counting` it is clamped and counted.
    """
    p = add_saturating(words_of(block[0], block[1]), zero)
    q = add_saturating(words_of(block[2], block[3]), zero)
    low, high = counts
    if counting:
        low += count(p < bounds[0]) + count(q < bounds[0])
        high += count(p > bounds[1]) + count(q > bounds[1])
    least = smaller_words(extremes[0], smaller_words(p, q))
    most = larger_words(extremes[1], larger_words(p, q))
    if counting:
        p = smaller_words(larger_words(p, bounds[0]), bounds[1])
        q = smaller_words(larger_words(q, bounds[0]), bounds[1])
    store_low_bytes_of_two(target, index, p, q)
    return (least, most), (low, high)


@device
def store_wide_sums(
    target: Array,
    index: Number,
    block: tuple[Number, Number, Number, Number],
    bounds: tuple[Number, Number],
    tally: tuple[Number, Number, Number],
    size: int,
    counting: bool,
) -> tuple[Number, Number, Number]:
    """The block within the bounds, in numbers of `size` bytes, to the target. Return the tally, in vectors of int32.

    The tally has bits that clamping changed, in any lane, and only with `counting` how many saturate low and high.
    """
    a, b, c, d = block
    e, f = clamp(a, bounds[0], bounds[1]), clamp(b, bounds[0], bounds[1])
    g, h = clamp(c, bounds[0], bounds[1]), clamp(d, bounds[0], bounds[1])
    changed, low, high = tally
    changed = changed | (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h)
    if counting:
        low = low - convert(a < bounds[0], np.int32) - convert(b < bounds[0], np.int32)
        low = low - convert(c < bounds[0], np.int32) - convert(d < bounds[0], np.int32)
        high = high - convert(a > bounds[1], np.int32) - convert(b > bounds[1], np.int32)
        high = high - convert(c > bounds[1], np.int32) - convert(d > bounds[1], np.int32)
    store_block(target, index, e, f, g, h, size)
    return changed, low, high


@device
def tallied(
    tally: tuple[Number, Number, Number], summed: Number, stored: Number, bounds: tuple[Number, Number]
) -> tuple[Number, Number, Number]:
    """The tally of `store_wide_sums` with sixteen sums more, and what is stored of them; these are always counted."""
    changed, low, high = tally
    low = low - convert(summed < bounds[0], np.int32)
    high = high - convert(summed > bounds[1], np.int32)
    return changed | (stored ^ summed), low, high
