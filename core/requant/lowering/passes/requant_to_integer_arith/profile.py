"""Whose arithmetic the pass emits: a profile's, or a scheme's in the place of it. Both have to have fixed point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from requant.errors import UnsupportedError
from requant.lowering.passes.rewriting import Options
from requant.profiles import PROFILES, Operation, Profile
from requant.profiles.integer_rule import Addition
from requant.schemes import SCHEMES, FixedPoint

PROFILE, SCHEME, OF_PROFILE = "profile", "scheme", "of-profile"
DEFAULT = "litert"

FIXED_POINT_SCHEMES = tuple(name for name, scheme in SCHEMES.items() if isinstance(scheme.stage, FixedPoint))


def _schemes(profile: Profile) -> Iterator[str | None]:
    """Return the schemes of everything that a profile scales by one."""
    rule = profile.operations.get(Operation.REQUANTIZE)
    if rule is not None:
        yield from (each.scheme for each in (rule, *rule.variants.values()))
    for product in profile.products.values():
        yield from (each.scheme for each in (product, *product.variants.values()))


def has_fixed_point(profile: Profile) -> bool:
    """Return whether something that the profile defines is computed by integer multipliers and shifts."""
    adds = profile.addition is not None and profile.addition.addition in (
        Addition.FIXED_POINT,
        Addition.RESCALE,
        Addition.COMMON_SCALE,
    )
    return adds or not {*_schemes(profile)}.isdisjoint(FIXED_POINT_SCHEMES)


FIXED_POINT_PROFILES = tuple(name for name, profile in PROFILES.items() if has_fixed_point(profile))
OPTIONS = {
    PROFILE: (DEFAULT, *(name for name in PROFILES if name != DEFAULT)),
    SCHEME: (OF_PROFILE, *SCHEMES),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A profile, and the scheme that replaces its own, if one does."""

    profile: str
    scheme: str | None

    @classmethod
    def of(cls, options: Options) -> Choice:
        """Return what the options name. Raises UnsupportedError, naming those that there are, without fixed point."""
        profile, scheme = options[PROFILE], None if options[SCHEME] == OF_PROFILE else options[SCHEME]
        chosen = cls(profile, scheme)
        if scheme is not None:
            chosen.check(scheme)
        elif profile not in FIXED_POINT_PROFILES:
            raise UnsupportedError(
                f"profile {profile} has no fixed point; {', '.join(FIXED_POINT_PROFILES)} have. With a scheme any "
                f"profile is taken: {', '.join(FIXED_POINT_SCHEMES)}"
            )
        return chosen

    def check(self, scheme: str | None) -> None:
        """Raise UnsupportedError, naming those that there are, for a scheme without fixed point."""
        if scheme not in FIXED_POINT_SCHEMES:
            named = "a float factor" if scheme is None else f"scheme {scheme}"
            where = "" if self.scheme else f"profile {self.profile} computes this by {named}; "
            raise UnsupportedError(
                f"{where}{named} has no fixed point; a scheme that has is one of {', '.join(FIXED_POINT_SCHEMES)}"
            )
