"""Kernels from floats to integers, for the rules that most tensors are quantized by.

    v = x / s  or  fma(x, r, fma(x, c, a))       one rounding to f32 each
    t = RNE(v) + z  or  RNE(v + z)  or  RNA(v) + z

Systems differ in what becomes of an integer outside of the bounds and of NaN, not in the others. So a span of the
tensor is converted without looking at each element's bounds: the loop keeps the lowest and the highest t, and if both
are within the bounds, that is all. If they are not, a second loop clamps and counts. It is right for every t within a
window. Beyond that, for rules that saturate whatever is too large, it takes care of the far and of NaN too; for others
the kernel stops and says how far it came, and `core.kernels.quantize_any` knows the rest.

Reciprocals. x / s is the same as fma(x, r, x * c), r = RN(1 / s), c = RN(1 / s - r), for all but a few x, and
`core.kernels.reciprocal` proves for a scale that none of these matters. A product with the reciprocal alone, as some
systems have it, is the case c = 0; with the zero point added in the same rounding, a = z.

Subnormal x are taken for zero when the scales are such that both give the same: |x / s| far below 1/2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from core.kernels._jit import Array, Kernel, Number, device, kernel, readable, writable
from core.kernels.layout import advance, left_in_row, locate, unpacked
from core.kernels.processor import begin_flushing, end_flushing, prefer_wide_vectors
from core.kernels.vector_memory import load, load_first, store, store_first
from core.kernels.vector_rounding import nearest_integers
from core.kernels.vectors import (
    LANES,
    convert,
    first,
    half_away,
    larger,
    magnitude,
    multiply_add,
    select,
    smaller,
    some,
    splat,
    total,
    zero_like,
)
from core.kernels.widen import widened

# Long enough that looking at the extremes does not count, short enough to be in the cache when it is converted again.
_SPAN = 4096
_INFINITY = np.float32(np.inf)

WINDOW = {8: 1 << 21, 16: 1 << 21, 32: 1 << 50}
"""By the bits of the target: integers of at least this magnitude are outside of the window."""


class Form(NamedTuple):
    """Which of the formulas above. `source` is f32, f16 or bf16; `bits` those of the target's elements."""

    multiplied: bool
    before: bool
    away: bool = False
    source: str = "f32"
    bits: int = 8


_SOURCES = {"f32": types.float32, "f16": types.int16, "bf16": types.uint16}
_TARGETS: dict[int, types.Type] = {8: types.int8, 16: types.int16, 32: types.int32}


@device
def _value(
    x: Number,
    factor: Number,
    correction: Number,
    addend: Number,
    zero: Number,
    multiplied: bool,
    before: bool,
    away: bool,
) -> Number:
    """What is rounded to the nearest integer, z not yet added if it is added to that; all are vectors."""
    value = multiply_add(x, factor, multiply_add(x, correction, addend)) if multiplied else x / factor
    if before:
        value = value + convert(zero, np.float32)
    return half_away(value) if away else value


@device
def _sum(integers: Number, zero: Number, before: bool) -> Number:
    return integers if before else integers + zero


def _quantize(form: Form) -> Kernel:
    multiplied, before, away = form.multiplied, form.before, form.away
    # Integers of 32 bits, and what they are rounded from, need 64.
    wide = form.bits == 32
    settled = np.float64 if wide else np.float32
    integer = types.int64 if wide else types.int32
    integer_class = np.int64 if wide else np.int32
    furthest = 2 * WINDOW[form.bits] - 1

    @kernel(
        (
            readable(_SOURCES[form.source]),  # source
            writable(_TARGETS[form.bits]),  # target, signed or not
            types.int64,  # start: index of source[0] in the whole tensor
            readable(types.int64),  # core.kernels.layout.unpacked
            readable(types.float32),  # s or r, one for each parameter
            readable(types.float32),  # c, likewise; 0 in a cycle
            readable(types.float32),  # a, likewise; 0 in a cycle
            readable(integer),  # zero points, likewise; 0 where a is the zero point
            readable(integer),  # what NaN is stored as, likewise
            types.boolean,  # whether subnormals may be taken for zero
            types.boolean,  # whether all that is too large saturates, and NaN is stored
            readable(integer),  # minimum, maximum, lowest and highest of the window
            writable(types.int64),  # counts, added to: saturated low, saturated high, NaN
        ),
        returns=types.int64,
    )
    def quantize(
        source: Array,
        target: Array,
        start: Number,
        numbers: Array,
        factors: Array,
        corrections: Array,
        addends: Array,
        zeros: Array,
        nans: Array,
        flushing: Number,
        saturating: Number,
        bounds: Array,
        counts: Array,
    ) -> Number:
        prefer_wide_vectors()
        minimum, maximum = splat(bounds[0]), splat(bounds[1])
        lowest, highest = splat(bounds[2]), splat(bounds[3])
        none = zero_like(minimum)
        limit = splat(settled(furthest))
        layout = unpacked(numbers)
        cycle = layout[4] != 0
        place = locate(start, layout)
        # What one span needs the next one mostly needs too.
        counting = False
        far = False
        mode = begin_flushing(flushing)
        span = 0
        while span < source.size:
            span_end = min(span + _SPAN, source.size)
            span_place = place
            least, most = maximum, minimum
            low, high, missing = none, none, none
            done = span
            while done < span_end:
                end = done + min(left_in_row(place, layout), span_end - done)
                parameter = place[0] + place[1]
                place = advance(end - done, place, layout)
                factor = splat(factors[parameter])
                correction = splat(corrections[parameter])
                addend = splat(addends[parameter])
                zero = splat(zeros[parameter])
                nan = splat(nans[parameter])
                counted = done if counting else end - (end - done) % LANES
                if cycle:
                    for i in range(done, counted, LANES):
                        near_zero = load(zeros, parameter + (i - done))
                        near_factor = load(factors, parameter + (i - done))
                        x = widened(load(source, i))
                        value = _value(x, near_factor, correction, addend, near_zero, multiplied, before, away)
                        integers = _sum(nearest_integers(convert(value, settled)), near_zero, before)
                        least = smaller(least, integers)
                        most = larger(most, integers)
                        store(target, i, integers)
                else:
                    for i in range(done, counted, LANES):
                        x = widened(load(source, i))
                        value = _value(x, factor, correction, addend, zero, multiplied, before, away)
                        integers = _sum(nearest_integers(convert(value, settled)), zero, before)
                        least = smaller(least, integers)
                        most = larger(most, integers)
                        store(target, i, integers)
                for i in range(counted, end, LANES):
                    valid = first(end - i)
                    if cycle:
                        factor = load_first(factors, parameter + (i - done), valid)
                        zero = load_first(zeros, parameter + (i - done), valid)
                        nan = load_first(nans, parameter + (i - done), valid)
                    x = widened(load_first(source, i, valid))
                    value = _value(x, factor, correction, addend, zero, multiplied, before, away)
                    if multiplied and far:
                        # An infinity times a correction of 0 would be NaN.
                        product = x * factor
                        value = select(magnitude(product) < splat(_INFINITY), value, product)
                    value = convert(value, settled)
                    number = value == value
                    if far:
                        value = select(number, smaller(larger(value, -limit), limit), zero_like(value))
                    integers = _sum(nearest_integers(value), zero, before)
                    # What is not there, and with the far also NaN, is no integer to look at.
                    looked_at = valid & number if far else valid
                    integers = select(looked_at, integers, minimum)
                    least = smaller(least, integers)
                    most = larger(most, integers)
                    low = low - convert(integers < minimum, integer_class)
                    high = high - convert(integers > maximum, integer_class)
                    stored = smaller(larger(integers, minimum), maximum)
                    if far:
                        missing = missing - convert(valid & ~number, integer_class)
                        stored = select(number, stored, nan)
                    if end - i >= LANES:
                        store(target, i, stored)
                    else:
                        store_first(target, i, stored, valid)
                done = end
            outside = some((least < minimum) | (most > maximum))
            beyond = some((least < lowest) | (most > highest))
            if (outside and not counting) or (beyond and not far):
                if beyond and not saturating:
                    break
                # Once more, with more care.
                counting = True
                far = far or beyond
                place = span_place
                continue
            counts[0] += total(low)
            counts[1] += total(high)
            counts[2] += total(missing)
            far = far and (beyond or some(missing > none))
            counting = far or outside
            span = span_end
        end_flushing(mode)
        return span

    return quantize


_BITS = (8, 16, 32)
FORMS = (
    *(
        Form(multiplied, before, bits=bits)
        for multiplied in (False, True)
        for before in (False, True)
        for bits in _BITS
    ),
    *(Form(False, False, away=True, bits=bits) for bits in _BITS),
    *(Form(multiplied, False, source=source) for multiplied in (False, True) for source in ("f16", "bf16")),
)
QUANTIZE: dict[Form, Kernel] = {form: _quantize(form) for form in FORMS}
"""The kernels there are."""
