"""The parameters of a request: what a model takes, and what was given, checked against that."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from requant.errors import FieldFault, InvalidRequestError, ParameterError, excerpt
from requant.errors.names import not_among
from requant.schemes.scheme import parse_factor
from requant_service.http.problems import pointer
from requant_service.runtime.settings import MAX_ENTRIES

Value = str | int | float | bool

LARGEST_INTEGER = (1 << 63) - 1
_MAX_DIGITS = len(str(LARGEST_INTEGER))
_LONGEST_LIST = 1 << 20


class Kind(StrEnum):
    """What the value of a parameter is."""

    STRING = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    NUMBER = "number"
    """A finite number, or its text: not every client sends parameters that are no integers."""


_PYTHON: Mapping[Kind, type[Value]] = {Kind.STRING: str, Kind.INTEGER: int, Kind.BOOLEAN: bool}
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter that a model takes. Without `default` it is required, or `optional` and absent.

    Integers are `lowest` to `highest`. A string that `may_be_number` is given as a number too, which stands for its
    text. `choices` are for people to see: the model itself refuses others, and its
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
    may_be_number: bool = False

    @property
    def required(self) -> bool:
        return self.default is None and not self.optional

    def fault(self, value: Value) -> FieldFault | None:
        """Return what is wrong with a value, if anything: its kind, or an integer that is out of bounds."""
        if self.kind is Kind.NUMBER:
            expected = "expected a finite number, or its text"
            return None if _finite(value) is not None else FieldFault(pointer_to(self.name), "number", expected)
        if self.may_be_number and type(value) in (int, float):
            expected = "expected a string or a finite number"
            return None if _finite(value) is not None else FieldFault(pointer_to(self.name), "number", expected)
        if type(value) is not _PYTHON[self.kind]:
            article = "an" if self.kind is Kind.INTEGER else "a"
            return FieldFault(pointer_to(self.name), f"{self.kind}_type", f"expected {article} {self.kind}")
        if type(value) is int and not self.lowest <= value <= self.highest:
            return FieldFault(pointer_to(self.name), "out_of_range", f"expected {self.lowest} to {self.highest}")
        return None

    def read(self, value: Value) -> Value:
        """Return a value without a fault as the model gets it: a number as a float, or as its text."""
        number = _finite(value) if self.kind is Kind.NUMBER else None
        if number is not None:
            return number
        return repr(value) if self.may_be_number and not isinstance(value, str) else value

    def from_text(self, text: str) -> Value:
        """Return the value that a text of a query stands for; what stands for none is left to `fault`."""
        digits = text.removeprefix("-")
        if self.kind is Kind.INTEGER and digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS:
            return int(text)
        return _BOOLEANS.get(text, text) if self.kind is Kind.BOOLEAN else text


def _finite(value: Value) -> float | None:
    """Return a number, perhaps given as text, or None for what is none, or not finite."""
    if isinstance(value, bool):
        return None
    try:
        number = parse_factor(value) if isinstance(value, str) else float(value)
    except (ParameterError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def pointer_to(parameter: str) -> str:
    """Return the JSON pointer to a parameter of a request."""
    return pointer("parameters", parameter)


def completed(parameters: Iterable[Parameter], sent: Mapping[str, Value]) -> dict[str, Value | None]:
    """Return every parameter with its value: given, default, or None for an optional one that is absent.

    Raise InvalidRequestError for those that are unknown, missing, or of another kind.
    """
    known = {parameter.name: parameter for parameter in parameters}
    faults = list(_faults(known, sent))
    if faults:
        name = faults[0].pointer.removeprefix(pointer_to(""))
        raise InvalidRequestError(f"parameter {name}: {faults[0].detail}", tuple(faults))
    return {
        name: parameter.read(sent[name]) if name in sent else parameter.default for name, parameter in known.items()
    }


def _faults(known: Mapping[str, Parameter], sent: Mapping[str, Value]) -> Iterator[FieldFault]:
    for name in sent:
        if name not in known:
            yield FieldFault(pointer_to(excerpt(name)), "extra_forbidden", not_among("parameter", name, known))
    for name, parameter in known.items():
        if name not in sent:
            fault = FieldFault(pointer_to(name), "missing", "required") if parameter.required else None
        else:
            fault = parameter.fault(sent[name])
        if fault is not None:
            yield fault


def read_list(parameter: str, text: str, *kinds: type) -> list[Any]:
    """Return the members of a list that a parameter holds as text: JSON, of which the brackets may be missing.

    `kinds`: what a member may be; numbers are finite. Raise InvalidRequestError.
    """
    place = pointer_to(parameter)
    try:
        members = (
            json.loads(text if text.lstrip().startswith("[") else f"[{text}]") if len(text) <= _LONGEST_LIST else 0
        )
    except (ValueError, RecursionError):
        members = None
    named = " or ".join(_NAMES[kind] for kind in kinds)
    if not isinstance(members, list) or len(members) > MAX_ENTRIES:
        raise _wrong(place, f"expected a JSON list of at most {MAX_ENTRIES} members, each {named}")
    for index, member in enumerate(members):
        if type(member) not in kinds or (type(member) is not str and _finite(member) is None):
            raise _wrong(place, f"member {index} is not {named}")
    return members


_NAMES = {int: "an integer", float: "a number", str: "a string"}


def _wrong(place: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError.of_field(place, "invalid", detail, message=f"{place}: {detail}")
