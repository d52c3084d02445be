"""Calls of operations within a JSON request: the arguments of each are those of a request of the operation itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import shaped
from requant.arrays.observed import Output, element_of_output, listed_numbers, observable, outputs_of
from requant.description import Array, CallsInput, Operation, TensorInput, TensorOutput
from requant.errors import (
    InvalidRequestError,
    RequantError,
    default_pointer,
    pointer_prefix,
)
from requant.errors.cancellation import checked
from requant.errors.names import entry_named
from requant.mlir.types import ElementType, TensorType
from requant.plan.operands import kept_dtype, static_shape
from requant.plan.plan import Packing
from requant_service.http.json_body import invalid_request
from requant_service.http.json_document import JsonDocument
from requant_service.http.models import RequestModel
from requant_service.json_api import base64_tensor
from requant_service.json_api.schemas.described import arguments_model
from requant_service.json_api.schemas.tensors import ObservedTensor
from requant_service.json_api.sent_call import SentCall
from requant_service.json_api.tensors import check_count, read_elements
from requant_service.operations.described import limits_of
from requant_service.operations.types import read_tensor_type
from requant_service.runtime.settings import Settings

Model = TypeVar("Model", bound=BaseModel)


def read_calls(
    given: CallsInput, request: RequestModel, document: JsonDocument, settings: Settings
) -> tuple[ArrayCall, ...]:
    """Return the calls of a request. Errors point into it."""
    found = []
    for index, each in checked(enumerate(getattr(request, given.name)), every=16):
        place = f"{given.name}/{index}"
        with default_pointer(f"/{place}/operation"):
            operation = entry_named(given.operations, each.operation, "operation")
        call = _call(operation, each.arguments, f"{place}/arguments", document, settings)
        if given.observed:
            call = call.with_observed(_observed(call, each.observed, f"{place}/observed", document, settings))
        found.append(call)
    return tuple(found)


def _call(
    operation: Operation, arguments: Mapping[str, Any], place: str, document: JsonDocument, settings: Settings
) -> ArrayCall:
    request = _validated(arguments_model(operation), arguments, place, settings)
    sent = SentCall(operation, request, document.part(place), settings)
    with _within(place):
        types, _ = sent.types()
        dense = getattr(request, "packing", None) is Packing.DENSE
        arrays = {
            name: _array(sent, each, name, types[each.name], settings, dense=dense)
            for each in operation.tensors
            for name in sent.names[each.name]
        }
        return ArrayCall(
            operation=operation,
            types=types,
            arrays=arrays,
            options=sent.options(),
            numbers=sent.numbers,
            counts=sent.counts(),
            limits=limits_of(settings),
        )


def _array(
    sent: SentCall, given: TensorInput, name: str, type_: TensorType, settings: Settings, *, dense: bool
) -> Array:
    """Return a tensor as an array. It is read as its storage: nothing else is known yet of what is done with it."""
    path, tensor = sent.tensors[name]
    with default_pointer(f"/{path}/type"):
        dtype, shape = kept_dtype(type_.element, given.name), static_shape(type_)
    packed = dense and given.packable and (not tensor.in_values or len(sent.tensors) == 1)
    return shaped(read_elements(tensor, type_, dtype, path, sent.body, settings, dense=packed), type_, shape)


def _observed(
    call: ArrayCall, outputs: Mapping[str, Any], place: str, document: JsonDocument, settings: Settings
) -> dict[str, Array]:
    sent = {
        name: each if isinstance(each, list) else _validated(ObservedTensor, each, f"{place}/{name}", settings)
        for name, each in outputs_of(call.operation, outputs).items()
    }
    if not sent:
        detail = f"there is no output of {call.operation.name}"
        raise InvalidRequestError.of_field(f"/{place}", "too_short", detail)
    observed = _Observed(call, document.part(place), settings)
    with _within(place):
        return {name: observed.read(name, each) for name, each in sent.items()}


class _Observed:
    """Reads what was observed of the outputs of a call."""

    def __init__(self, call: ArrayCall, document: JsonDocument, settings: Settings) -> None:
        self._call = call
        self._document = document
        self._settings = settings

    def read(self, name: str, sent: list[Any] | ObservedTensor) -> Array:
        """Return an output. Raise UnknownNameError for one that the operation does not have."""
        with default_pointer(f"/{name}"):
            part = observable(self._call.operation, name)
        if isinstance(sent, list):
            return self._values(part, name, sent)
        if not isinstance(part, TensorOutput):
            raise InvalidRequestError.of_field(f"/{name}", "list_type", "input should be an array")
        if "type" in sent.model_fields_set:
            type_ = read_tensor_type(sent.type, self._settings, f"/{name}/type")
            with default_pointer(f"/{name}/type"):
                dtype, shape = kept_dtype(type_.element, "output"), static_shape(type_)
            return shaped(read_elements(sent, type_, dtype, name, self._document, self._settings), type_, shape)
        if sent.in_values:
            return self._values(part, f"{name}/values", sent.values)
        return self._data(part, name, sent)

    def _data(self, part: TensorOutput, name: str, tensor: ObservedTensor) -> Array:
        element = self._element(part)
        if element is None:
            detail = "required for data, since no argument of the call tells what this output is"
            raise InvalidRequestError.of_field(f"/{name}/type", "missing", detail)
        dtype = kept_dtype(element, "output")
        with default_pointer(f"/{name}/data"):
            flat = base64_tensor.decode(self._document.data(tensor.data), dtype, None)
        return shaped(flat, TensorType(flat.shape, element), flat.shape)

    def _values(self, part: Output, path: str, sent: list[Any]) -> Array:
        """Return numbers in a list, or in lists that are nested as a shape."""
        with pointer_prefix(f"/{path}"):
            check_count(_count(sent), self._settings.max_values)
            return listed_numbers(sent, self._element(part), lambda: self._document.list(path))

    def _element(self, part: Output) -> ElementType | None:
        call = self._call
        return element_of_output(call.operation, part, call.types, call.options.get("output_type"))


def _count(lists: Any) -> int:
    """Return how many numbers there are in lists that may be nested."""
    return sum(map(_count, lists)) if isinstance(lists, list) else 1


def _validated(model: type[Model], sent: Any, place: str, settings: Settings) -> Model:
    """Return a part of a request as a model. Raise what is wrong with it, pointing into the request."""
    try:
        return model.model_validate(sent)
    except ValidationError as error:
        raise invalid_request(error, model, settings.max_values, place.split("/")) from None


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Point into the request instead of into a part of it."""
    try:
        yield
    except RequantError as error:
        error.pointer = f"/{place}{error.pointer or ''}"
        if isinstance(error, InvalidRequestError):
            error.faults = tuple(replace(each, pointer=f"/{place}{each.pointer}") for each in error.faults)
        raise
