"""Options and parts of reports that several operations have."""

from __future__ import annotations

from collections.abc import Callable

from requant.description import (
    Choices,
    Chooses,
    Kind,
    Member,
    NumbersInput,
    OperationCall,
    Option,
    RecordMember,
    Records,
    RecordsInput,
    Report,
)
from requant.errors import ParameterError
from requant.plan.plan import Packing
from requant.profiles import PROFILES
from requant.schemes import Multiplier

TRACE = Option(
    name="trace",
    kind=Kind.BOOLEAN,
    description="Whether to return every stage. Default: false.",
    default=False,
)
TRACED_REPLY = "The output, a report, and the trace if requested."
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
        chooses=Chooses.RULES,
    )


USED_MULTIPLIER = Report(
    title="UsedMultiplier",
    description="An integer multiplier and a shift, in the sign convention of the scheme.",
    members=(Member(name="multiplier"), Member(name="shift", bits=32)),
)


# The largest are those of f64 factors. JSON readers that have only doubles read them exactly.
MAX_MULTIPLIER, MAX_SHIFT = 2**53, 2048


def multipliers_input(description: str, first: str, max_length: int) -> RecordsInput:
    """Return the multipliers of a call. `first`: what is said of them as an input of their own, beside the shifts."""

    def member(name: str, said: str, bits: int, highest: int) -> RecordMember:
        numbers = NumbersInput(name=f"{name}s", kind=Kind.INTEGER, description=said, optional=True, model_name=name)
        return RecordMember(name=name, numbers=numbers, bits=bits, highest=highest)

    return RecordsInput(
        name="multipliers",
        description=description,
        title="MultiplierPair",
        record_description=USED_MULTIPLIER.description,
        members=(
            member("multiplier", first, 64, MAX_MULTIPLIER),
            member("shift", "One per multiplier.", 32, MAX_SHIFT),
        ),
        max_length=max_length,
    )


def given_multipliers(call: OperationCall) -> tuple[Multiplier, ...] | None:
    """Return the multipliers of a call, None where there are none.

    Raise ParameterError unless there are as many shifts.
    """
    multipliers, shifts = (call.numbers.get(name) for name in ("multipliers", "shifts"))
    if multipliers is None and shifts is None:
        return None
    if multipliers is None or shifts is None or multipliers.size != shifts.size:
        raise ParameterError("multipliers and shifts come together, as many of each")
    return tuple(map(Multiplier, multipliers.reshape(-1).tolist(), shifts.reshape(-1).tolist()))


def used_multipliers(description: str) -> Records:
    """Return the multipliers of a trace."""
    return Records(name="multipliers", description=description, record=USED_MULTIPLIER)


ERROR_MEASURES = (
    Member(
        name="left_out",
        description="Elements that are NaN or infinite on either side, excluded from the error measures.",
    ),
    Member(name="max_absolute_error", kind=Kind.NUMBER, description="Largest |b - a|.", optional=True),
    Member(name="mean_absolute_error", kind=Kind.NUMBER, description="Mean of |b - a|.", optional=True),
    Member(
        name="sqnr_db",
        kind=Kind.NUMBER,
        description="10 log10(sum a^2 / sum (b - a)^2). Absent if either sum is 0.",
        optional=True,
    ),
)
_ERROR = Member(
    name="error",
    title="ErrorMeasures",
    group_description="Error measures of the real values, in binary64. Values that are not finite are absent.",
    description="The error of the result against the input, if requested.",
    members=ERROR_MEASURES,
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
    _ERROR,
)
REPORT = Report(title="Report", description="Counts of special elements.", members=COUNTS)
