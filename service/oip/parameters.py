"""The parameters of a request: what a model takes, and what was given, checked against that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.errors import FieldFault, InvalidRequestError, excerpt
from service.http.problems import pointer

Value = str | int | float | bool

LARGEST_INTEGER = (1 << 63) - 1
_MOST_DIGITS = len(str(LARGEST_INTEGER))


class Kind(StrEnum):
    """What the value of a parameter is."""

    STRING = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"


_PYTHON = {Kind.STRING: str, Kind.INTEGER: int, Kind.BOOLEAN: bool}
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter that a model takes. Without `default` it is required, or `optional` and absent.

    Integers are `lowest` to `highest`. `choices` are for people to see: the model itself refuses others, and its
    message says more.
    """

    name: str
    description: str
    kind: Kind = Kind.STRING
    default: Value | None = None
    optional: bool = False
    choices: tuple[str, ...] = ()
    lowest: int = 0
    highest: int = LARGEST_INTEGER

    @property
    def required(self) -> bool:
        return self.default is None and not self.optional

    def fault(self, value: Value) -> FieldFault | None:
        """Return what is wrong with a value, if anything: its kind, or an integer that is out of bounds."""
        if type(value) is not _PYTHON[self.kind]:
            return FieldFault(pointer_to(self.name), f"{self.kind}_type", f"expected a {self.kind}")
        if type(value) is int and not self.lowest <= value <= self.highest:
            return FieldFault(pointer_to(self.name), "out_of_range", f"expected {self.lowest} to {self.highest}")
        return None

    def from_text(self, text: str) -> Value:
        """Return the value that a text of a query stands for; what stands for none is left to `fault`."""
        digits = text.removeprefix("-")
        if self.kind is Kind.INTEGER and digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS:
            return int(text)
        return _BOOLEANS.get(text, text) if self.kind is Kind.BOOLEAN else text


def pointer_to(parameter: str) -> str:
    """Return the JSON pointer to a parameter of a request."""
    return pointer("parameters", parameter)


def completed(parameters: Iterable[Parameter], given: Mapping[str, Value]) -> dict[str, Value | None]:
    """Return every parameter with its value: given, default, or None for an optional one that is absent.

    Raise InvalidRequestError for those that are unknown, missing, or of another kind.
    """
    known = {parameter.name: parameter for parameter in parameters}
    faults = list(_faults(known, given))
    if faults:
        name = faults[0].pointer.removeprefix(pointer_to(""))
        raise InvalidRequestError(f"parameter {name}: {faults[0].detail}", tuple(faults))
    return {name: given.get(name, parameter.default) for name, parameter in known.items()}


def _faults(known: Mapping[str, Parameter], given: Mapping[str, Value]) -> Iterator[FieldFault]:
    for name in given:
        if name not in known:
            listed = f"available: {', '.join(known)}" if known else "available: none"
            yield FieldFault(pointer_to(excerpt(name)), "extra_forbidden", f"not a parameter; {listed}")
    for name, parameter in known.items():
        if name not in given:
            fault = FieldFault(pointer_to(name), "missing", "required") if parameter.required else None
        else:
            fault = parameter.fault(given[name])
        if fault is not None:
            yield fault
