"""An operation: all that protocols, functions, subcommands and tables are made from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from requant.description.options import OneOf, Option, exactly_one
from requant.description.parts import (
    Argument,
    Member,
    NumbersInput,
    Part,
    Records,
    RecordsInput,
    Report,
    TensorInput,
    TensorOutput,
    Trace,
)
from requant.description.work import OperationCall, PlannedWork, Work
from requant.profiles import Operation as ConversionName


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallsInput:
    """Calls of other operations: each the name of one, its arguments, and if `observed` outputs that something gave.

    In JSON a list of objects with the members `operation`, `arguments`, which are those of the operation's own request,
    and `observed`; in Python a list of dictionaries, in which the arguments are those of the function. Options that
    choose the arithmetic may be absent. `operations`: those that may be called, by name.
    """

    name: str
    description: str
    operations: Mapping[str, Operation] = field(repr=False)
    observed: bool = False
    optional: bool = False


Input = Argument | RecordsInput | CallsInput


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
    explains. `explainer`: of a conversion, what tells the steps of its elements (`requant.convert.explain`).
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
    explainer: Callable[[OperationCall], Any] | None = None

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
        """The tensors and numbers that it takes, where there are no records."""
        found: list[Argument] = []
        for each in self.inputs:
            if isinstance(each, RecordsInput):
                found += [member.numbers for member in each.members]
            elif not isinstance(each, CallsInput):
                found.append(each)
        return tuple(found)

    @cached_property
    def inputs_of_function(self) -> tuple[Argument | CallsInput, ...]:
        """What it takes in Python: arguments, or calls."""
        return self.arguments if self.calls is None else (self.calls, *self.arguments)

    @cached_property
    def number_lists(self) -> tuple[NumbersInput | RecordsInput, ...]:
        """The numbers and the records of numbers that it takes."""
        return tuple(each for each in self.inputs if isinstance(each, NumbersInput | RecordsInput))

    @cached_property
    def numbers(self) -> tuple[NumbersInput, ...]:
        """The numbers that it takes, also those of records."""
        return tuple(each for each in self.arguments if isinstance(each, NumbersInput))

    @cached_property
    def calls(self) -> CallsInput | None:
        """The calls of other operations that it takes, if it does."""
        return next((each for each in self.inputs if isinstance(each, CallsInput)), None)

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
        known_as = name if given is None or isinstance(given, CallsInput) else called(given)
        return known_as, [known_as], []

    def option(self, name: str) -> Option:
        """Return the option of that name, which it has."""
        return next(each for each in self.options if each.name == name)

    def has_option(self, name: str) -> bool:
        """Return whether there is an option of that name."""
        return any(each.name == name for each in self.options)
