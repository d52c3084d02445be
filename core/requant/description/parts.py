"""What goes in and comes out: tensors, numbers, records, and the members of a reply."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from requant.description.options import LARGEST_INTEGER, Choices, Group, Kind


class Elements(StrEnum):
    """What the elements of a tensor may be."""

    INTEGERS = "integers"
    """Stored or plain integers."""
    SUMS = "sums"
    """Accumulators, or the floats that they become."""
    ANY = "any"
    """Integers or floats, stored or plain."""
    REALS = "reals"
    """Floats of any width."""
    SHORT_REALS = "short_reals"
    """f32, f16 or bf16."""
    SINGLES = "singles"
    """f32."""
    CODES = "codes"
    """Codes of small floats, or small integers, one per byte, which only the other arguments tell apart."""
    BYTES = "bytes"
    """Bytes whose meaning the other arguments tell."""
    INT32 = "int32"

    @property
    def tell_their_type(self) -> bool:
        """Whether the datatype of an array, or the other arguments, tell its type, so that none is stated beside it."""
        return self not in (Elements.INTEGERS, Elements.SUMS, Elements.ANY, Elements.SHORT_REALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInput:
    """A tensor that an operation takes.

    `side`: what plans call it, and errors about its type. `packable`: whether the option `packing` is about it.
    `model_name`: its name in the inference protocol. `several`: the name in JSON of a list of tensors of one type that
    may be in its place; the operation takes them as `NAME_0`, `NAME_1` and so on, of the type of `NAME`.
    """

    name: str
    description: str = ""
    elements: Elements = Elements.INTEGERS
    side: str = ""
    optional: bool = False
    packable: bool = True
    model_name: str = ""
    several: str = ""
    several_description: str = ""

    @property
    def type_option(self) -> str:
        """The option that has its type, where the array does not tell: in Python, on the command line, as a model."""
        return f"{self.name}_type"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersInput:
    """Real numbers that an operation takes: at least one, or a `single` one.

    In JSON a list, or a number; in the inference protocol a tensor of floats, of the name `model_name`, and described
    by `model_description` if that differs; in Python an array. The operation has them as f64, before it is planned; of
    the kind NUMBER_OR_TEXT there may be none, and it has their texts, an array of objects; of the kind INTEGER, i64.
    """

    name: str
    kind: Kind = Kind.NUMBER
    description: str = ""
    single: bool = False
    optional: bool = False
    model_name: str = ""
    model_description: str = ""
    examples: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMember:
    """A number of a record, and the input that has it of all records where there are no records.

    An integer of a JSON request has so many `bits` and is at most `highest`, and no less than its negative.
    """

    name: str
    numbers: NumbersInput
    description: str = ""
    optional: bool = False
    examples: tuple[Any, ...] = ()
    bits: int = 64
    highest: int = LARGEST_INTEGER


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsInput:
    """Numbers of which some belong together: in JSON a list of records, elsewhere an input for each member.

    The operation has the numbers of each member, one of each record; where a record has none, it is None. From outside
    of JSON there may also be one for all. Those that are in the place of nothing else (`Operation.one_of`) stand behind
    the options. `max_length`: of the list in JSON. `title` and `record_description` are of a record, for generated
    clients.
    """

    name: str
    description: str
    title: str
    record_description: str
    members: tuple[RecordMember, ...]
    max_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersOutput:
    """Numbers that an operation gives, f64 or i64: in JSON a list, in the inference protocol a tensor.

    Absent ones are, if `empty_if_absent`, an empty list in JSON. `model_description`: what a model says of them, where
    that differs. Integers in JSON have so many `bits`.
    """

    name: str
    kind: Kind = Kind.NUMBER
    description: str = ""
    optional: bool = False
    empty_if_absent: bool = False
    model_name: str = ""
    model_description: str = ""
    bits: int = 64


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
    """A member of a report or a reply: a number, a text, or a group of `members`, or a list of groups (`repeated`).

    Of the kind GROUP it is a `group` that requests may have, too; in the inference protocol that is JSON as text.

    `title` and `group_description` are of a group of `members`, for generated clients. In the inference protocol a
    group without lists is flat, and a list of groups is a tensor of i64 of the name `model_name`: a row for each, of
    the members that are its `columns`. Without any, it is JSON as text there, as a group with lists is, and a list of
    texts. An integer has so many `bits`. One
    that is not `in_json` tells what a JSON request or reply shows anyway; one that is `only_in_json` has the bits of
    numbers that readers of JSON may round. An absent list is, if `empty_if_absent`, an empty one in JSON.
    `model_description`: what a model says of a member of a record, where that differs. A `verdict` says whether a check
    has passed, which a shell learns by the exit status.
    """

    name: str
    kind: Kind = Kind.INTEGER
    description: str = ""
    optional: bool = False
    choices: Choices | None = None
    members: tuple[Member, ...] = ()
    title: str = ""
    group_description: str = ""
    repeated: bool = False
    columns: tuple[str, ...] = ()
    model_name: str = ""
    model_description: str = ""
    bits: int = 64
    examples: tuple[Any, ...] = ()
    in_json: bool = True
    only_in_json: bool = False
    empty_if_absent: bool = False
    verdict: bool = False
    group: Group | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A list of records of numbers; in the inference protocol a tensor for each member but texts.

    `record`: one of them.
    """

    name: str
    description: str = ""
    record: Report
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The numbers that an operation reports of its work. `title` is for generated clients."""

    title: str
    description: str
    members: tuple[Member, ...]
    optional: bool = False
    name: str = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The intermediate values that an operation gives if its option `trace` is true, and records of what it used."""

    title: str
    description: str
    records: Records | None
    stages: tuple[TensorOutput, ...]


Argument = TensorInput | NumbersInput
Part = TensorOutput | NumbersOutput | Member | Records | Report
