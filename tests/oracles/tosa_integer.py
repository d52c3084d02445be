"""TOSA's MUL, TABLE and pools of integers, one element at a time, written from TOSA 1.0 and importing nothing of ours.

None stands for a result that a REQUIRE makes unpredictable.
"""

from __future__ import annotations

from collections.abc import Sequence

I16, I32 = range(-(2**15), 2**15), range(-(2**31), 2**31)


def _wrapped(number: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def multiply(a: int, b: int, shift: int) -> int | None:
    """Of i32 with a shift; of any integers without. The sum with the rounding term is one of 64 bits."""
    if not shift:
        return _wrapped(a * b, 32)
    result = _wrapped(a * b + 2**shift // 2, 64) // 2**shift
    return result if result in I32 else None


def of_8_bits(x: int, table: Sequence[int]) -> int:
    return table[x + 128]


def of_16_bits(x: int, table: Sequence[int]) -> int | None:
    index, fraction = divmod(x + 32768, 128)
    slope = table[index + 1] - table[index]
    return table[index] * 128 + slope * fraction if slope in I16 else None


def window(size: int, kernel: int, stride: int, before: int, place: int) -> range:
    """The indices that a window has within the tensor, in one dimension."""
    start = place * stride - before
    return range(max(start, 0), min(start + kernel, size))


def average(elements: Sequence[int], zeros: tuple[int, int], bounds: tuple[int, int]) -> int:
    """The mean of the elements of a window by reciprocal_scale and apply_scale_32."""
    n = len(elements)
    k = 0
    while 1 << k < n:
        k += 1
    multiplier, divisor = ((2**30 + 1) << k) // n, 2**30 << k
    assert 2**30 <= multiplier < 2**31
    total = sum(each - zeros[0] for each in elements)
    assert total in I32
    return min(max((total * multiplier + divisor // 2) // divisor + zeros[1], bounds[0]), bounds[1])
