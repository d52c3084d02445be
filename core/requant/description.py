"""The words in which operations and operators are described: tensors, options, members of replies, and the work.

A description is data. Protocols, functions, subcommands and tables are made from it by code that knows no operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.mlir.types import TensorType, Type

Array = NDArray[Any]
Value = bool | int | float | str | Sequence[int] | Sequence[float] | Type

LARGEST_INTEGER = (1 << 63) - 1


class Kind(StrEnum):
    """What the value of an option is."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    INTEGERS = "integers"
    NUMBERS = "numbers"
    TYPE = "type"
    """An MLIR type."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The texts that an option can have, under a name for generated clients.

    `enumeration`: the class of which they are the members, where a request is refused before the operation sees another
    text. Without one, the operation looks the text up, and its message lists the others.
    """

    name: str
    values: tuple[str, ...]
    description: str = ""
    enumeration: type[StrEnum] | None = None

    @staticmethod
    def of(enumeration: type[StrEnum]) -> Choices:
        """Return the members of an enumeration."""
        return Choices(enumeration.__name__, tuple(enumeration), enumeration=enumeration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option. Without `default` it is required, or `optional` and absent; `unless_given` says what holds then.

    Integers, also those of a list, are `lowest` to `highest`; a list has `length` members, or any number.
    """

    name: str
    kind: Kind = Kind.TEXT
    description: str
    default: Value | None = None
    optional: bool = False
    lowest: int = -LARGEST_INTEGER - 1
    highest: int = LARGEST_INTEGER
    length: int | None = None
    choices: Choices | None = None
    examples: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is None and not self.optional


class Elements(StrEnum):
    """What the elements of a tensor may be."""

    INTEGERS = "integers"
    """Stored or plain integers."""
    SUMS = "sums"
    """Accumulators, or the floats that they become."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInput:
    """A tensor that an operation takes.

    `side`: what plans call it, and errors about its type. `packable`: whether the option `packing` is about it.
    `model_name`: its name in the inference protocol.
    """

    name: str
    description: str
    elements: Elements = Elements.INTEGERS
    side: str = ""
    optional: bool = False
    packable: bool = True
    model_name: str = ""

    @property
    def type_option(self) -> str:
        """The option that has its type, where the array does not tell: in Python, on the command line, as a model."""
        return f"{self.name}_type"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorOutput:
    """A tensor that an operation gives. `model_name`: its name in the inference protocol."""

    name: str
    description: str = ""
    elements: Elements = Elements.INTEGERS
    optional: bool = False
    model_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a report: a number, a text, or a group of such (`members`, under `title` for generated clients)."""

    name: str
    kind: Kind = Kind.INTEGER
    description: str = ""
    optional: bool = False
    choices: Choices | None = None
    members: tuple[Member, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A list of records of numbers, in the inference protocol a tensor for each member. `title`: of one record."""

    name: str
    title: str
    description: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The numbers that an operation reports of its work. `title` is for generated clients."""

    title: str
    description: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The intermediate values that an operation gives if its option `trace` is true."""

    title: str
    description: str
    records: Records
    stages: tuple[TensorOutput, ...]


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor: a static type, and its elements flat and contiguous."""

    type: TensorType
    data: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which is static."""
        assert self.type.shape is not None
        return tuple(size for size in self.type.shape if size is not None)


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A call before its data are there: the type of each input that is given, and the value of each option.

    Values are read: a type is a `Type`, a choice of an enumeration its member, a list a tuple. An option that is absent
    and has no default is None.
    """

    types: Mapping[str, TensorType]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What an operation gives: its outputs, the members of its report, and of its trace the stages and the records."""

    outputs: Mapping[str, TensorValue]
    report: Mapping[str, Any]
    stages: Mapping[str, TensorValue] = field(default_factory=dict)
    records: Sequence[Mapping[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """How the elements of an input have to be there: of which type, kept in which dtype."""

    type: TensorType
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork:
    """The work that a call stands for.

    `operands`: what `run` takes, flat, for each input that is given. `elements`: of the output. `products`: how many
    multiplications take as long as the whole. `byte_count`: about how much memory it takes beside its operands.
    """

    operands: Mapping[str, Stored]
    run: Callable[[Mapping[str, Array]], Result]
    elements: int
    products: int
    byte_count: int
    traced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation of our own.

    `name` is that of the route, the model, the function and the subcommand; `summary` says what it does, `request` what
    a request for it is. `plan` checks types and options and returns the work; it raises errors about a side (`about`)
    or an option (`/name`). `example` has the inputs as JSON tensors beside the options: a call that works. `reply`: the
    title of its reply for generated clients.
    """

    name: str
    title: str
    group: str
    summary: str
    request: str
    source: str
    inputs: tuple[TensorInput, ...]
    options: tuple[Option, ...]
    outputs: tuple[TensorOutput, ...]
    report: Report
    reply: str
    plan: Callable[[OperationCall], PlannedWork]
    example: Mapping[str, Any]
    trace: Trace | None = None

    def option(self, name: str) -> Option:
        """Return the option of that name, which it has."""
        return next(each for each in self.options if each.name == name)

    def has_option(self, name: str) -> bool:
        """Return whether there is an option of that name."""
        return any(each.name == name for each in self.options)
