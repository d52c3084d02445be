"""For which multipliers and shifts two schemes differ at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from requant.equality.decision import Equivalence, compare
from requant.equality.rules import requantization
from requant.errors import ParameterError
from requant.errors.cancellation import checked
from requant.mlir.types import Type
from requant.schemes import Multiplier, Scheme, scheme_named


@dataclass(frozen=True, slots=True)
class MultiplierDecision:
    """What two schemes make of one multiplier, in the convention of each.

    `refusal` says why one of them has no such multiplier; then there is no `equivalence`.
    """

    first: Multiplier
    second: Multiplier
    equivalence: Equivalence | None
    refusal: str = ""

    @property
    def differs(self) -> bool:
        """Whether any input has another outcome, or one by one scheme only."""
        return self.equivalence is not None and not self.equivalence.equal


def in_convention(multiplier: Multiplier, scheme: Scheme, other: Scheme) -> Multiplier:
    """Return the multiplier and shift of `other` that make the same right shift of the same product."""
    origin, sign = other.right_shift(0), other.right_shift(1) - other.right_shift(0)
    return Multiplier(multiplier.multiplier, sign * (scheme.right_shift(multiplier.shift) - origin))


def compare_schemes(
    first: str, second: str, input_type: Type, output_type: Type, multipliers: Iterable[Multiplier]
) -> Iterator[MultiplierDecision]:
    """Compare two schemes for each multiplier, which is given in the convention of the first.

    The types are element types as in `requant.equality.rules.requantization`; their scales do not count. Raise
    UnknownNameError for names of no scheme, and what `compare` raises.
    """
    one, other = scheme_named(first), scheme_named(second)
    for multiplier in checked(multipliers, 1):
        same = in_convention(multiplier, one, other)
        try:
            rules = [
                requantization(input_type, output_type, scheme=scheme.name, multiplier=each)
                for scheme, each in ((one, multiplier), (other, same))
            ]
        except ParameterError as error:
            yield MultiplierDecision(multiplier, same, None, error.detail)
            continue
        yield MultiplierDecision(multiplier, same, compare(rules[0], rules[1]))
