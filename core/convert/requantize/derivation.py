"""Multipliers derived from scales, one for each block of a common granularity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.cancellation import checked
from core.errors import ParameterError
from core.schemes import Factor, Multiplier, Scheme

Scales = NDArray[np.float64]


def derive_each(
    scheme: Scheme, factor: Factor, inputs: Scales, weights: Scales | None, outputs: Scales
) -> tuple[list[Multiplier], list[float]]:
    """Return the multiplier of each block, and the factor that it is derived from.

    The arrays have one scale for each block. Raise ParameterError naming the first scales that have no multiplier.
    """
    factors = factor.of_each(inputs, weights, outputs)
    derived: dict[float, Multiplier] = {}
    for channel, real in enumerate(checked(factors)):
        if real in derived:
            continue
        try:
            multiplier = scheme.derive(real)
            scheme.check(multiplier)
        except ParameterError as error:
            sides = [float(each[channel]) for each in (inputs, weights) if each is not None]
            product = " * ".join(map(repr, sides))
            detail = f"channel {channel}, scales {product} to {float(outputs[channel])!r}: {error.detail}"
            raise ParameterError(detail) from error
        derived[real] = multiplier
    return [derived[real] for real in factors], factors
