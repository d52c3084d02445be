"""The blocks of GGUF's K-quants and IQ4 as ggml 0.25's ggml-quants.c makes them on x86-64, a number at a time.

Numbers are np.float32, each operation rounded on its own, in C's order; bits are put in their places one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from tests.oracles.ggml_quants import QUANTILES, scale_and_minimum

F = np.float32
Numbers = Sequence[F]
Weights = Sequence[F] | None
EPSILON = F(1e-15)


def nearest_int(value: F) -> int:
    bits = int((value + F(12582912)).view(np.uint32))
    return (bits & 0x7FFFFF) - 0x400000


def clamp(value: int, lowest: int, highest: int) -> int:
    return max(lowest, min(highest, value))


def total(values: Numbers) -> F:
    found = F(0)
    for value in values:
        found = found + value
    return found


def with_minimum(
    x: Numbers, w: Numbers, highest: int, first: float, step: float, steps: int, absolute: bool
) -> tuple[list[int], F, F]:
    """make_qkx2_quants and make_qkx3_quants: codes, scale, minimum."""
    low, high = min(x), max(x)
    sum_w, sum_x = w[0], w[0] * x[0]
    for value, weight in zip(x[1:], w[1:], strict=True):
        sum_w, sum_x = sum_w + weight, sum_x + weight * value
    low = min(low, F(0))
    if high <= low:
        return [0] * len(x), F(0), -low

    def codes_by(inverse: F) -> list[int]:
        return [clamp(nearest_int(inverse * (value - low)), 0, highest) for value in x]

    def error_of(codes: list[int], scale: F, minimum: F) -> F:
        found = F(0)
        for code, value, weight in zip(codes, x, w, strict=True):
            difference = scale * F(code) + minimum - value
            found = found + weight * (abs(difference) if absolute else difference * difference)
        return found

    inverse = F(highest) / (high - low)
    scale, codes = F(1) / inverse, codes_by(inverse)
    best = error_of(codes, scale, low)
    for number in range(steps + 1):
        tried = codes_by((F(first) + F(step) * F(number) + F(highest)) / (high - low))
        sum_l = sum_l2 = sum_xl = F(0)
        for code, value, weight in zip(tried, x, w, strict=True):
            sum_l = sum_l + weight * F(code)
            sum_l2 = sum_l2 + weight * F(code) * F(code)
            sum_xl = sum_xl + weight * F(code) * value
        determinant = sum_w * sum_l2 - sum_l * sum_l
        if determinant > 0:
            new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
            new_low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
            if new_low > 0:
                new_scale, new_low = sum_xl / sum_l2, F(0)
            error = error_of(tried, new_scale, new_low)
            if error < best:
                codes, best, scale, low = tried, error, new_scale, new_low
    return codes, scale, -low


def extreme(x: Numbers) -> F:
    """The first of the largest magnitude."""
    found = F(0)
    for value in x:
        if abs(value) > abs(found):
            found = value
    return found


def symmetric(x: Numbers, w: Numbers, half: int) -> tuple[list[int], F]:
    """make_qx_quants: codes from 0 on, and scale."""
    most = extreme(x)
    if abs(most) < EPSILON:
        return [0] * len(x), F(0)
    codes, scale, best = [], F(0), F(0)
    for number in [0, *range(-9, 0), *range(1, 10)]:
        inverse = -(F(half) + F(0.1) * F(number)) / most
        tried = [clamp(nearest_int(inverse * value), -half, half - 1) for value in x]
        sum_lx = total([weight * value * F(code) for code, value, weight in zip(tried, x, w, strict=True)])
        sum_l2 = total([weight * F(code) * F(code) for code, weight in zip(tried, w, strict=True)])
        if number == 0 or (sum_l2 > 0 and sum_lx * sum_lx > best * sum_l2):
            scale = sum_lx / sum_l2 if sum_l2 else F(0)
            codes, best = tried, scale * sum_lx
    return [code + half for code in codes], scale


def changed_in_turn(
    codes: list[int], x: Numbers, w: Numbers, lowest: int, highest: int, positive: bool
) -> tuple[list[int], F]:
    sum_lx = total([weight * value * F(code) for code, value, weight in zip(codes, x, w, strict=True)])
    sum_l2 = total([weight * F(code) * F(code) for code, weight in zip(codes, w, strict=True)])
    for _ in range(5):
        before = list(codes)
        for i, (value, weight) in enumerate(zip(x, w, strict=True)):
            rest_lx = sum_lx - weight * value * F(codes[i])
            rest_l2 = sum_l2 - weight * F(codes[i]) * F(codes[i])
            if not (rest_lx > 0 and (rest_l2 > 0 or not positive)):
                continue
            code = clamp(nearest_int(value * rest_l2 / rest_lx), lowest, highest)
            new_lx, new_l2 = rest_lx + weight * value * F(code), rest_l2 + weight * F(code) * F(code)
            better = new_lx * new_lx * sum_l2 > sum_lx * sum_lx * new_l2
            if code != codes[i] and better and (new_l2 > 0 or positive):
                codes[i], sum_lx, sum_l2 = code, new_lx, new_l2
        if codes == before:
            break
    return codes, sum_lx / sum_l2 if sum_l2 > 0 else F(0)


def by_element(x: Numbers) -> tuple[list[int], F]:
    """make_q3_quants."""
    most = extreme(x)
    if abs(most) < EPSILON:
        return [0] * len(x), F(0)
    codes = [clamp(nearest_int(F(-4) / most * value), -4, 3) for value in x]
    codes, scale = changed_in_turn(codes, x, [value * value for value in x], -4, 3, False)
    return [code + 4 for code in codes], scale


def positive(x: Numbers, w: Numbers, highest: int) -> tuple[list[int], F]:
    """make_qp_quants, of numbers that are not negative."""
    most = max(x)
    if most < EPSILON:
        return [0] * len(x), F(0)
    inverse, best = F(highest) / most, F(0)
    for number in [0, *range(-4, 0), *range(1, 5)]:
        tried = (F(0.1) * F(number) + F(highest)) / most
        differences = [value - F(1) / tried * F(min(highest, nearest_int(tried * value))) for value in x]
        error = total([weight * each * each for weight, each in zip(w, differences, strict=True)])
        if number == 0 or error < best:
            inverse, best = tried, error
    codes = [min(highest, nearest_int(inverse * value)) for value in x]
    return changed_in_turn(codes, x, w, -(1 << 22), highest, True)


def important(x: Numbers, importance: Numbers, factor: int) -> list[F]:
    variance = F(factor) * total([value * value for value in x]) / F(len(x))
    return [each * np.sqrt(variance + value * value) for each, value in zip(importance, x, strict=True)]


def groups(x: Numbers, width: int) -> list[Numbers]:
    return [x[at : at + width] for at in range(0, len(x), width)]


def half(value: F) -> tuple[F, bytes]:
    stored = np.float16(value)
    return F(stored), stored.tobytes()


def again(x: Numbers, codes: list[int], scale: F, minimum: F, lowest: int, highest: int) -> list[int]:
    if scale == 0:
        return codes
    return [clamp(nearest_int((value + minimum) / scale), lowest, highest) - lowest for value in x]


class Bits:
    """Bytes, of which fields are set."""

    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)

    def put(self, at: int, bit: int, value: int) -> None:
        self.bytes[at] |= value << bit & 255


def largest_first(scales: Numbers, highest: int) -> tuple[list[int], F]:
    """Scales or minimums by the largest of them."""
    most = max([F(0), *scales])
    inverse = F(highest) / most if most > 0 else F(0)
    return [nearest_int(inverse * scale) for scale in scales], most / F(highest)


def q2_k(x: Numbers, importance: Weights) -> bytes:
    parts = groups(x, 16)
    if importance is None:
        found = [with_minimum(part, [abs(v) for v in part], 3, -0.5, 0.1, 15, True) for part in parts]
        steps, d = largest_first([scale for _, scale, _ in found], 15)
        depths, dmin = largest_first([minimum for _, _, minimum in found], 15)
    else:
        weights = groups(important(x, importance, 1), 16)
        found = [with_minimum(part, w, 3, -0.9, 0.05, 36, False) for part, w in zip(parts, weights, strict=True)]
        of_groups = [total(w) for w in weights]
        steps, d = positive([scale for _, scale, _ in found], of_groups, 15)
        depths, dmin = positive([minimum for _, _, minimum in found], of_groups, 15)
    (d, d_bytes), (dmin, dmin_bytes) = half(d), half(dmin)
    made = Bits(84)
    for g, part in enumerate(parts):
        made.put(g, 0, steps[g] | depths[g] << 4)
        codes = again(part, found[g][0], d * F(steps[g]), dmin * F(depths[g]), 0, 3)
        for l, code in enumerate(codes):  # noqa: E741
            element = 16 * g + l
            made.put(16 + 32 * (element // 128) + element % 32, 2 * (element % 128 // 32), code)
    return bytes(made.bytes[:80]) + d_bytes + dmin_bytes


def q3_k(x: Numbers, importance: Weights) -> bytes:
    parts = groups(x, 16)
    if importance is None:
        found = [by_element(part) for part in parts]
        most = extreme([scale for _, scale in found])
        inverse = F(-32) / most if most else F(0)
        steps = [clamp(nearest_int(inverse * scale), -32, 31) + 32 if most else 0 for _, scale in found]
        d = F(1) / inverse if most else F(0)
    else:
        weights = groups(important(x, importance, 2), 16)
        found = [symmetric(part, w, 4) for part, w in zip(parts, weights, strict=True)]
        steps, d = symmetric([scale for _, scale in found], [total(w) for w in weights], 32)
    d, d_bytes = half(d)
    made = Bits(108)
    for g, part in enumerate(parts):
        made.put(96 + g % 8, 4 * (g // 8), steps[g] & 15)
        made.put(104 + g % 4, 2 * (g // 4), steps[g] >> 4)
        codes = again(part, found[g][0], d * F(steps[g] - 32), F(0), -4, 3)
        for l, code in enumerate(codes):  # noqa: E741
            element = 16 * g + l
            made.put(element % 32, element // 32, code >> 2)
            made.put(32 + 32 * (element // 128) + element % 32, 2 * (element % 128 // 32), code & 3)
    return bytes(made.bytes) + d_bytes


def with_minimums(
    x: Numbers, importance: Weights, highest: int, first: float, steps_tried: int
) -> tuple[bytes, list[int]]:
    parts = groups(x, 32)
    if importance is None:
        found = []
        for part in parts:
            mean = np.sqrt(total([v * v for v in part]) / F(32))
            weights = [mean + abs(v) for v in part]
            found.append(with_minimum(part, weights, highest, first, 0.1, steps_tried, False))
        steps, d = largest_first([scale for _, scale, _ in found], 63)
        depths, dmin = largest_first([minimum for _, _, minimum in found], 63)
    else:
        all_weights = groups(important(x, importance, 2), 32)
        found = [
            with_minimum(part, w, highest, -0.9, 0.05, 36, False) for part, w in zip(parts, all_weights, strict=True)
        ]
        of_groups = [total(w) for w in all_weights]
        steps, d = positive([scale for _, scale, _ in found], of_groups, 63)
        depths, dmin = positive([minimum for _, _, minimum in found], of_groups, 63)
    (d, d_bytes), (dmin, dmin_bytes) = half(d), half(dmin)
    made = Bits(12)
    for g in range(4):
        made.put(g, 0, steps[g])
        made.put(g + 4, 0, depths[g])
        made.put(g + 8, 0, steps[g + 4] & 15)
        made.put(g + 8, 4, depths[g + 4] & 15)
        made.put(g, 6, steps[g + 4] >> 4)
        made.put(g + 4, 6, depths[g + 4] >> 4)
    codes = []
    for g, part in enumerate(parts):
        assert scale_and_minimum(bytes(made.bytes), g) == (steps[g], depths[g])
        codes += again(part, found[g][0], d * F(steps[g]), dmin * F(depths[g]), 0, highest)
    return d_bytes + dmin_bytes + bytes(made.bytes), codes


def q4_k(x: Numbers, importance: Weights) -> bytes:
    head, codes = with_minimums(x, importance, 15, -1, 20)
    made = Bits(128)
    for element, code in enumerate(codes):
        made.put(32 * (element // 64) + element % 32, 4 * (element % 64 // 32), code)
    return head + bytes(made.bytes)


def q5_k(x: Numbers, importance: Weights) -> bytes:
    head, codes = with_minimums(x, importance, 31, -0.5, 15)
    made = Bits(160)
    for element, code in enumerate(codes):
        made.put(element % 32, element // 32, code >> 4)
        made.put(32 + 32 * (element // 64) + element % 32, 4 * (element % 64 // 32), code & 15)
    return head + bytes(made.bytes)


def q6_k(x: Numbers, importance: Weights) -> bytes:
    weights = [v * v for v in x] if importance is None else importance
    parts = groups(x, 16)
    found = [symmetric(part, w, 32) for part, w in zip(parts, groups(weights, 16), strict=True)]
    most = extreme([scale for _, scale in found])
    if abs(most) < EPSILON:
        return bytes(210)
    inverse = F(-128) / most
    d, d_bytes = half(F(1) / inverse)
    made = Bits(208)
    for g, part in enumerate(parts):
        step = min(127, nearest_int(inverse * found[g][1]))
        made.put(192 + g, 0, step & 255)
        codes = again(part, found[g][0], d * F(step), F(0), -32, 31)
        for l, code in enumerate(codes):  # noqa: E741
            element = 16 * g + l
            made.put(64 * (element // 128) + element % 64, 4 * (element % 128 // 64), code & 15)
            made.put(128 + 32 * (element // 128) + element % 32, 2 * (element % 128 // 32), code >> 4)
    return bytes(made.bytes) + d_bytes


def quantile_code(value: F) -> int:
    """best_index_int8."""
    if value <= QUANTILES[0]:
        return 0
    if value >= QUANTILES[-1]:
        return 15
    place = next(k for k, (_, upper) in enumerate(pairwise(QUANTILES)) if value < upper)
    return place if value - F(QUANTILES[place]) < F(QUANTILES[place + 1]) - value else place + 1


def quantile_scale(x: Numbers, w: Numbers) -> F:
    most = extreme(x)
    if abs(most) < EPSILON:
        return F(0)
    scale = best = F(0)
    for number, inverse in enumerate([F(1) / (-most / F(-127)), *(F(step - 127) / most for step in range(-7, 8))]):
        quantiles = [F(QUANTILES[quantile_code(inverse * value)]) for value in x]
        sum_qx = total([weight * q * value for q, value, weight in zip(quantiles, x, w, strict=True)])
        sum_q2 = total([weight * q * q for q, weight in zip(quantiles, w, strict=True)])
        if number == 0 or (sum_q2 > 0 and sum_qx * sum_qx > best * sum_q2):
            scale = sum_qx / sum_q2 if sum_q2 > 0 else F(0)
            best = scale * sum_qx
    return scale


def reciprocal(value: F) -> F:
    return F(1) / value if value else F(0)


def iq4_nl(x: Numbers, importance: Weights) -> bytes:
    weights = [v * v for v in x] if importance is None else important(x, importance, 2)
    scale = quantile_scale(x, weights)
    made = Bits(16)
    for element, value in enumerate(x):
        made.put(element % 16, 4 * (element // 16), quantile_code(reciprocal(scale) * value))
    return half(scale)[1] + bytes(made.bytes)


def iq4_xs(x: Numbers, importance: Weights) -> bytes:
    weights = [v * v for v in x] if importance is None else important(x, importance, 2)
    parts = groups(x, 32)
    scales = [quantile_scale(part, w) for part, w in zip(parts, groups(weights, 32), strict=True)]
    d = -extreme(scales) / F(32)
    made = Bits(134)
    for g, part in enumerate(parts):
        step = clamp(nearest_int(reciprocal(d) * scales[g]), -32, 31)
        made.put(g // 4, 2 * (g % 4), (step + 32) >> 4)
        made.put(2 + g // 2, 4 * (g % 2), (step + 32) & 15)
        for l, value in enumerate(part):  # noqa: E741
            made.put(6 + 16 * g + l % 16, 4 * (l // 16), quantile_code(reciprocal(d * F(step)) * value))
    return half(d)[1] + bytes(made.bytes)


BLOCKS: dict[str, tuple[int, Callable[[Numbers, Weights], bytes]]] = {
    "Q2_K": (256, q2_k),
    "Q3_K": (256, q3_k),
    "Q4_K": (256, q4_k),
    "Q5_K": (256, q5_k),
    "Q6_K": (256, q6_k),
    "IQ4_NL": (32, iq4_nl),
    "IQ4_XS": (256, iq4_xs),
}
"""By the names of the types: elements of a block, and its bytes."""
