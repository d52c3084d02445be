"""The options of conversions, each described once: every protocol takes those of an operation by these names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from requant.convert.quantize import NanPolicy, rounding_named
from requant.convert.quantize_plans import ROUNDINGS
from requant.profiles import Operation
from requant.schemes import SCHEMES, scheme_named

Value = str | int | float | bool

LARGEST_INTEGER = (1 << 63) - 1

# The largest are those of f64 factors. JSON readers that have only doubles read them exactly.
LARGEST_MULTIPLIER, LARGEST_SHIFT = 2**53, 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A keyword of the function that plans an operation, as clients give it. Without `default` it may be absent.

    Integers are 0 to `highest`. `choices` are the texts that can be given, the set `named` in the OpenAPI document.
    `read` makes what the function takes of a value, and raises UnknownNameError for a text that is none of the choices,
    unless it is an enumeration, whose texts the protocols check.
    """

    name: str
    description: str
    kind: type[str] | type[int] | type[float] | type[bool] = str
    default: Value | None = None
    choices: tuple[str, ...] = ()
    named: str = ""
    highest: int = LARGEST_INTEGER
    read: Callable[[Any], Any] = lambda value: value

    def fault(self, value: Value) -> str | None:
        """Return what is wrong with a text that `read` does not look up itself."""
        if isinstance(self.read, type) and value not in self.choices:
            return f"not one of {', '.join(self.choices)}"
        return None


ROUNDING = Option(
    name="rounding",
    description="Replaces the profile's rounding.",
    choices=tuple(ROUNDINGS),
    named="RoundingName",
    read=rounding_named,
)
NAN = Option(
    name="nan",
    description="The result of NaN.",
    default=str(NanPolicy.PROFILE),
    choices=tuple(NanPolicy),
    named="NanPolicy",
    read=NanPolicy,
)
SEED = Option(name="seed", description="Seed of stochastic rounding.", kind=int, default=0)
SATURATE = Option(
    name="saturate",
    description="Whether values beyond the largest value of an 8-bit float saturate to it. Only for profiles whose "
    "`casts` offer the choice; their default is true.",
    kind=bool,
)
SCHEME = Option(
    name="scheme",
    description="Replaces the profile's scheme; accepts all integer types.",
    choices=tuple(SCHEMES),
    named="SchemeName",
    read=lambda name: scheme_named(name).name,
)
AXIS = Option(
    name="axis",
    description="The dimension of several multipliers, if no type states it.",
    kind=int,
    highest=255,
)

OPTIONS: Mapping[Operation, tuple[Option, ...]] = {
    Operation.QUANTIZE: (ROUNDING, NAN, SEED, SATURATE),
    Operation.DEQUANTIZE: (),
    Operation.REQUANTIZE: (SCHEME, AXIS),
}


def given_options(operation: Operation, values: Mapping[str, Value | None]) -> tuple[tuple[str, Value], ...]:
    """Return the options of an operation that are there, with another value than their default, in one order."""
    found = []
    for option in OPTIONS[operation]:
        value = values.get(option.name)
        if value is not None and value != option.default:
            found.append((option.name, value))
    return tuple(found)
