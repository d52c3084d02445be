"""Parameter sets worth testing, for calls that give none.

Scales: 1 and the adjacent floats, a power of two, another one, the smallest and largest normal, a subnormal, one
whose reciprocal is subnormal. Multipliers: the smallest and the largest, a power of two, and random ones, each with
shifts over the whole range. Zero points cycle: 0, the lowest, the highest, a random one. Sets that a profile or
scheme refuses are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from math import ldexp

from requant.convert.vectors.draw import Draws
from requant.convert.vectors.number_line import Floats
from requant.convert.vectors.reason import ParameterReason as Why
from requant.formats.elements import FloatElement
from requant.formats.float_format import round_to_format
from requant.mlir.types import StorageType
from requant.schemes import Float, Multiplier, Scheme

_TYPICAL_RIGHT_SHIFT = 8


ZeroPoints = Iterator[tuple[int, tuple[Why, ...]]]


def zero_points_of(storage: StorageType, draws: Draws) -> ZeroPoints:
    """Yield the zero points of a storage type and the reasons, cyclically."""
    lowest, highest = storage.default_bounds
    while True:
        yield min(max(0, lowest), highest), ()
        yield lowest, (Why.ZERO_POINT_MINIMUM,)
        yield highest, (Why.ZERO_POINT_MAXIMUM,)
        yield draws.between(lowest, highest), ()


def designed_scales(
    storage: StorageType, real: FloatElement, seed: int, most: int
) -> Iterator[tuple[float, int, tuple[Why, ...]]]:
    """Yield at most `most` scales with zero point and reason."""
    draws = Draws(seed)
    format_ = Floats(real.name).format
    ulp = 2.0**-format_.mantissa_bits
    normal = format_.smallest_normal
    drawn = ldexp(1 + draws.below(1 << 20) / (1 << 20), -draws.between(1, 12))
    scales = [
        (round_to_format(drawn, real), Why.RANDOM),
        (0.5, Why.SCALE_POWER_OF_TWO),
        (1.0, Why.SCALE_ONE),
        (1.0 + ulp, Why.SCALE_ONE_ULP_ABOVE_ONE),
        (1.0 - ulp / 2, Why.SCALE_ONE_ULP_BELOW_ONE),
        (normal, Why.SCALE_SMALLEST_NORMAL),
        (normal * (1 - ulp), Why.SCALE_SUBNORMAL),
        (ldexp(1.0, format_.bias), Why.RECIPROCAL_SUBNORMAL),
        (format_.largest, Why.SCALE_LARGEST),
    ]
    zero_points = zero_points_of(storage, draws)
    for (scale, why), (zero_point, more) in islice(zip(scales, zero_points, strict=False), most):
        yield scale, zero_point, (why, *more)


def designed_multipliers(
    scheme: Scheme, width: int, inputs: ZeroPoints, outputs: ZeroPoints, draws: Draws, most: int
) -> Iterator[tuple[Multiplier, tuple[int, int], tuple[Why, ...]]]:
    """Yield at most `most` multipliers with shift, both zero points and the reason. `width`: bits of an input."""
    for given, why in islice(_pairs(scheme, width, draws), most):
        zero_point, more = next(outputs)
        yield given, (next(inputs)[0], zero_point), (*why, *more)


def _pairs(scheme: Scheme, width: int, draws: Draws) -> Iterator[tuple[Multiplier, tuple[Why, ...]]]:
    """Yield multipliers with shifts."""
    lowest, highest = scheme.multipliers
    largest_bits = highest.bit_length()
    power = 1 << (largest_bits - 1)
    half = power >> 1 if power == highest else power
    shifts = sorted((scheme.shifts[0], scheme.shifts[1]), key=scheme.right_shift)

    def shift_of(right: int) -> int:
        """Return the right shift by this many bits, or the nearest that the scheme supports."""
        sign = scheme.right_shift(1) - scheme.right_shift(0)
        wanted = (right - scheme.right_shift(0)) * sign
        return min(max(wanted, scheme.shifts[0]), scheme.shifts[1])

    # From the width of the input to about 8 bits.
    typical = shift_of(largest_bits + max(width - 12, 1))
    drawn = [draws.between(half, highest) for _ in range(4)]
    if isinstance(scheme.stage, Float) and scheme.multipliers[0] < 0:
        lowest = 0
    yield Multiplier(drawn[0], typical), (Why.RANDOM,)
    yield Multiplier(half, typical), (Why.MULTIPLIER_POWER_OF_TWO,)
    yield Multiplier(highest, typical), (Why.MULTIPLIER_MAXIMUM,)
    yield Multiplier(drawn[1], shift_of(largest_bits)), (Why.RANDOM,)
    yield Multiplier(drawn[2], shifts[0]), (Why.SHIFT_MINIMUM,)
    yield Multiplier(drawn[3], shifts[1]), (Why.SHIFT_MAXIMUM,)
    yield Multiplier(1, typical), (Why.MULTIPLIER_ONE,)
    yield Multiplier(lowest, typical), (Why.MULTIPLIER_MINIMUM,)
    for multiplier, shift in product((highest, half), shifts):
        of_shift = Why.SHIFT_MINIMUM if shift == shifts[0] else Why.SHIFT_MAXIMUM
        of_multiplier = Why.MULTIPLIER_MAXIMUM if multiplier == highest else Why.MULTIPLIER_POWER_OF_TWO
        yield Multiplier(multiplier, shift), (of_multiplier, of_shift)
