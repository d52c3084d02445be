"""The search of llm-compressor's observer `memoryless_mse` with norm 2, for one block, in exact fractions.

Sums are torch's, of vectors of eight f32, written as in its source: of lists, level by level.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from tests.oracles.compressed_tensors import F32, Dtype, Number, Weight, signed, step

Values = Callable[[Fraction, Fraction], list[Fraction]]
"""From a range to the values that the weights become."""


def best_range(
    weights: list[Weight], dtype: Dtype, values: Values, *, grid: int, steps: int, expand: Fraction = Fraction(1)
) -> tuple[Fraction, Fraction]:
    reals = [signed(each) for each in weights]

    def times(x: Fraction, factor: Fraction) -> Fraction:
        return Fraction(step(x * Fraction(F32.nearest(factor)), dtype))

    low, high = times(min(reals), expand), times(max(reals), expand)
    best, least = (low, high), Fraction(2) ** (dtype.highest + 1) - Fraction(2) ** (dtype.highest + 1 - dtype.precision)
    for number in range(steps):
        # A double, then an f32.
        factor = Fraction(1 - number / grid)
        tried = times(low, factor), times(high, factor)
        differences = [
            Fraction(step(value - real, dtype)) if value != real else Fraction(0)
            for value, real in zip(values(*tried), reals, strict=True)
        ]
        error = dtype.nearest(total([step(each * each, dtype) for each in differences], halves=dtype is not F32))
        if error < least:
            best, least = tried, Fraction(error)
    return best


def add(*terms: Number) -> Number:
    found = terms[0]
    for each in terms[1:]:
        if each:
            found = F32.nearest(found + each)
    return found


def total(terms: list[Number], *, halves: bool) -> Number:
    width = 16 if halves else 8
    whole = len(terms) // width
    if not whole:
        return sum_of_rows([[each] for each in terms])[0]
    vectors = [terms[i * width : (i + 1) * width] for i in range(whole)]
    rows = [[add(a, b) for a, b in zip(each[:8], each[8:], strict=True)] if halves else each for each in vectors]
    return add(Fraction(0), *terms[whole * width :], *sum_of_rows(rows))


def sum_of_rows(rows: list[list[Number]]) -> list[Number]:
    """`row_sum`: four sums of every fourth row, and the rest to the first."""
    lanes, quads = len(rows[0]), len(rows) // 4
    zeros: list[Number] = [Fraction(0)] * lanes
    power = max(4, (quads - 1).bit_length() // 4 if quads > 1 else 0)
    sums: list[list[Number]] = []
    for k in range(4):
        levels = [list(zeros) for _ in range(4)]
        for number in range(quads):
            levels[0] = [add(a, b) for a, b in zip(levels[0], rows[number * 4 + k], strict=True)]
            done = number + 1
            level = 0
            # A level is full: it is added to the next one, and that too if it is full.
            while level < 3 and done % (1 << power * (level + 1)) == 0:
                levels[level + 1] = [add(a, b) for a, b in zip(levels[level + 1], levels[level], strict=True)]
                levels[level] = list(zeros)
                level += 1
        sums.append([add(*column) for column in zip(*levels, strict=True)])
    for row in rows[quads * 4 :]:
        sums[0] = [add(a, b) for a, b in zip(sums[0], row, strict=True)]
    return [add(*column) for column in zip(*sums, strict=True)]
