"""Where systems differ from each other, and implementations from their system, though random numbers do not show it.

Scales one ulp beside powers of two, at the ends of their type, and where a reciprocal becomes subnormal or infinite;
zero points at both ends; a NaN or an infinity among ordinary numbers, at each place of tensors too short for whole
vectors; odd counts; blocks of one element and of a whole axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.interop.quantized_case import NUMPY, Case, bounds, parameter_counts, spread_parameters
from tests.support.float_samples import SPECIAL

Array = NDArray[Any]
Takes = Callable[[float], bool]

# The exponents of the largest numbers and of the smallest normal and subnormal ones.
_EXPONENTS = {"f32": (127, -126, -149), "f16": (15, -14, -24), "bf16": (127, -126, -133), "f64": (1023, -1022, -1074)}
LONGEST = 70
"""Elements of the longest short tensor: more than a vector of 64 bytes, by a rest."""
SIZE = 1031
"""Elements of a tensor with one of the scales."""
AMONG = np.array([*SPECIAL[:5], 3e38, -3e38, 2.0**31, -(2.0**31), -0.0, 1e-45], np.float32)
"""What short tensors have one of."""


def beside(value: float, expressed: str) -> list[float]:
    """The number of a type and both of its neighbours, as far as they are finite and above 0."""
    bits = np.array(value).astype(NUMPY[expressed]).view(f"i{NUMPY[expressed].itemsize}")
    with np.errstate(all="ignore"):
        near = (bits + np.arange(-1, 2, dtype=bits.dtype)).view(NUMPY[expressed]).astype(np.float64)
    return [float(each) for each in near if np.isfinite(each) and each > 0]


def scales(expressed: str, rng: np.random.Generator) -> list[float]:
    """Scales of the expressed type, all exact in it: each in turn with its neighbours."""
    largest, normal, subnormal = _EXPONENTS[expressed]
    # 2^(largest - 1) has the smallest normal reciprocal, and 2^-(largest + 1) the first that is infinite.
    exponents = [0, -1, 1, largest, largest - 1, normal, subnormal, subnormal + 1, -largest, -largest - 1]
    exponents += rng.integers(subnormal + 2, largest, 3).tolist()
    found = [each for exponent in exponents for each in beside(2.0**exponent, expressed)]
    return sorted(
        {*found, *beside(float(np.finfo(np.float64).max if expressed == "f64" else 2.0**largest * 1.9), expressed)}
    )


def zero_points(storage: str, *, symmetric: bool = False) -> list[int]:
    """Both ends of the storage and an odd one."""
    if symmetric or storage.startswith("f"):
        return [0]
    lowest, highest = bounds(storage)
    return sorted({lowest, highest, min(3, highest)})


def layouts(
    storage: str, expressed: str, rng: np.random.Generator, granularity: str, *, symmetric: bool = False
) -> list[Case]:
    """Small tensors of odd counts with parameters along the first, a middle and the last axis, or for blocks.

    The blocks are of one element, of a whole axis, longer than it, and with a shorter last one. Of one element they lie
    along the last axis: a type does not say along which.
    """
    shapes: list[tuple[tuple[int, ...], int, int | None]]
    if granularity == "per_axis":
        shapes = [((5, 3, 7), axis, None) for axis in range(3)] + [((1, 9), 0, None), ((9, 1), 1, None)]
    else:
        shapes = [((5, 3, 7), axis, block) for axis in range(3) for block in (2, (5, 3, 7)[axis], 8)]
        shapes += [((5, 3, 7), 2, 1), ((1, 1), 1, 1), ((3, 33), 1, 32), ((3, 33), 1, 16)]
    found = []
    for shape, axis, block in shapes:
        counts = parameter_counts(shape, axis, block)
        parameters = spread_parameters(counts, storage, expressed, rng, symmetric=symmetric)
        found.append(Case(shape, storage, expressed, *parameters, axis, block))
    return found


def cases(
    storage: str,
    expressed: str,
    rng: np.random.Generator,
    takes: Takes = lambda scale: True,
    granularities: tuple[str, ...] = ("per_axis",),
    *,
    symmetric: bool = False,
) -> Iterator[Case]:
    """A tensor for each scale that the system takes, with one of the zero points; small ones of other granularities."""
    points = zero_points(storage, symmetric=symmetric)
    for scale in filter(takes, scales(expressed, rng)):
        yield Case((SIZE,), storage, expressed, np.array(scale), np.array(rng.choice(points)))
    for granularity in granularities:
        yield from layouts(storage, expressed, rng, granularity, symmetric=symmetric)


def short(storage: str, expressed: str, rng: np.random.Generator, *, symmetric: bool = False) -> Iterator[Case]:
    """Tensors of 1 to `LONGEST` elements."""
    for size in range(1, LONGEST + 1):
        zero_point = np.array(rng.choice(zero_points(storage, symmetric=symmetric)))
        yield Case((size,), storage, expressed, np.array(0.5), zero_point)


def reals(
    storage: str,
    expressed: str,
    rng: np.random.Generator,
    takes: Takes = lambda scale: True,
    granularities: tuple[str, ...] = ("per_axis",),
) -> Iterator[tuple[Case, Array]]:
    """Reals to quantize in all these cases, and in short tensors, with one of `AMONG` at the first place, the last, or
    one between."""
    for case in cases(storage, expressed, rng, takes, granularities):
        yield case, case.real_data(rng)
    for case in short(storage, expressed, rng):
        (size,) = case.shape
        for place in {0, size - 1, int(rng.integers(size))}:
            with np.errstate(all="ignore"):
                values = (rng.integers(-9, 10, size) / np.float32(4)).astype(NUMPY[expressed])
                values[place] = rng.choice(AMONG).astype(NUMPY[expressed])
            yield case, values


def stored(
    storage: str,
    expressed: str,
    rng: np.random.Generator,
    takes: Takes = lambda scale: True,
    granularities: tuple[str, ...] = ("per_axis",),
    *,
    symmetric: bool = False,
) -> Iterator[tuple[Case, Array]]:
    """Stored numbers to dequantize in all these cases, and in short tensors."""
    for case in cases(storage, expressed, rng, takes, granularities, symmetric=symmetric):
        yield case, case.stored_data(rng)
    for case in short(storage, expressed, rng, symmetric=symmetric):
        yield case, case.stored_data(rng)
