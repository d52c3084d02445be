"""Calls of operations on numpy arrays, read and checked, and run with the options that they have or with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from requant.arrays.elements import Array, as_array, as_stored, element_of, flat_bits
from requant.arrays.observed import observable, outputs_of
from requant.arrays.types import read_type
from requant.description import (
    NO_LIMITS,
    CallsInput,
    Elements,
    Group,
    Kind,
    Limits,
    NumbersInput,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    TensorInput,
)
from requant.errors import ParameterError, TypeFitError, default_pointer, excerpt
from requant.errors.names import entry_named, not_among
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.plan.operands import bind, kept_dtype

_BOOLEAN = bool | np.bool_
_REAL = int | float | np.integer | np.floating


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayCall:
    """One call of an operation: the type of each tensor that it has, and the arrays; the options that it has, read.

    `observed`: outputs that something else gave for the same call, by name: tensors, lists of numbers, and members of
    records. `calls`: those that the operation is about.
    """

    operation: Operation
    types: Mapping[str, TensorType]
    arrays: Mapping[str, Array]
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()
    observed: Mapping[str, Array] = field(default_factory=dict)
    calls: tuple[ArrayCall, ...] = ()
    limits: Limits = NO_LIMITS

    def type_of(self, name: str) -> TensorType:
        """Return the type of one of the arrays. Several in the place of one input share it."""
        return self.types[name] if name in self.types else self.types[name.rpartition("_")[0]]

    def planned(self, options: Mapping[str, Any] | None = None) -> PlannedWork:
        """Plan the call, with more options that are read. Raise what the plan of the operation raises."""
        chosen = {**self.operation.defaults, **self.options, **(options or {})}
        call = OperationCall(
            self.types, chosen, self.numbers, self.counts, self.untyped, self.limits, self.calls, self.arrays
        )
        return self.operation.plan(call)

    def result(self, work: PlannedWork) -> Result:
        """Do planned work on the arrays. Raise TypeFitError or TensorDataError for one that is not of its type, and
        what the work raises.
        """
        arrays = self.arrays
        return work.run(
            {name: flat_bits(arrays[name], each.dtype, each.type.element, name) for name, each in work.operands.items()}
        )

    def with_observed(self, observed: Mapping[str, Array]) -> ArrayCall:
        """Return the call with outputs that were observed."""
        return replace(self, observed=observed)


def call_on_arrays(
    operation: Operation, arrays: Mapping[str, Any], types: Mapping[str, Any], options: Mapping[str, Any]
) -> ArrayCall:
    """Return a call of an operation on arrays.

    `arrays`: tensors, and numbers; of an input that takes several tensors perhaps a list of arrays. `types`: the type
    of a tensor, as MLIR text or a type; those without one are what their dtypes say. `options`: as a caller writes
    them, without those that are absent. Raise ParameterError for a value of another kind, and UnknownNameError for a
    text that is no choice. Errors about a type or an array name it.
    """
    if (unmet := operation.unmet({*arrays, *options})) is not None:
        raise ParameterError(unmet[1])
    stored: dict[str, Array] = {}
    bound: dict[str, TensorType] = {}
    counts: dict[str, int] = {}
    untyped = set()
    for each in operation.tensors:
        if each.name not in arrays:
            if each.name in types:
                raise ParameterError(f"there is {each.type_option}, but no {each.name}")
            continue
        given = arrays[each.name]
        typed = each.name in types
        if each.several:
            several = _several(given)
            stored |= {f"{each.name}_{index}": array for index, array in enumerate(several)}
            counts[each.name], array = len(several), several[0]
        else:
            array = stored[each.name] = as_stored(given, typed=True) if typed else as_array(given)
        element = read_type(types[each.name]) if typed else element_of(array.dtype)
        bound[each.name] = bind(element, array.shape)
        if each.elements in (Elements.CODES, Elements.BYTES) and array.dtype.kind in "iu":
            untyped.add(each.name)
    calls = () if operation.calls is None else read_calls(operation.calls, arrays[operation.calls.name])
    read = {name: read_option(operation.option(name), value) for name, value in options.items()}
    numbers = {each.name: _numbers(each, arrays[each.name]) for each in operation.numbers if each.name in arrays}
    return ArrayCall(
        operation=operation,
        types=bound,
        arrays=stored,
        options=read,
        numbers=numbers,
        counts=counts,
        untyped=frozenset(untyped),
        calls=calls,
    )


def read_calls(
    given: CallsInput, listed: Any, tensor: Callable[[Any], Any] = lambda value: value, limits: Limits = NO_LIMITS
) -> tuple[ArrayCall, ...]:
    """Return calls that are given as dictionaries, with the arguments of the functions.

    `tensor`: returns the array that something stands for which is in the place of one. Raise ParameterError, saying
    which call is wrong, and what the arguments of one raise.
    """
    if isinstance(listed, Mapping):
        listed = [listed]
    if not isinstance(listed, list | tuple) or not listed:
        raise ParameterError(f"{given.name} takes a list of calls, each a dictionary")
    return tuple(_call(given, each, f"/{given.name}/{index}", tensor, limits) for index, each in enumerate(listed))


_MEMBERS_OF_CALL = ("operation", "arguments", "observed")


def _call(given: CallsInput, said: Any, place: str, tensor: Callable[[Any], Any], limits: Limits) -> ArrayCall:
    members = _MEMBERS_OF_CALL if given.observed else _MEMBERS_OF_CALL[:2]
    if not isinstance(said, Mapping) or set(said) != set(members):
        raise ParameterError(f"a call is a dictionary of {', '.join(members)}", pointer=place)
    with default_pointer(f"{place}/operation"):
        operation = entry_named(given.operations, said["operation"], "operation")
    with default_pointer(f"{place}/arguments"):
        call = replace(_call_of_arguments(operation, said["arguments"], tensor), limits=limits)
    if not given.observed:
        return call
    with default_pointer(f"{place}/observed"):
        return call.with_observed(_observed(operation, said["observed"], tensor))


def _call_of_arguments(operation: Operation, arguments: Any, tensor: Callable[[Any], Any]) -> ArrayCall:
    """Return the call of an operation whose arguments are a dictionary, as those of its function are."""
    if not isinstance(arguments, Mapping):
        raise ParameterError("arguments are a dictionary")
    inputs = [each.name for each in operation.arguments]
    types = {each.type_option: each.name for each in operation.tensors}
    known = [*inputs, *types, *(each.name for each in operation.options)]
    for name in arguments:
        if name not in known:
            raise ParameterError(not_among(f"known argument of {operation.name}", str(name), known))
    needed = [each.name for each in operation.arguments if not each.optional]
    needed += [each.name for each in operation.options if each.required and each.chooses is None]
    if missing := [each for each in needed if each not in arguments]:
        raise ParameterError(f"{operation.name} has no {' and no '.join(missing)}")
    arrays = {}
    for each in operation.arguments:
        if each.name not in arguments:
            continue
        value = arguments[each.name]
        if isinstance(each, TensorInput) and each.several and isinstance(value, list | tuple):
            arrays[each.name] = [_numeric(each.name, tensor(member)) for member in value]
        elif isinstance(each, TensorInput):
            arrays[each.name] = _as_given(each.name, tensor(value))
        else:
            arrays[each.name] = tensor(value) if isinstance(value, str) else value
    call = call_on_arrays(
        operation,
        arrays,
        {types[name]: value for name, value in arguments.items() if name in types},
        {name: value for name, value in arguments.items() if name not in inputs and name not in types},
    )
    for each in operation.tensors:
        if each.name in call.types and not each.several:
            element = call.types[each.name].element
            flat_bits(call.arrays[each.name], kept_dtype(element, each.name), element, each.name)
    return call


def _as_given(name: str, value: Any) -> Any:
    """Return what is in the place of a tensor. Raise ParameterError unless it is an array of numbers, or a list."""
    _numeric(name, value)
    return value


def _observed(operation: Operation, outputs: Any, tensor: Callable[[Any], Any]) -> dict[str, Array]:
    """Return observed outputs as arrays, floats of lists as f64. An array alone is the first output."""
    if isinstance(outputs, np.ndarray):
        outputs = {operation.reply[0].name: outputs}
    if isinstance(outputs, Mapping):
        outputs = outputs_of(operation, outputs)
    if not isinstance(outputs, Mapping) or not outputs:
        raise ParameterError("observed outputs are a dictionary of arrays by the names of the outputs")
    for name in outputs:
        observable(operation, name)
    return {name: _numeric(name, tensor(value)) for name, value in outputs.items()}


def _numeric(name: str, value: Any) -> Array:
    """Return an array of numbers. Raise ParameterError for what is none."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind in "OSUbc":
        raise ParameterError(f"{name} is no array of numbers")
    return array


def _several(given: Any) -> list[Array]:
    """Return the arrays of an input that takes several. Raise TypeFitError unless they have one shape and dtype."""
    listed = isinstance(given, list | tuple) and len(given) > 0 and all(isinstance(each, np.ndarray) for each in given)
    arrays = [as_array(each) for each in given] if listed else [as_array(given)]
    first = arrays[0]
    for index, each in enumerate(arrays):
        if (each.shape, each.dtype) != (first.shape, first.dtype):
            raise TypeFitError(
                f"the arrays must have one shape and dtype; array {index} is {each.dtype} of shape {each.shape}, and "
                f"array 0 {first.dtype} of shape {first.shape}"
            )
    return arrays


def _numbers(given: NumbersInput, value: ArrayLike) -> Array:
    try:
        # As they are: in an array of numbers, True would be 1.
        listed = value if isinstance(value, np.ndarray) else np.array(value, object)
    except ValueError:
        raise ParameterError(f"{given.name} takes numbers; these are lists of several lengths") from None
    if listed.dtype == bool or (listed.dtype == object and any(isinstance(each, _BOOLEAN) for each in listed.flat)):
        raise ParameterError(f"{given.name} takes numbers, not booleans")
    if given.kind is Kind.NUMBER_OR_TEXT:
        return _texts(given, listed)
    if given.kind is Kind.INTEGER:
        return _integers(given, value)
    try:
        numbers = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"{given.name} takes numbers: {excerpt(str(error))}") from None
    if not numbers.size or (given.single and numbers.size != 1):
        expected = "one number" if given.single else "at least one"
        raise ParameterError(f"{given.name} has {numbers.size} numbers; expected {expected}")
    return numbers


def _integers(given: NumbersInput, value: ArrayLike) -> Array:
    try:
        integers = np.array(value)
    except ValueError:
        raise ParameterError(f"{given.name} is no list of whole numbers") from None
    if not integers.size:
        return integers.astype(np.int64)
    if not np.can_cast(integers.dtype, np.int64) or integers.dtype.kind not in "iu":
        raise ParameterError(f"{given.name} takes whole numbers of 64 bits")
    return integers.astype(np.int64)


def _texts(given: NumbersInput, numbers: Array) -> Array:
    """Return numbers as texts that read back to them, beside those that are texts."""
    listed = numbers.astype(object)
    texts = np.empty(listed.shape, object)
    for place, each in np.ndenumerate(listed):
        if not isinstance(each, str | _REAL):
            raise ParameterError(f"{given.name} takes numbers, or their texts")
        texts[place] = each if isinstance(each, str) else _text(each)
    return texts


def _text(number: float | np.integer[Any] | np.floating[Any]) -> str:
    """Return the text of a number, which reads back to it. An integer may be too large for a float."""
    return str(number) if isinstance(number, int) else repr(float(number))


def read_option(option: Option, value: Any) -> Any:
    """Return the value of an option as operations take it. Raise ParameterError or UnknownNameError."""
    if option.kind is Kind.TYPE:
        return read_type(value)
    if option.kind is Kind.TENSOR_TYPE:
        return _tensor_type(option, value)
    if option.group is not None:
        return _group(option.name, option.group, value)
    if option.kind is Kind.TEXTS and (
        not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value)
    ):
        raise ParameterError(f"{option.name} takes a list of texts")
    if option.choices is not None and option.choices.enumeration is not None:
        known = {str(each): each for each in option.choices.enumeration}
        if option.kind is Kind.TEXTS:
            return tuple(entry_named(known, each, option.name) for each in value)
        if not isinstance(value, str):
            raise ParameterError(f"{option.name} is a {type(value).__name__}; expected one of {', '.join(known)}")
        return entry_named(known, value, option.name)
    if option.kind in (Kind.INTEGERS, Kind.NUMBERS):
        listed = value if isinstance(value, list | tuple) else np.atleast_1d(np.asarray(value)).tolist()
        members = tuple(_number(option, each) for each in listed)
        if option.length not in (None, len(members)):
            raise ParameterError(f"{option.name} has {len(members)} members; expected {option.length}")
        return members
    if option.kind is Kind.TEXTS:
        return tuple(value)
    if option.kind in (Kind.INTEGER, Kind.NUMBER):
        return _number(option, value)
    if option.kind is Kind.NUMBER_OR_TEXT and isinstance(value, _REAL) and not isinstance(value, bool):
        return option.resolve(_text(value))
    expected = bool if option.kind is Kind.BOOLEAN else str
    if not isinstance(value, expected):
        raise ParameterError(f"{option.name} is a {type(value).__name__}; expected a {expected.__name__}")
    return option.resolve(value)


def _group(name: str, group: Group, value: Any) -> dict[str, Any]:
    """Return those of the options that a mapping has."""
    if not isinstance(value, Mapping):
        raise ParameterError(f"{name} is a {type(value).__name__}; expected a mapping")
    known = {each.name: each for each in group.options}
    for each in value:
        if each not in known:
            raise ParameterError(not_among(f"member of {name}", str(each), known))
    if missing := [each.name for each in group.options if each.required and each.name not in value]:
        raise ParameterError(f"{name} has no {' and no '.join(missing)}")
    return {each: read_option(replace(known[each], name=f"{name}.{each}"), given) for each, given in value.items()}


def _tensor_type(option: Option, value: Any) -> TensorType:
    type_ = read_type(value)
    if not isinstance(type_, TensorType):
        raise TypeFitError(f"{option.name} is the type of a tensor, such as tensor<4x{print_type(type_)[:40]}>")
    return type_


def _number(option: Option, value: Any) -> int | float:
    whole = option.kind in (Kind.INTEGER, Kind.INTEGERS)
    if isinstance(value, bool) or not isinstance(value, int | np.integer if whole else _REAL):
        raise ParameterError(f"{option.name} takes {'whole numbers' if whole else 'numbers'}")
    if whole and not option.lowest <= value <= option.highest:
        raise ParameterError(f"{option.name} takes numbers from {option.lowest} to {option.highest}")
    try:
        return int(value) if whole else float(value)
    except OverflowError:
        raise ParameterError(f"{option.name} is larger than the largest double") from None
