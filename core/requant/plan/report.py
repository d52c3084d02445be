"""What happened to the elements of a tensor while it was converted."""

from __future__ import annotations

from typing import NamedTuple


class Report(NamedTuple):
    """The tally of one conversion.

    An element is saturated (low or high) when the integer that the profile's arithmetic gives before it is clamped lies
    outside the storage bounds; it then holds a bound, or what the profile puts there instead. One that a conversion to
    int32 on the way does not hold becomes -2^31 there, and is low unless the sum with the zero point is above the
    bounds. NaN inputs are counted in `nan` only. `rounding` names the rule that was applied.
    """

    profile: str
    rounding: str
    elements: int
    saturated_low: int
    saturated_high: int
    nan: int
