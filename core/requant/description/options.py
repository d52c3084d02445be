"""Options: what a caller may say beside tensors and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

from requant.mlir.types import Type

Value = bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | Type

LARGEST_INTEGER = (1 << 63) - 1


class Kind(StrEnum):
    """What the value of an option is."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    INTEGERS = "integers"
    NUMBERS = "numbers"
    TEXTS = "texts"
    NUMBER_OR_TEXT = "number_or_text"
    """A number, also as decimal or C99 hexadecimal text, or a word. The operation gets its text."""
    EXACT_NUMBER = "exact_number"
    """A number of a reply that f64 may not hold: decimal text of all its digits; in a tensor the nearest f64."""
    TYPE = "type"
    """An MLIR type."""
    TENSOR_TYPE = "tensor_type"
    """The MLIR type of a tensor."""
    GROUP = "group"
    """Options that are given together: a `Group`."""
    DECIMAL = "decimal"
    """Of a reply: a float or an integer of any size, in JSON the decimal text that reads back to it, for readers that
    do not keep numbers."""
    ELEMENTS = "elements"
    """Of a reply: elements of a tensor, or lists of them: numbers, and texts of those that are not finite."""


class Chooses(Enum):
    """What an option decides of the arithmetic."""

    RULES = auto()
    """All of it: it names a system's rules."""
    PART = auto()
    """A part of the rules, which it replaces."""


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
    """An option. Without `default` it is required, or `optional` and absent.

    Integers, also those of a list, are `lowest` to `highest`; a list has `length` members, or any number. `read`
    returns what a text stands for, such as the rule of that name, and raises what is wrong with it. `max_length`: of a
    text or a list in JSON. A `document` is the text that is worked on, on the command line a file. `model_description`:
    what a model says of it, where that differs. `group`: what one of the kind GROUP has. `chooses`: what of the
    arithmetic it decides, so that its choices are what may have computed given outputs.
    """

    name: str
    kind: Kind = Kind.TEXT
    description: str
    model_description: str = ""
    default: Value | None = None
    optional: bool = False
    lowest: int = -LARGEST_INTEGER - 1
    highest: int = LARGEST_INTEGER
    length: int | None = None
    max_length: int | None = None
    choices: Choices | None = None
    examples: tuple[Any, ...] = ()
    read: Callable[[str], Any] | None = None
    document: bool = False
    group: Group | None = None
    chooses: Chooses | None = None

    @property
    def required(self) -> bool:
        return self.default is None and not self.optional

    @property
    def words(self) -> str:
        """The description, or that of the choices or the group."""
        other = self.choices or self.group
        return self.description or (other.description if other else "")

    def choice_fault(self, value: Any) -> str | None:
        """Return what is wrong with a text that is no member of the enumeration, if there is one."""
        if self.choices is None or self.choices.enumeration is None or value in self.choices.values:
            return None
        return f"not one of {', '.join(self.choices.values)}"

    def resolve(self, value: Any) -> Any:
        """Return what a value stands for. Raise what `read` raises."""
        return value if value is None or self.read is None else self.read(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Options that are given together, of all kinds but NUMBER_OR_TEXT and GROUP.

    In JSON they are an object, in Python a mapping; in the inference protocol and on the command line the object is
    text. The operation has a mapping of those that are given. A reply may have the group too, so that it can be sent
    back: without defaults and bounds, and perhaps with more members one day. `title` and `description` are of what
    requests have, the others of what replies have, for generated clients. `bounded`: whether JSON schemas say
    what 64 bits hold of an integer.
    """

    title: str
    description: str
    reply_title: str = ""
    reply_description: str = ""
    options: tuple[Option, ...]
    bounded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """Inputs and options of which exactly one is given. `code`: of the fault where none or several are."""

    names: tuple[str, ...]
    code: str


def exactly_one(names: Sequence[str]) -> str:
    """Say that exactly one of these is required."""
    return f"exactly one of {(' and ' if len(names) == 2 else ', ').join(names)} is required"
