"""Multipliers derived from scales or factors: one from text, with how well it represents the factor; or many."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from requant.errors import ParameterError
from requant.errors.cancellation import checked
from requant.schemes import Factor, Multiplier, Scheme, scheme_named
from requant.schemes.scheme import parse_factor

Scales = NDArray[np.float64]

# Room for every value of every scheme: the longest have 1074 digits after the point.
_EXACT = Context(prec=1200, traps=[Inexact])


@dataclass(frozen=True, slots=True)
class DerivedMultiplier:
    """A multiplier and shift, the real value that they stand for, and how far that is from the factor.

    `represented` is decimal text with all of the value's digits, and `fraction` the same as numerator/denominator, the
    denominator a power of two. `relative_error` is represented / factor - 1. `factor` is the f64 that they were
    derived from, as the shortest decimal text that reads back to it.
    """

    multiplier: int
    shift: int
    represented: str
    fraction: str
    factor: str
    relative_error: float


def derive_multiplier(text: str, scheme: str) -> DerivedMultiplier:
    """Derive multiplier and shift for the factor in `text` (decimal or C99 hexadecimal, read as f64) by the scheme."""
    return _derived(parse_factor(text), scheme_named(scheme))


def derive_from_scales(scale_in: str, other: str | None, scale_out: str, scheme: str) -> DerivedMultiplier:
    """The same for the factor that the scheme forms from an input scale, perhaps another scale, and an output scale.

    Raise ParameterError, pointing at `input`, `weight` or `output`, for a scale that is not above 0.
    """
    rule = scheme_named(scheme)
    texts = {"input": scale_in, "output": scale_out} | ({} if other is None else {"weight": other})
    scales = {name: _scale(text, name) for name, text in texts.items()}
    return _derived(rule.factor.of(scales["input"], scales.get("weight"), scales["output"]), rule)


def _scale(text: str, name: str) -> float:
    try:
        scale = parse_factor(text)
        if scale <= 0.0:
            raise ParameterError(f"a scale is above 0; this one is {scale!r}")
    except ParameterError as error:
        raise ParameterError(error.detail, pointer=f"/{name}") from None
    return scale


def _derived(factor: float, scheme: Scheme) -> DerivedMultiplier:
    derived = scheme.derive(factor)
    value = scheme.represented(derived)
    # value / factor - 1 as a quotient of integers, which is rounded once, and quicker than as a fraction.
    numerator, denominator = factor.as_integer_ratio()
    exact = numerator * value.denominator
    difference = value.numerator * denominator - exact
    error = difference / exact if factor and difference else 0.0
    fraction = f"{value.numerator}/{value.denominator}"
    return DerivedMultiplier(derived.multiplier, derived.shift, _decimal_text(value), fraction, repr(factor), error)


def _decimal_text(value: Fraction) -> str:
    """Return all digits of `value`, whose denominator is a power of two. It may be 2^1024, which no double holds."""
    return str(_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)))


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
            multiplier = scheme.derive_checked(real)
        except ParameterError as error:
            sides = [float(each[channel]) for each in (inputs, weights) if each is not None]
            product = " * ".join(map(repr, sides))
            detail = f"channel {channel}, scales {product} to {float(outputs[channel])!r}: {error.detail}"
            raise ParameterError(detail) from error
        derived[real] = multiplier
    return [derived[real] for real in factors], factors
