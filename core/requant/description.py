"""The words in which operations and operators are described: tensors, options, members of replies, and the work.

A description is data. Protocols, functions, subcommands and tables are made from it by code that knows no operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import LimitError
from requant.mlir import print_type
from requant.mlir.parser import MAXIMUM_RANK
from requant.mlir.types import TensorType, Type
from requant.plan.operands import static_shape
from requant.plan.plan import Conversion
from requant.profiles import Operation as ConversionName

Array = NDArray[Any]
Value = bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | Type

LARGEST_INTEGER = (1 << 63) - 1

# How many products take as long as the work on a byte of a tensor.
_PRODUCTS_OF_A_BYTE = 16


def cost_of_sums(sums: int, products: int) -> int:
    """Return about how many bytes of a tensor take as long as so many elements of an output and so many products."""
    return max(sums * 4, products // _PRODUCTS_OF_A_BYTE)


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
    """Of a reply: a float, in JSON the decimal text that reads back to it, for readers that do not keep numbers."""


class Work(Enum):
    """What an operation works on. A service has threads of their own for each."""

    ARRAYS = auto()
    TEXTS = auto()
    """Types and such, for which no kernel is needed."""
    MODULES = auto()
    """MLIR modules, and what is in them."""


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
    what a model says of it, where that differs. `group`: what one of the kind GROUP has.
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
    group is flat, and a list of groups is a tensor of i64 of the name `model_name`: a row for each, of the members that
    are its `columns`. Without any, it is JSON as text there, as a list of texts is. An integer has so many `bits`. One
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
    """The intermediate values that an operation gives if its option `trace` is true."""

    title: str
    description: str
    records: Records
    stages: tuple[TensorOutput, ...]


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor: a static type, and its elements flat and contiguous.

    `text`: of the type, where it is known. Printing a type of many scales takes long.
    """

    type: TensorType
    data: Array
    text: str = ""

    @property
    def type_text(self) -> str:
        """The type as text."""
        return self.text or print_type(self.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which is static."""
        assert self.type.shape is not None
        return tuple(size for size in self.type.shape if size is not None)


_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class ModuleLimits:
    """Limits of one request: characters and operations of a module, elements of its constants; bytes and products of an
    evaluation.
    """

    characters: int = 1 << 20
    operations: int = 10_000
    nesting: int = 64
    constant_elements: int = 1 << 20
    evaluation_bytes: int = 256 << 20
    evaluation_products: int = 1 << 28


@dataclass(frozen=True, slots=True)
class Limits:
    """What a service does not take more of. In process there is no limit but those of types, of nesting, and of
    what aliases stand for.
    """

    rank: int = MAXIMUM_RANK
    factors: int = _UNLIMITED
    passes: int = _UNLIMITED
    explained: int = _UNLIMITED
    module: ModuleLimits = ModuleLimits(
        characters=_UNLIMITED,
        operations=_UNLIMITED,
        constant_elements=_UNLIMITED,
        evaluation_bytes=_UNLIMITED,
        evaluation_products=_UNLIMITED,
    )

    def check_rank(self, rank: int, pointer: str) -> None:
        """Raise LimitError for the rank of a shape that is not served."""
        if rank > self.rank:
            detail = f"the shape has rank {rank}; at most {self.rank} is served"
            raise LimitError(detail, limit=self.rank, pointer=pointer)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A call before its data are there: the type of each input that is given, and the value of each option.

    Values are read: a type is a `Type`, a choice of an enumeration its member, a list a tuple, a name what it stands
    for (`Option.read`), a group a mapping. An option that is absent and has no default is None. `counts`: how many
    tensors there are in the place of an input that takes several. `untyped`: the inputs of which only the shape is
    known.
    """

    types: Mapping[str, TensorType]
    options: Mapping[str, Any]
    numbers: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()
    limits: Limits = NO_LIMITS

    def has(self, *options: str) -> dict[str, Any]:
        """Return those of the options that have a value."""
        return {name: self.options[name] for name in options if self.options[name] is not None}


@dataclass(frozen=True, slots=True)
class Result:
    """What an operation gives.

    Its tensors and lists of numbers, in the order of the reply; the members of its reply and its report, and those of
    the reply whose name the report has too in `members`; of its trace the stages; and the records of its reply or its
    trace. The tensors of records have `record_shape`, or are vectors. Or a `file`, in the place of everything else.
    `conversion`: that which was done.
    """

    outputs: Mapping[str, TensorValue] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Array] = field(default_factory=dict)
    stages: Mapping[str, TensorValue] = field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] | None = None
    record_shape: tuple[int, ...] | None = None
    file: bytes | None = None
    members: Mapping[str, Any] = field(default_factory=dict)
    conversion: Conversion | None = None


@dataclass(frozen=True)
class Stored:
    """How the elements of an input have to be there: of which type, kept in which dtype."""

    type: TensorType
    dtype: np.dtype[Any]

    @cached_property
    def elements(self) -> int:
        """How many there are."""
        return prod(static_shape(self.type))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork:
    """The work that a call stands for. `run` takes the tensors of an input that takes several as `NAME_0`, `NAME_1`.

    `operands`: what `run` takes, flat, for each input that is given. `sums`: the elements of an output that takes many
    products each. `products`: how many multiplications take as long as the whole. `byte_count`: about how much memory
    it takes beside its operands. `weight`: the bytes of a tensor that take about as long, where that is more than the
    operands have. `searches`: it holds the GIL for long, whatever its size. `characters`: it is work on texts, which
    holds the GIL throughout, and takes about as long as reading a type of so many. `conversion`: that of the input
    `input` to the output `output` which the work does. If it is nothing else (`in_pieces`), it can run in pieces, while
    the one arrives or the other leaves.
    """

    operands: Mapping[str, Stored]
    run: Callable[[Mapping[str, Array]], Result]
    byte_count: int
    weight: int = 0
    sums: int = 0
    products: int = 0
    traced: bool = False
    searches: bool = False
    characters: int = 0
    conversion: Conversion | None = None
    in_pieces: bool = False

    @property
    def cost(self) -> int:
        """The bytes of a tensor that take about as long."""
        return max(self.weight, cost_of_sums(self.sums, self.products))


Argument = TensorInput | NumbersInput
Input = Argument | RecordsInput
Part = TensorOutput | NumbersOutput | Member | Records | Report


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One operation of our own.

    `name` is that of the model, the function and the subcommand, and of the route, unless that has a `path` below /v1;
    `summary` says what it does, `request` what a request for it is. `reply`: its parts, in their order. `plan` checks
    types and options and returns the work; it raises errors about a tensor (`about`), or about another argument
    (`/name`, or `/name/index` for one of several numbers or tensors). `example` has the inputs as JSON tensors and
    lists beside the options: a call that works. `request_title` and `reply_title` are for generated clients. `files`:
    the media types of the files that it gives in the place of its reply, by the value of its option `format`.
    `work`: on what; on texts it takes as long as reading them so many times (`readings`). `one_of`: inputs and options
    of which exactly one is given. `model_summary` and `route_summary`: what the model and the route say of themselves,
    where that is more; the model has the outputs `first_of_model` first. `converts`: the conversion that it does or
    explains.
    """

    name: str
    title: str
    group: str
    summary: str
    request: str
    source: str
    inputs: tuple[Input, ...]
    options: tuple[Option, ...]
    reply: tuple[Part, ...]
    reply_title: str
    reply_description: str
    plan: Callable[[OperationCall], PlannedWork]
    example: Mapping[str, Any]
    trace: Trace | None = None
    path: str = ""
    request_title: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    work: Work = Work.ARRAYS
    readings: int = 1
    one_of: tuple[OneOf, ...] = ()
    model_summary: str = ""
    route_summary: str = ""
    first_of_model: tuple[str, ...] = ()
    converts: ConversionName | None = None

    @cached_property
    def model_reply(self) -> tuple[Part, ...]:
        """The parts of the reply in the order of the model."""
        first = {name: index for index, name in enumerate(self.first_of_model)}
        return tuple(sorted(self.reply, key=lambda part: first.get(part.name, len(first))))

    @cached_property
    def tensors(self) -> tuple[TensorInput, ...]:
        """The tensors that it takes."""
        return tuple(each for each in self.inputs if isinstance(each, TensorInput))

    @cached_property
    def record_inputs(self) -> tuple[RecordsInput, ...]:
        """The records of numbers that it takes."""
        return tuple(each for each in self.inputs if isinstance(each, RecordsInput))

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """What it takes where there are no records."""
        found: list[Argument] = []
        for each in self.inputs:
            found += [member.numbers for member in each.members] if isinstance(each, RecordsInput) else [each]
        return tuple(found)

    @cached_property
    def numbers(self) -> tuple[NumbersInput, ...]:
        """The numbers that it takes, also those of records."""
        return tuple(each for each in self.arguments if isinstance(each, NumbersInput))

    @cached_property
    def outputs(self) -> tuple[TensorOutput, ...]:
        """The tensors that it gives."""
        return tuple(each for each in self.reply if isinstance(each, TensorOutput))

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The members of the reply itself."""
        return tuple(each for each in self.reply if isinstance(each, Member))

    @cached_property
    def records(self) -> Records | None:
        """The records of the reply, where it has any."""
        return next((each for each in self.reply if isinstance(each, Records)), None)

    @cached_property
    def report(self) -> Report | None:
        """The report, where the reply has one."""
        return next((each for each in self.reply if isinstance(each, Report)), None)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """What an absent option stands for: its default, read, or None."""
        return {each.name: each.resolve(each.default) for each in self.options}

    def unmet(
        self, given: Collection[str], called: Callable[[Argument], str] = lambda argument: argument.name
    ) -> tuple[OneOf, str] | None:
        """Return the first of `one_of` that the inputs and options of these names do not meet, and what is wrong.

        That is where there are no records, but an input for each member. `called`: what the caller knows it as.
        """
        for one_of in self.one_of:
            forms = [self._form(name, called) for name in one_of.names]
            there = [needed for _, needed, more in forms if any(each in given for each in (*needed, *more))]
            if len(there) != 1 or not all(each in given for each in there[0]):
                return one_of, self.required(one_of, called)
        return None

    def required(self, one_of: OneOf, called: Callable[[Argument], str] = lambda argument: argument.name) -> str:
        """Say what is required of inputs and options where there are no records."""
        forms = [self._form(name, called) for name in one_of.names]
        parts = [each for form, needed, more in forms if form not in needed for each in (*needed, *more)]
        said = exactly_one([form for form, _, _ in forms])
        return f"{said}, which are {', '.join(parts)}" if parts else said

    def _form(self, name: str, called: Callable[[Argument], str]) -> tuple[str, list[str], list[str]]:
        """Return what an input or option is called, the names that it has to be given by, and those that it may be."""
        given = next((each for each in self.inputs if each.name == name), None)
        if isinstance(given, RecordsInput):
            needed = [called(each.numbers) for each in given.members if not each.optional]
            return f"the {name}", needed, [called(each.numbers) for each in given.members if each.optional]
        known_as = name if given is None else called(given)
        return known_as, [known_as], []

    def option(self, name: str) -> Option:
        """Return the option of that name, which it has."""
        return next(each for each in self.options if each.name == name)

    def has_option(self, name: str) -> bool:
        """Return whether there is an option of that name."""
        return any(each.name == name for each in self.options)
