"""Inputs by bit patterns: the same on every machine, since nothing but integers and exact scaling goes into them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LENGTHS = range(131)
"""Those of the pieces that a tensor is converted in: around every multiple of every vector's elements."""

SHAPE = (65, 133)
ELEMENTS = SHAPE[0] * SHAPE[1]
"""No fewer than all LENGTHS together, and no multiple of a vector."""

_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
_MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


@lru_cache(300)
def words(count: int, stream: int) -> Array:
    """Return 64 bits for each index of a stream (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(stream << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        finished: Array = z ^ (z >> np.uint64(31))
    finished.flags.writeable = False
    return finished


def below(count: int, bound: int, stream: int) -> Array:
    """Return integers from 0 to bound - 1, as int64."""
    return (words(count, stream) % np.uint64(bound)).astype(np.int64)


def specials(element: str) -> Array:
    """Return what conversions treat apart, as bits: zeros, the bounds of subnormal and normal numbers, what lies beside
    1, infinities, and NaN quiet and signalling with several payloads; of both signs."""
    mantissa, width = _MANTISSA[element], _BITS[element]
    infinity = ((1 << (width - 1 - mantissa)) - 1) << mantissa
    one = (infinity >> 1 >> mantissa) << mantissa
    quiet = 1 << (mantissa - 1)
    magnitudes = [
        0, 1, 2, 3, (1 << mantissa) - 1, 1 << mantissa, (1 << mantissa) + 1, one - 1, one, one + 1, one + quiet,
        infinity - 1, infinity, infinity + 1, infinity + 5, infinity + quiet - 1, infinity + quiet,
        infinity + quiet + 1, infinity + 2 * quiet - 1,
    ]  # fmt: skip
    signed = [magnitude | sign for magnitude in magnitudes for sign in (0, 1 << (width - 1))]
    return np.array(signed, np.uint64).astype(f"u{width // 8}")


def bits_of(element: str, numbers: Array) -> Array:
    """Return f64 as the bits of floats of a type: rounded, to bf16 cut."""
    with np.errstate(over="ignore", under="ignore"):
        if element == "bf16":
            return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        width = _BITS[element]
        found: Array = numbers.astype(f"f{width // 8}").view(f"u{width // 8}")
    return found


def _around(lowest: int, highest: int, count: int, stream: int) -> Array:
    """Return numbers between two integers, in f64: integers, ties, and what lies between."""
    lowest, highest = max(lowest, -(1 << 40)), min(highest, 1 << 40)
    whole = lowest + below(count, highest - lowest + 1, stream)
    parts = np.array([0.0, 0.5, 0.25, -0.5, 0.75, 1.0 / 3.0])
    found: Array = whole + parts[below(count, parts.size, stream + 1)]
    return found


@lru_cache(1000)
def reals(element: str, scale: float = 1.0, zero_point: int = 0, lowest: int = -128, highest: int = 127) -> Array:
    """Return ELEMENTS floats as bits, for a conversion to integers from `lowest` to `highest`.

    The first half stays within the bounds: ties, and their neighbours. The second half has everything.
    """
    half, dtype = ELEMENTS // 2, np.dtype(f"u{_BITS[element] // 8}")
    inside = bits_of(element, (_around(lowest + 1, highest - 1, half, 1) - zero_point) * scale)
    inside = np.where(inside & (np.array(0, dtype) - 1 >> 1) > 0, inside + below(half, 3, 3).astype(dtype) - 1, inside)
    rest = ELEMENTS - half
    span = highest - lowest
    near = bits_of(element, (_around(lowest - 2, lowest + 2, rest, 4) - zero_point) * scale)
    far = bits_of(element, (_around(highest - 2, highest + 2 + span, rest, 6) - zero_point) * scale)
    found = specials(element)
    kinds = np.stack([
        near, near + below(rest, 3, 8).astype(dtype) - 1, far, found[below(rest, found.size, 9)],
        words(rest, 10).astype(dtype),
    ])  # fmt: skip
    everything = kinds[below(rest, len(kinds), 11), np.arange(rest)]
    return np.concatenate([inside.astype(dtype), everything.astype(dtype)])


@lru_cache(1000)
def integers(lowest: int, highest: int, count: int = ELEMENTS, stream: int = 20) -> Array:
    """Return integers within bounds, in int64; one of four within two of a bound."""
    span = highest - lowest
    drawn = lowest + (words(count, stream) % np.uint64(min(span + 1, (1 << 64) - 1))).astype(np.int64)
    edge = np.minimum(below(count, 3, stream + 1), min(span, 2))
    kind = below(count, 8, stream + 2)
    return np.where(kind == 0, lowest + edge, np.where(kind == 1, highest - edge, drawn))


def finite_f32(count: int, stream: int, smallest: int = 97, largest: int = 157) -> Array:
    """Return f32 with exponents from `smallest` to `largest`, biased; one of sixteen is a zero, one of 64 subnormal."""
    drawn = words(count, stream)
    exponents = smallest + (drawn >> np.uint64(40)) % np.uint64(largest - smallest + 1)
    exponents = np.where(drawn >> np.uint64(32) & np.uint64(63) == 1, np.uint64(0), exponents)
    bits = (drawn & np.uint64(0x807FFFFF)) | exponents << np.uint64(23)
    bits = np.where(drawn >> np.uint64(32) & np.uint64(15) == 0, bits & np.uint64(0x80000000), bits)
    return bits.astype(np.uint32).view(np.float32)


def any_f32(count: int, stream: int) -> Array:
    """Return f32 of which one of eight is special and one of eight has random bits."""
    kind, found = below(count, 8, stream + 1), specials("f32")
    bits = finite_f32(count, stream).view(np.uint32)
    bits = np.where(kind == 0, found[below(count, found.size, stream + 2)], bits)
    return np.where(kind == 1, words(count, stream + 3).astype(np.uint32), bits).astype(np.uint32).view(np.float32)
