"""The search for scales in blocks of 256 elements, as ggml's quantizers do it: ggml 0.25's ggml-quants.c, on x86-64.

Arrays are those of `blocks.side_by_side`: [blocks / 16, numbers of a block, 16]. Where `importance` is None, what
quantize_row_..._ref does, else quantize_row_..._impl: then errors are weighted, by the importance of a column and the
magnitude of an element, and the scales of the groups are fitted in turn to integers by their weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf.blocks import apart, packed_fields, side_by_side
from requant.kernels.checkpoint import scale_search as kernels

Array = NDArray[Any]

_SHIFTER = np.float32(12582912)
_ONE, _TWO = np.float32(1), np.float32(2)


def nearest(values: Array) -> Array:
    """Return int32 as ggml's nearest_int: RNE below 2^22, and what the bits of the sum give for all else."""
    integers: Array = ((values + _SHIFTER).view("<i4") & np.int32(0x007FFFFF)) - np.int32(0x00400000)
    return integers


def ladder(first: float, step: float, steps: int, highest: int) -> Array:
    """Return first + step * i + highest for i to `steps`, each step in f32."""
    places = np.arange(steps + 1, dtype="<f4")
    return np.float32(first) + np.float32(step) * places + np.float32(highest)


def sums(values: Array, width: int) -> Array:
    """Return the sums of groups of `width` elements, in their order."""
    totals = np.empty((values.shape[0], values.shape[1] // width, values.shape[2]), "<f4")
    kernels.sums(values.reshape(-1), width, totals.reshape(-1))
    return totals


def per_group(numbers: Array, width: int) -> Array:
    """Return each number of a group as often as the group has elements."""
    return np.repeat(numbers, width, axis=1)


def important(values: Array, importance: Array, factor: int) -> Array:
    """Return the weights importance * sqrt(factor * mean of x^2 in the block + x^2)."""
    squares = values * values
    count = values.shape[1]
    variance = np.float32(factor) * sums(squares, count) / np.float32(count)
    weights: Array = importance * np.sqrt(variance + squares)
    return weights


def largest(numbers: Array) -> Array:
    """Return the largest number of each block [.., 1, 16], at least 0."""
    found = np.zeros_like(numbers[:, :1])
    for place in range(numbers.shape[1]):
        each = numbers[:, place : place + 1]
        found = np.where(each > found, each, found)
    return found


def extreme(numbers: Array) -> Array:
    """Return of each block [.., 1, 16] the first number of the largest magnitude; 0 where there is none above 0."""
    found = np.zeros_like(numbers[:, :1])
    for place in range(numbers.shape[1]):
        each = numbers[:, place : place + 1]
        found = np.where(np.abs(each) > np.abs(found), each, found)
    return found


def rounded_to_f16(values: Array) -> Array:
    """Return the f32 that the nearest f16 is."""
    return values.astype("<f2").astype("<f4")


def quotient(dividend: float, divisors: Array) -> Array:
    """Return dividend / divisor, and 0 where that is not above 0."""
    return np.where(divisors > 0, np.float32(dividend) / divisors, np.float32(0))


def search_with_minimum(
    values: Array, weights: Array, width: int, highest: int, tries: Array, *, absolute: bool = False
) -> tuple[Array, Array, Array]:
    """Return codes, scales and minimums: x is near to scale * code - minimum."""
    codes, (scales, minimums) = _codes(values), (_numbers(values, width) for _ in range(2))
    arrays = (each.reshape(-1) for each in (scales, minimums, codes))
    kernels.search_with_minimum(values.reshape(-1), weights.reshape(-1), width, highest, tries, absolute, *arrays)
    return codes, scales, minimums


def search_symmetric(values: Array, weights: Array, width: int, half: int) -> tuple[Array, Array]:
    """Return codes + half, and scales: x is near to scale * code, of either sign."""
    codes, scales = _codes(values), _numbers(values, width)
    kernels.search_symmetric(
        values.reshape(-1), weights.reshape(-1), width, half, scales.reshape(-1), codes.reshape(-1)
    )
    return codes, scales


def search_by_element(values: Array, width: int, half: int) -> tuple[Array, Array]:
    """Return the same of codes that are changed in turn, for errors weighted by x^2."""
    codes, scales = _codes(values), _numbers(values, width)
    kernels.search_by_element(values.reshape(-1), width, half, scales.reshape(-1), codes.reshape(-1))
    return codes, scales


def fit_positive(numbers: Array, weights: Array, highest: int) -> tuple[Array, Array]:
    """Return of the scales or minimums of blocks codes, and a scale for each block."""
    codes, scales = _codes(numbers), _numbers(numbers, numbers.shape[1])
    kernels.search_positive(
        numbers.reshape(-1), weights.reshape(-1), numbers.shape[1], highest, scales.reshape(-1), codes.reshape(-1)
    )
    return codes, scales


def search_quantiles(values: Array, weights: Array, width: int, midpoints: Array, quantiles: Array) -> Array:
    """Return scales: x is near to scale * quantile, of either sign."""
    scales = _numbers(values, width)
    kernels.search_quantiles(values.reshape(-1), weights.reshape(-1), width, midpoints, quantiles, scales.reshape(-1))
    return scales


def quantile_codes(values: Array, inverses: Array, midpoints: Array) -> Array:
    """Return the codes of the quantiles nearest to inverse * x."""
    codes = _codes(values)
    width = values.shape[1] // inverses.shape[1]
    kernels.quantile_codes(values.reshape(-1), width, inverses.reshape(-1), midpoints, codes.reshape(-1))
    return codes


def round_again(codes: Array, values: Array, scales: Array, minimums: Array | None, lowest: int, highest: int) -> None:
    """Replace codes by those of the scales that are stored. Where a scale is 0 they stay."""
    subtracted = np.zeros_like(scales) if minimums is None else minimums
    kernels.codes_of_scales(
        values.reshape(-1),
        values.shape[1] // scales.shape[1],
        np.ascontiguousarray(scales).reshape(-1),
        np.ascontiguousarray(subtracted).reshape(-1),
        lowest,
        highest,
        codes.reshape(-1),
    )


_PLAIN = {"Q4_0": 4, "Q4_1": 4, "Q5_0": 5, "Q5_1": 5}


def write_plain_blocks(name: str, rows: Array, importance: Array) -> Array:
    """Return the bytes of rows [n, columns] in blocks of 32 of Q4_0, Q4_1, Q5_0 or Q5_1, by the importance of each
    element: weights are importance * sqrt(mean of x^2 in the row + x^2).

    d may be infinite, and the minimum of Q4_1 and Q5_1.
    """
    columns = rows.shape[1]
    squares = side_by_side(rows * rows)
    variances = apart(sums(squares, columns) / np.float32(columns), len(rows))
    values = side_by_side(rows.reshape(-1, 32))
    of_blocks = side_by_side(np.repeat(variances, columns // 32, axis=0))
    weights = side_by_side(importance.reshape(-1, 32)) * np.sqrt(of_blocks + values * values)
    bits, count = _PLAIN[name], rows.size // 32
    if name.endswith("1"):
        highest = (1 << bits) - 1
        codes, scales, minimums = search_with_minimum(values, weights, 32, highest, ladder(-0.9, 0.05, 36, highest))
        heads = np.concatenate([apart(scales, count), -apart(minimums, count)], axis=1)
    else:
        codes, scales = search_symmetric(values, weights, 32, 1 << (bits - 1))
        heads = apart(scales, count)
    with np.errstate(over="ignore"):
        parts = [heads.astype("<f2").view("|u1")]
    of_all = apart(codes, count)
    if bits == 5:
        parts.append(np.packbits(of_all >> 4, axis=1, bitorder="little"))
    parts.append(packed_fields((of_all & np.uint8(15)).reshape(-1, 2, 16)))
    return np.concatenate(parts, axis=1)


def _codes(values: Array) -> Array:
    return np.empty(values.shape, "|u1")


def _numbers(values: Array, width: int) -> Array:
    return np.empty((values.shape[0], values.shape[1] // width, values.shape[2]), "<f4")
