"""Calls of operations as a parameter of a model: JSON as text, in which tensors are the inputs of the request."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any

from pydantic import Field, RootModel

from requant.arrays import calls
from requant.arrays.elements import shaped
from requant.description import Array, CallsInput, Kind
from requant.errors import LimitError, RequantError
from requant.errors.names import entry_named
from requant.mlir.types import TensorType
from requant_service.oip.call import Call
from requant_service.oip.datatypes import BOOL, DATATYPES
from requant_service.oip.models.json_texts import read_json_text
from requant_service.oip.models.model import Slot
from requant_service.oip.parameters import Parameter
from requant_service.operations.calls import MAX_CALLS, call_model
from requant_service.operations.described import check_factors, limits_of

CALLED_TENSORS = Slot(
    name="tensor",
    description="The tensors that the calls name.",
    datatypes=("INT32", *(name for name in DATATYPES if name not in ("INT32", BOOL.name))),
    optional=True,
    variadic=True,
    copied=True,
)


def calls_parameter(given: CallsInput) -> Parameter:
    """Return the calls as a parameter."""
    said = (
        f"{given.description} A JSON list as text, of objects with operation{', observed' if given.observed else ''} "
        "and arguments, which are those of the model: inputs and parameters. In the place of a tensor stands the name "
        "of an input of this request, tensor_0; numbers may be lists."
    )
    return Parameter(name=given.name, description=said, optional=given.optional)


@cache
def _list_model(*, observed: bool) -> type[RootModel[Any]]:
    call: Any = call_model(observed=observed)
    return RootModel[Annotated[list[call], Field(min_length=1, max_length=MAX_CALLS)]]


def read_calls(given: CallsInput, call: Call) -> tuple[calls.ArrayCall, ...]:
    """Return the calls of a request. Errors about one point at the parameter, and say which it is."""
    listed = read_json_text(call, given.name, _list_model(observed=given.observed), "a JSON list of calls").root
    limit = call.settings.max_type_bytes

    def tensor(named: Any) -> Any:
        return _array(call, named) if isinstance(named, str) else named

    try:
        for index, each in enumerate(listed):
            if any(len(text) > limit for text in _texts(each.arguments)):
                detail = f"a text has more than {limit} characters"
                raise LimitError(detail, limit=limit, pointer=f"/{given.name}/{index}/arguments")
        found = calls.read_calls(given, [each.given() for each in listed], tensor, limits_of(call.settings))
        for index, each in enumerate(found):
            for numbers in each.operation.numbers:
                if numbers.kind is Kind.NUMBER_OR_TEXT and numbers.name in each.numbers:
                    place = f"/{given.name}/{index}/arguments"
                    check_factors(each.numbers[numbers.name].size, numbers.name, call.settings, place)
    except RequantError as error:
        error.detail = f"{error.pointer}: {error.detail}"
        raise
    return found


def _array(call: Call, name: str) -> Array:
    """Return an input of the request as an array of its shape."""
    given = entry_named(call.inputs, name, "input")
    return shaped(given.data, TensorType(given.shape, given.datatype.element), given.shape)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
