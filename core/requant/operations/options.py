"""Options and parts of reports that several operations have."""

from __future__ import annotations

from collections.abc import Callable

from requant.description import Choices, Kind, Member, Option, Records, Report
from requant.plan.plan import Packing
from requant.profiles import PROFILES

TRACE = Option(
    name="trace",
    kind=Kind.BOOLEAN,
    description="Whether to return every stage. Default: false.",
    default=False,
)
PACKING = Option(
    name="packing",
    description="How elements of widths other than 8, 16 or 32 bits, such as i4 or i12, are stored in `data`.",
    default=Packing.UNPACKED,
    choices=Choices.of(Packing),
)


def output_type(description: str, *examples: str) -> Option:
    """Return the option that has the type of the output."""
    return Option(name="output_type", kind=Kind.TYPE, description=description, examples=examples)


def profile(default: str, defines: Callable[[str], bool]) -> Option:
    """Return the option that names the profile. `defines`: whether a profile defines the operation."""
    return Option(
        name="profile",
        description="",
        default=default,
        choices=Choices("ProfileName", tuple(filter(defines, PROFILES)), "The arithmetic contract."),
    )


USED_MULTIPLIERS = (Member(name="multiplier"), Member(name="shift"))


def used_multipliers(description: str) -> Records:
    """Return the multipliers of a trace."""
    return Records(name="multipliers", title="UsedMultiplier", description=description, members=USED_MULTIPLIERS)


_ERROR_MEASURES = Member(
    name="error",
    title="ErrorMeasures",
    description="The error of the result against the input, if requested.",
    optional=True,
)
COUNTS = (
    Member(name="profile", kind=Kind.TEXT),
    Member(
        name="scheme",
        kind=Kind.TEXT,
        description="The requantization scheme, if it has multipliers.",
        optional=True,
    ),
    Member(name="rounding", kind=Kind.TEXT),
    Member(name="elements"),
    Member(name="saturated_low", description="Elements below the lower storage bound, or the lowest finite value."),
    Member(name="saturated_high", description="Elements above the upper storage bound, or the highest finite value."),
    Member(name="nan", description="NaN elements of the input."),
    _ERROR_MEASURES,
)
REPORT = Report(title="Report", description="Counts of special elements.", members=COUNTS)
