"""Kernels that search scales by weighted squared error, as ggml does for its K-quants and for IQ4.

Every step is an f32 operation, rounded on its own, and sums run over the elements of a group in their order: so bits
are those of C without fused multiply-adds and without reordered sums. Sixteen groups are computed at once, each in its
lane of the vectors; arrays have the elements of sixteen groups side by side: [groups / 16, width, 16] and, of numbers
of a group, [groups / 16, 16].

    nearest(v) = the lower 23 bits of v + 1.5 * 2^23, less 2^22: RNE for |v| < 2^22, and defined for all else

Source: ggml 0.25's ggml-quants.c. Where a condition holds for a group there, its numbers are selected here.
"""

from __future__ import annotations

import numpy as np

from requant.kernels.jit.jit import Number, device, kernel
from requant.kernels.jit.processor import prefer_wide_vectors
from requant.kernels.jit.signature import F32, I32, I64, U8, Bool, In, Out
from requant.kernels.simd.memory import elements_of, load, store, store_as
from requant.kernels.simd.vector import LANES
from requant.kernels.simd.vectors import any_lane, bits_as, convert, magnitude, select, splat

_SHIFTER = np.float32(12582912.0)
_BITS, _MIDDLE = np.int32(0x007FFFFF), np.int32(0x00400000)
_ZERO, _ONE, _TENTH = np.float32(0), np.float32(1), np.float32(0.1)
# GROUP_MAX_EPS: groups below it are zeros.
_SMALLEST = np.float32(1e-15)
_ROUNDS = 5
_QUANTILES = 16


@device
def _nearest(value: Number) -> Number:
    return (bits_as(value + splat(_SHIFTER), np.int32) & splat(_BITS)) - splat(_MIDDLE)


@device
def _between(code: Number, lowest: Number, highest: Number) -> Number:
    code = select(code < splat(highest), code, splat(highest))
    return select(code > splat(lowest), code, splat(lowest))


@device
def _real(code: Number) -> Number:
    return convert(code, np.float32)


@kernel()
def sums(values: In[F32], width: I64, totals: Out[F32]) -> None:
    """Sums of groups, from 0 on."""
    prefer_wide_vectors()
    source, target = elements_of(values), elements_of(totals)
    for begin in range(0, totals.size, LANES):
        total = splat(_ZERO)
        for i in range(begin * width, (begin + LANES) * width, LANES):
            total = total + load(source, i)
        store(target, begin, total)


@kernel()
def search_with_minimum(
    values: In[F32],
    weights: In[F32],
    width: I64,
    highest: I32,  # the highest code
    ladder: In[F32],  # what is tried: quotients by the range of a group
    absolute: Bool,  # whether errors are magnitudes, and not squares
    scales: Out[F32],
    minimums: Out[F32],  # what is subtracted: not negative
    codes: Out[U8],
) -> None:
    """make_qkx2_quants and make_qkx3_quants: x is near to scale * code - minimum.

    The first try is highest / range. Each further one finds scale and minimum of least squares for its codes, and is
    taken if its error is smaller; its minimum is that of the tries after it.
    """
    prefer_wide_vectors()
    x, w, tried = elements_of(values), elements_of(weights), np.empty(width * LANES, np.float32)
    found = elements_of(codes)
    aside = elements_of(tried)
    all_scales, all_minimums = elements_of(scales), elements_of(minimums)
    top = np.float32(highest)
    for group in range(0, scales.size, LANES):
        begin, end = group * width, (group + LANES) * width
        low = load(x, begin)
        high = low
        sum_w = load(w, begin)
        sum_x = sum_w * low
        for i in range(begin + LANES, end, LANES):
            value, weight = load(x, i), load(w, i)
            low = select(value < low, value, low)
            high = select(value > high, value, high)
            sum_w = sum_w + weight
            sum_x = sum_x + weight * value
        low = select(low > splat(_ZERO), splat(_ZERO), low)
        nothing = high <= low
        inverse = splat(top) / (high - low)
        scale = splat(_ONE) / inverse
        error = splat(_ZERO)
        for i in range(begin, end, LANES):
            value = load(x, i)
            code = _real(_between(_nearest(inverse * (value - low)), np.int32(0), highest))
            difference = scale * code + low - value
            difference = magnitude(difference) if absolute else difference * difference
            error = error + load(w, i) * difference
        minimum = low
        # Of the codes that are taken.
        best_inverse, best_low = inverse, low
        for step in range(ladder.size):
            inverse = splat(ladder[step]) / (high - minimum)
            sum_l, sum_l2, sum_xl = splat(_ZERO), splat(_ZERO), splat(_ZERO)
            for i in range(begin, end, LANES):
                value, weight = load(x, i), load(w, i)
                code = _real(_between(_nearest(inverse * (value - minimum)), np.int32(0), highest))
                store(aside, i - begin, code)
                weighted = weight * code
                sum_l = sum_l + weighted
                sum_l2 = sum_l2 + weighted * code
                sum_xl = sum_xl + weighted * value
            determinant = sum_w * sum_l2 - sum_l * sum_l
            new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
            new_minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
            above = new_minimum > splat(_ZERO)
            new_minimum = select(above, splat(_ZERO), new_minimum)
            new_scale = select(above, sum_xl / sum_l2, new_scale)
            new_error = splat(_ZERO)
            for i in range(begin, end, LANES):
                difference = new_scale * load(aside, i - begin) + new_minimum - load(x, i)
                difference = magnitude(difference) if absolute else difference * difference
                new_error = new_error + load(w, i) * difference
            wins = (determinant > splat(_ZERO)) & (new_error < error)
            best_inverse, best_low = select(wins, inverse, best_inverse), select(wins, minimum, best_low)
            error = select(wins, new_error, error)
            scale = select(wins, new_scale, scale)
            minimum = select(wins, new_minimum, minimum)
        for i in range(begin, end, LANES):
            code = _between(_nearest(best_inverse * (load(x, i) - best_low)), np.int32(0), highest)
            store_as(found, i, select(nothing, splat(np.int32(0)), code), np.int8)
        store(all_scales, group, select(nothing, splat(_ZERO), scale))
        store(all_minimums, group, -select(nothing, low, minimum))


@device
def _extreme(x: Number, begin: Number, end: Number) -> tuple[Number, Number]:
    """The first value of the largest magnitude, and that magnitude; 0 where there is none above 0."""
    most, extreme = splat(_ZERO), splat(_ZERO)
    for i in range(begin, end, LANES):
        value = load(x, i)
        size = magnitude(value)
        more = size > most
        most, extreme = select(more, size, most), select(more, value, extreme)
    return extreme, most


@device
def _symmetric_sums(
    x: Number, w: Number, begin: Number, end: Number, inverse: Number, half: Number
) -> tuple[Number, Number]:
    sum_lx, sum_l2 = splat(_ZERO), splat(_ZERO)
    for i in range(begin, end, LANES):
        value, weight = load(x, i), load(w, i)
        code = _real(_between(_nearest(inverse * value), np.int32(-half), np.int32(half - 1)))
        sum_lx = sum_lx + weight * value * code
        sum_l2 = sum_l2 + weight * code * code
    return sum_lx, sum_l2


@kernel()
def search_symmetric(
    values: In[F32],
    weights: In[F32],
    width: I64,
    half: I32,  # codes are from -half to half - 1
    scales: Out[F32],
    codes: Out[U8],  # codes + half; 0 where all values are about 0
) -> None:
    """make_qx_quants: x is near to scale * code, of either sign.

    The tries are -(half + 0.1 * step) / m for steps from -9 to 9, 0 first; m is the value of the largest magnitude.
    """
    prefer_wide_vectors()
    x, w, found, all_scales = elements_of(values), elements_of(weights), elements_of(codes), elements_of(scales)
    for group in range(0, scales.size, LANES):
        begin, end = group * width, (group + LANES) * width
        extreme, most = _extreme(x, begin, end)
        nothing = most < splat(_SMALLEST)
        best_inverse = splat(np.float32(-half)) / extreme
        sum_lx, sum_l2 = _symmetric_sums(x, w, begin, end, best_inverse, half)
        scale = select(sum_l2 != splat(_ZERO), sum_lx / sum_l2, splat(_ZERO))
        best = scale * sum_lx
        for step in range(-9, 10):
            if step != 0:
                inverse = splat(-(np.float32(half) + _TENTH * np.float32(step))) / extreme
                sum_lx, sum_l2 = _symmetric_sums(x, w, begin, end, inverse, half)
                wins = (sum_l2 > splat(_ZERO)) & (sum_lx * sum_lx > best * sum_l2)
                new_scale = sum_lx / sum_l2
                scale = select(wins, new_scale, scale)
                best = select(wins, new_scale * sum_lx, best)
                best_inverse = select(wins, inverse, best_inverse)
        for i in range(begin, end, LANES):
            code = _between(_nearest(best_inverse * load(x, i)), np.int32(-half), np.int32(half - 1))
            store_as(found, i, select(nothing, splat(np.int32(0)), code + splat(half)), np.int8)
        store(all_scales, group, select(nothing, splat(_ZERO), scale))


@kernel()
def search_by_element(
    values: In[F32],
    width: I64,
    half: I32,  # codes are from -half to half - 1
    scales: Out[F32],
    codes: Out[U8],  # codes + half; 0 where all values are about 0
) -> None:
    """make_q3_quants: x is near to scale * code; each code in turn is changed if that lessens the error, weighted by
    x^2, of the best scale; at most five times."""
    prefer_wide_vectors()
    x, tried = elements_of(values), np.empty(width * LANES, np.int32)
    aside, found, all_scales = elements_of(tried), elements_of(codes), elements_of(scales)
    lowest, highest = np.int32(-half), np.int32(half - 1)
    for group in range(0, scales.size, LANES):
        begin, end = group * width, (group + LANES) * width
        extreme, most = _extreme(x, begin, end)
        nothing = most < splat(_SMALLEST)
        inverse = splat(np.float32(-half)) / extreme
        sum_lx, sum_l2 = splat(_ZERO), splat(_ZERO)
        for i in range(begin, end, LANES):
            value = load(x, i)
            code = _between(_nearest(inverse * value), lowest, highest)
            store(aside, i - begin, code)
            weight = value * value
            sum_lx = sum_lx + weight * value * _real(code)
            sum_l2 = sum_l2 + weight * _real(code) * _real(code)
        for _ in range(_ROUNDS):
            changed = splat(False)
            for i in range(begin, end, LANES):
                value, code = load(x, i), load(aside, i - begin)
                weight = value * value
                rest_lx = sum_lx - weight * value * _real(code)
                rest_l2 = sum_l2 - weight * _real(code) * _real(code)
                other = _between(_nearest(value * rest_l2 / rest_lx), lowest, highest)
                new_lx = rest_lx + weight * value * _real(other)
                new_l2 = rest_l2 + weight * _real(other) * _real(other)
                wins = (rest_lx > splat(_ZERO)) & (other != code) & (new_l2 > splat(_ZERO))
                wins = wins & (new_lx * new_lx * sum_l2 > sum_lx * sum_lx * new_l2)
                store(aside, i - begin, select(wins, other, code))
                sum_lx, sum_l2 = select(wins, new_lx, sum_lx), select(wins, new_l2, sum_l2)
                changed = changed | wins
            # A group without a change does not change in the next round either.
            if not any_lane(changed):
                break
        for i in range(begin, end, LANES):
            code = load(aside, i - begin) + splat(half)
            store_as(found, i, select(nothing, splat(np.int32(0)), code), np.int8)
        usable = (sum_l2 > splat(_ZERO)) & ~nothing
        store(all_scales, group, select(usable, sum_lx / sum_l2, splat(_ZERO)))


@kernel()
def search_positive(
    values: In[F32],
    weights: In[F32],
    width: I64,
    highest: I32,
    scales: Out[F32],
    codes: Out[U8],
) -> None:
    """make_qp_quants: x, scales or minimums of groups, is near to scale * code.

    The tries are (highest + 0.1 * step) / max for steps from -4 to 4, 0 first; then codes change as in
    `search_by_element`. Codes wrap in a byte, as there, which happens to negative x only.
    """
    prefer_wide_vectors()
    x, w, tried = elements_of(values), elements_of(weights), np.empty(width * LANES, np.int32)
    aside, found, all_scales = elements_of(tried), elements_of(codes), elements_of(scales)
    byte, limit = splat(np.int32(255)), splat(highest)
    for group in range(0, scales.size, LANES):
        begin, end = group * width, (group + LANES) * width
        most = splat(_ZERO)
        for i in range(begin, end, LANES):
            most = select(most > load(x, i), most, load(x, i))
        nothing = most < splat(_SMALLEST)
        best_inverse = splat(np.float32(highest)) / most
        scale = splat(_ONE) / best_inverse
        error = splat(_ZERO)
        for i in range(begin, end, LANES):
            difference = load(x, i) - scale * _real(_nearest(best_inverse * load(x, i)) & byte)
            error = error + load(w, i) * difference * difference
        for step in range(-4, 5):
            if step != 0:
                inverse = splat(_TENTH * np.float32(step) + np.float32(highest)) / most
                scale = splat(_ONE) / inverse
                new_error = splat(_ZERO)
                for i in range(begin, end, LANES):
                    code = _nearest(inverse * load(x, i))
                    code = select(code > limit, limit, code)
                    difference = load(x, i) - scale * _real(code)
                    new_error = new_error + load(w, i) * difference * difference
                wins = new_error < error
                error, best_inverse = select(wins, new_error, error), select(wins, inverse, best_inverse)
        sum_lx, sum_l2 = splat(_ZERO), splat(_ZERO)
        for i in range(begin, end, LANES):
            value, weight = load(x, i), load(w, i)
            code = _nearest(best_inverse * value)
            code = select(code > limit, limit, code)
            store(aside, i - begin, code & byte)
            sum_lx = sum_lx + weight * value * _real(code)
            sum_l2 = sum_l2 + weight * _real(code) * _real(code)
        for _ in range(_ROUNDS):
            changed = splat(False)
            for i in range(begin, end, LANES):
                value, weight, code = load(x, i), load(w, i), load(aside, i - begin)
                rest_lx = sum_lx - weight * value * _real(code)
                rest_l2 = sum_l2 - weight * _real(code) * _real(code)
                other = _nearest(value * rest_l2 / rest_lx)
                other = select(other > limit, limit, other)
                new_lx = rest_lx + weight * value * _real(other)
                new_l2 = rest_l2 + weight * _real(other) * _real(other)
                wins = (rest_lx > splat(_ZERO)) & (rest_l2 > splat(_ZERO)) & (other != code)
                wins = wins & (new_lx * new_lx * sum_l2 > sum_lx * sum_lx * new_l2)
                store(aside, i - begin, select(wins, other & byte, code))
                sum_lx, sum_l2 = select(wins, new_lx, sum_lx), select(wins, new_l2, sum_l2)
                changed = changed | wins
            if not any_lane(changed):
                break
        for i in range(begin, end, LANES):
            store_as(found, i, select(nothing, splat(np.int32(0)), load(aside, i - begin)), np.int8)
        usable = (sum_l2 > splat(_ZERO)) & ~nothing
        store(all_scales, group, select(usable, sum_lx / sum_l2, splat(_ZERO)))


@device
def _place(value: Number, midpoints: Number) -> Number:
    """The place of the nearest quantile, the upper one of two as near; the last one for NaN."""
    place = splat(np.int32(_QUANTILES - 1))
    for i in range(_QUANTILES - 1):
        # A mask is -1 where it is set.
        place = place + convert(value < splat(midpoints[i]), np.int32)
    return place


@device
def _quantile(value: Number, midpoints: Number, quantiles: Number) -> Number:
    """The quantile at that place."""
    found = splat(quantiles[_QUANTILES - 1])
    for i in range(_QUANTILES - 2, -1, -1):
        found = select(value < splat(midpoints[i]), splat(quantiles[i]), found)
    return found


@device
def _quantile_sums(
    x: Number, w: Number, begin: Number, end: Number, inverse: Number, midpoints: Number, quantiles: Number
) -> tuple[Number, Number]:
    sum_qx, sum_q2 = splat(_ZERO), splat(_ZERO)
    for i in range(begin, end, LANES):
        value = load(x, i)
        quantile = _quantile(inverse * value, midpoints, quantiles)
        weighted = load(w, i) * quantile
        sum_qx = sum_qx + weighted * value
        sum_q2 = sum_q2 + weighted * quantile
    return sum_qx, sum_q2


@kernel()
def search_quantiles(
    values: In[F32],
    weights: In[F32],
    width: I64,
    midpoints: In[F32],  # the midpoints between the 16 quantiles, ascending
    quantiles: In[F32],
    scales: Out[F32],
) -> None:
    """Of quantize_row_iq4_nl_impl: x is near to scale * quantile, of either sign.

    The tries are -quantiles[0] / m, then (quantiles[0] + step) / m for steps from -7 to 7.
    """
    prefer_wide_vectors()
    x, w, all_scales = elements_of(values), elements_of(weights), elements_of(scales)
    first = quantiles[0]
    for group in range(0, scales.size, LANES):
        begin, end = group * width, (group + LANES) * width
        extreme, most = _extreme(x, begin, end)
        inverse = splat(_ONE) / (-extreme / splat(first))
        sum_qx, sum_q2 = _quantile_sums(x, w, begin, end, inverse, midpoints, quantiles)
        scale = select(sum_q2 > splat(_ZERO), sum_qx / sum_q2, splat(_ZERO))
        best = scale * sum_qx
        for step in range(-7, 8):
            inverse = splat(np.float32(step) + first) / extreme
            sum_qx, sum_q2 = _quantile_sums(x, w, begin, end, inverse, midpoints, quantiles)
            wins = (sum_q2 > splat(_ZERO)) & (sum_qx * sum_qx > best * sum_q2)
            new_scale = sum_qx / sum_q2
            scale, best = select(wins, new_scale, scale), select(wins, new_scale * sum_qx, best)
        store(all_scales, group, select(most < splat(_SMALLEST), splat(_ZERO), scale))


@kernel()
def quantile_codes(values: In[F32], width: I64, inverses: In[F32], midpoints: In[F32], codes: Out[U8]) -> None:
    """code = the place of the quantile nearest to f32(inverse * x)."""
    prefer_wide_vectors()
    x, all_inverses, found = elements_of(values), elements_of(inverses), elements_of(codes)
    for group in range(0, inverses.size, LANES):
        inverse = load(all_inverses, group)
        for i in range(group * width, (group + LANES) * width, LANES):
            store_as(found, i, _place(inverse * load(x, i), midpoints), np.int8)


@kernel()
def codes_of_scales(
    values: In[F32],
    width: I64,
    scales: In[F32],
    minimums: In[F32],
    lowest: I32,
    highest: I32,
    codes: Out[U8],  # those of the search, which stay where a scale is 0
) -> None:
    """code = min(max(nearest(f32(f32(x + minimum) / scale)), lowest), highest) - lowest."""
    prefer_wide_vectors()
    x, found = elements_of(values), elements_of(codes)
    all_scales, all_minimums = elements_of(scales), elements_of(minimums)
    for group in range(0, scales.size, LANES):
        scale, minimum = load(all_scales, group), load(all_minimums, group)
        nothing = scale == splat(_ZERO)
        kept = any_lane(nothing)
        for i in range(group * width, (group + LANES) * width, LANES):
            code = _between(_nearest((load(x, i) + minimum) / scale), lowest, highest) - splat(lowest)
            if kept:
                before = convert(load(found, i), np.int32)
                code = select(nothing, before, code)
            store_as(found, i, code, np.int8)
