"""A call of an operation as a JSON request has it: its tensors, numbers, options and calls, read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import numpy as np

from requant.description import (
    Array,
    Kind,
    NumbersInput,
    Operation,
    OperationCall,
    Option,
    RecordsInput,
    TensorInput,
)
from requant.errors import LimitError, RequantError, default_pointer
from requant.errors.names import entry_named
from requant.mlir.types import TensorType
from requant.schemes.scheme import parse_factor
from requant_service.http.json_document import JsonDocument
from requant_service.http.models import RequestModel
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.operations.described import check_factors, common_type, limits_of
from requant_service.operations.options import read_value
from requant_service.operations.types import CHARACTERS_PER_SCALE, read_tensor_type
from requant_service.runtime.settings import Settings

_TYPES = (Kind.TYPE, Kind.TENSOR_TYPE)
_MAX_FAULTS = 16


def _check_number(text: str, pointer: str) -> None:
    with default_pointer(pointer):
        parse_factor(text)


class SentCall:
    """What a request says of a call. `body`: the document that it is, or is a part of.

    `tensors`: each by the name that the operation has for it, with its path in the request; `names`: those names of
    the tensors that were sent for each input. `listed`: the inputs of numbers that were sent.
    """

    def __init__(self, operation: Operation, request: RequestModel, body: JsonDocument, settings: Settings) -> None:
        self.operation = operation
        self.request = request
        self.body = body
        self._settings = settings
        self.tensors: dict[str, tuple[str, Tensor]] = {}
        self.names: dict[str, list[str]] = {}
        sent = request.model_fields_set
        for each in operation.tensors:
            self.names[each.name] = self._take(each, sent)
        self.listed = [each for each in operation.number_lists if each.name in sent]

    def _take(self, tensor: TensorInput, sent: Collection[str]) -> list[str]:
        name, several = tensor.name, tensor.several
        if not several:
            if name in sent:
                self.tensors[name] = name, getattr(self.request, name)
            return [name] if name in sent else []
        sources = {f"{several}/{index}": each for index, each in enumerate(getattr(self.request, several))}
        if name in sent:
            sources = {name: getattr(self.request, name)}
        given = {f"{name}_{index}": source for index, source in enumerate(sources.items())}
        self.tensors |= given
        return list(given)

    @property
    def number_count(self) -> int:
        """How many numbers were sent, or records."""
        lists = (getattr(self.request, each.name) for each in self.listed)
        return sum(len(each) if isinstance(each, list) else 1 for each in lists)

    def characters(self) -> int:
        """How many characters of types the request has, or what takes as long to read."""
        texts = (getattr(self.request, each.name) for each in self.operation.options if each.kind in _TYPES)
        types = sum(len(tensor.type) for _, tensor in self.tensors.values())
        return sum(len(text or "") for text in texts) + types + CHARACTERS_PER_SCALE * self.number_count

    def types(self) -> tuple[dict[str, TensorType], dict[str, str]]:
        """Return the type of each input that was sent, and where it stands."""
        types: dict[str, TensorType] = {}
        places: dict[str, str] = {}
        for name, given in self.names.items():
            if given:
                at_types = [f"/{path}/type" for path, _ in map(self.tensors.__getitem__, given)]
                read = [
                    read_tensor_type(self.tensors[each][1].type, self._settings, place)
                    for each, place in zip(given, at_types, strict=True)
                ]
                types[name], places[name] = common_type(read, at_types), at_types[0]
        return types, places

    def counts(self) -> dict[str, int]:
        """Return how many tensors were sent for each input."""
        return {name: len(given) for name, given in self.names.items()}

    def call(self) -> tuple[OperationCall, dict[str, str]]:
        """Return the call, and where the type of each input and of the output stands."""
        types, places = self.types()
        places["output"] = "/output_type"
        limits = limits_of(self._settings)
        options = {**self.operation.defaults, **self.options()}
        return OperationCall(types, options, self.numbers, self.counts(), limits=limits), places

    @cached_property
    def numbers(self) -> dict[str, Array]:
        """The numbers of each input that was sent. Raise LimitError for too many that are read as they are written."""
        found: dict[str, Array] = {}
        for each in self.listed:
            found |= self._records(each) if isinstance(each, RecordsInput) else self._list(each)
        return found

    def _list(self, given: NumbersInput) -> dict[str, Array]:
        """Return numbers as f64, or as they are written."""
        sent = getattr(self.request, given.name)
        if given.kind is not Kind.NUMBER_OR_TEXT:
            return {given.name: np.array(sent, np.float64, ndmin=1)}
        check_factors(len(sent), given.name, self._settings, f"/{given.name}")
        texts = [self.body.number_text(each, f"{given.name}/{index}") for index, each in enumerate(sent)]
        return {given.name: np.array(texts, object)}

    def _records(self, given: RecordsInput) -> dict[str, Array]:
        """Return the numbers of each member of the records."""
        sent = getattr(self.request, given.name)
        if any(each.numbers.kind is Kind.NUMBER_OR_TEXT for each in given.members):
            check_factors(len(sent), given.name, self._settings, f"/{given.name}")
        found = {}
        for place, member in enumerate(given.members):
            numbers = [record[place] for record in sent]
            if member.numbers.kind is Kind.NUMBER_OR_TEXT:
                paths = (f"{given.name}/{index}/{member.name}" for index in range(len(sent)))
                numbers = [
                    None if each is None else self.body.number_text(each, path)
                    for each, path in zip(numbers, paths, strict=True)
                ]
            found[member.numbers.name] = np.array(numbers, object)
        return found

    def options(self) -> dict[str, Any]:
        """Return the value of each option that was sent, read."""
        sent = [each for each in self.operation.options if each.name in self.request.model_fields_set]
        return {each.name: self._option(each, getattr(self.request, each.name)) for each in sent}

    def _option(self, option: Option, value: Any) -> Any:
        place = f"/{option.name}"
        if option.kind is Kind.NUMBER_OR_TEXT:
            value = self.body.number_text(value, option.name)
        with default_pointer(place):
            return read_value(option, value, self._settings, place)

    def _other_faults(self, first: RequantError) -> tuple[RequantError, ...]:
        """Return what else is wrong, beside `first`, with types, names and numbers, each read for itself.

        A client that has two of them wrong learns of both. It costs no more than reading the request did.
        """
        if isinstance(first, LimitError):
            return ()
        found: dict[str | None, RequantError] = {first.pointer: first}
        for check in self._checks():
            try:
                check()
            except RequantError as error:
                found.setdefault(error.pointer, error)
            if len(found) > _MAX_FAULTS:
                break
        return tuple(found.values())[1:]

    def _checks(self) -> Iterator[Callable[[], Any]]:
        for path, tensor in self.tensors.values():
            yield partial(read_tensor_type, tensor.type, self._settings, f"/{path}/type")
        for option in self.operation.options:
            if option.name in self.request.model_fields_set:
                yield partial(self._check_option, option, getattr(self.request, option.name))
        with suppress(LimitError):
            for name, numbers in self.numbers.items():
                listed, member = self._members.get(name, (name, ""))
                for index, number in enumerate(numbers.reshape(-1)):
                    if isinstance(number, str):
                        yield partial(_check_number, number, f"/{listed}/{index}/{member}".removesuffix("/"))

    def _check_option(self, option: Option, value: Any) -> None:
        """Read an option, and look up a name that is looked up only when the call is planned."""
        self._option(option, value)
        if option.choices is not None and isinstance(value, str):
            with default_pointer(f"/{option.name}"):
                entry_named(dict.fromkeys(option.choices.values), value, option.name)

    def complete(self, error: RequantError) -> None:
        """Point at the place in the request that an error is about, and add what else is wrong there."""
        self._point(error)
        error.others = self._other_faults(error)

    def _point(self, error: RequantError) -> None:
        """Point at the tensor of the request that an error about one of several is about, or at the member of a
        record.
        """
        steps = (error.pointer or "").split("/")
        if (name := "_".join(steps[1:3])) in self.tensors and len(steps) > 2:
            error.pointer = "/".join(["", self.tensors[name][0], *steps[3:]])
        elif len(steps) == 3 and (member := self._members.get(steps[1])):
            error.pointer = "/".join(["", member[0], steps[2], member[1]])

    @property
    def _members(self) -> dict[str, tuple[str, str]]:
        """The list of records, and the member of one, that the numbers of an input were sent in."""
        lists = [each for each in self.listed if isinstance(each, RecordsInput)]
        return {member.numbers.name: (each.name, member.name) for each in lists for member in each.members}
