"""The operations as functions on numpy arrays, made from their descriptions. `functions.pyi` tells editors of them.

    array = requant.matmul(lhs, rhs, output_type, lhs_type=..., rhs_type=...)

Inputs come first, then what is required, the rest by name. The type of an input, `NAME_type`, is MLIR text or a type;
without one, it is what the array is.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from requant.arrays.elements import Array, as_array, as_stored, element_of, flat_bits, shaped
from requant.arrays.types import read_type
from requant.description import (
    Elements,
    Group,
    Kind,
    NumbersInput,
    Operation,
    OperationCall,
    Option,
    Report,
    Result,
    TensorOutput,
    TensorValue,
)
from requant.errors import ParameterError, TypeFitError, excerpt
from requant.errors.names import did_you_mean, entry_named, not_among
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.operations import OPERATIONS
from requant.operations.explain import EXPLANATIONS
from requant.operations.vectors import VECTORS
from requant.operators.operation import operation_of
from requant.operators.registry import OPERATORS
from requant.plan.operands import bind

_BOOLEAN = bool | np.bool_
_REAL = int | float | np.integer | np.floating

# In memory numbers are never packed.
_OF_TRANSPORT = ("packing",)


def options_of(operation: Operation) -> list[Option]:
    """Return the options that are not about how tensors travel."""
    return [each for each in operation.options if each.name not in _OF_TRANSPORT]


def run_operation(
    operation: Operation,
    arrays: Mapping[str, Any],
    types: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Result:
    """Run an operation on arrays.

    `arrays`: tensors, and numbers; of an input that takes several tensors perhaps a list of arrays. `types`: the type
    of a tensor, as MLIR text or a type; those without one are what their dtypes say. `options`: as a caller writes
    them, without those that are absent. Raise what the operation raises, ParameterError for a value of another kind,
    and UnknownNameError for a text that is no choice. Errors about a type or an array name it.
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
    read = {name: read_option(operation.option(name), value) for name, value in options.items()}
    numbers = {each.name: _numbers(each, arrays[each.name]) for each in operation.numbers if each.name in arrays}
    work = operation.plan(OperationCall(bound, {**operation.defaults, **read}, numbers, counts, frozenset(untyped)))
    return work.run(
        {name: flat_bits(stored[name], each.dtype, each.type.element, name) for name, each in work.operands.items()}
    )


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


def array_of(value: TensorValue) -> Array:
    """Return a tensor as an array."""
    return shaped(value.data, value.type, value.shape)


def signature_of(operation: Operation) -> inspect.Signature:
    """Return the signature of an operation's function."""
    kinds = inspect.Parameter
    typed = [each for each in operation.tensors if not each.elements.tell_their_type]
    first = [each for each in operation.arguments if not each.optional]
    parameters = [kinds(each.name, kinds.POSITIONAL_OR_KEYWORD) for each in first]
    parameters += [kinds(each.name, kinds.POSITIONAL_OR_KEYWORD) for each in options_of(operation) if each.required]
    # Behind what is required, an optional input is given by its name.
    place = kinds.KEYWORD_ONLY if any(each.required for each in options_of(operation)) else kinds.POSITIONAL_OR_KEYWORD
    parameters += [kinds(each.name, place, default=None) for each in operation.arguments if each.optional]
    parameters += [kinds(each.type_option, kinds.KEYWORD_ONLY, default=None) for each in typed]
    for option in options_of(operation):
        if not option.required:
            default = str(option.default) if option.choices is not None and option.default else option.default
            parameters.append(kinds(option.name, kinds.KEYWORD_ONLY, default=default))
    if has_report(operation):
        parameters.append(kinds("return_report", kinds.KEYWORD_ONLY, default=False))
    return inspect.Signature(parameters)


def documentation_of(operation: Operation) -> str:
    """Return the docstring of an operation's function."""

    def entry(name: str, said: str) -> str:
        return textwrap.fill(f"{name}: {said}", 116)

    lines = [textwrap.fill(operation.summary, 116), ""]
    for paragraph in operation.request.split("\n\n") if operation.request else []:
        lines += [textwrap.fill(paragraph, 116), ""]
    lines += [entry(each.name, each.description).rstrip(": ") for each in operation.arguments]
    if types := [each.type_option for each in operation.tensors if not each.elements.tell_their_type]:
        lines += [entry(", ".join(types), "the types in MLIR syntax. Default: what the arrays are, without scales.")]
    for option in options_of(operation):
        said = option.words
        if option.choices is not None and option.choices.enumeration is not None:
            said += f" {'Any' if option.kind is Kind.TEXTS else 'One'} of {', '.join(option.choices.values)}."
        if option.group is not None:
            said += f" Members: {', '.join(each.name for each in option.group.options)}."
        lines.append(entry(option.name, said).rstrip(": "))
    for requirement in requirements_of(operation):
        lines += ["", textwrap.fill(requirement, 116)]
    more = ", whose `trace` has the stages" if operation.trace is not None else ""
    if not gives_tensors(operation):
        members = ", ".join(each.name for each in operation.reply if not isinstance(each, Report))
        files = f", or with format {' or '.join(operation.files)} a file" if operation.files else ""
        lines += ["", textwrap.fill(f"Return a dictionary: {members}{files}.", 116)]
    if has_report(operation):
        lines.append(entry("return_report", f"also return the report, a dictionary{more}."))
    return "\n".join([*lines, "", textwrap.fill(f"Source: {operation.source}.", 116)])


def requirements_of(operation: Operation) -> list[str]:
    """Return what is required of several arguments together, each a sentence."""
    required = map(operation.required, operation.one_of)
    return [f"{each[:1].upper()}{each[1:]}." for each in required]


def gives_tensors(operation: Operation) -> bool:
    """Return whether what an operation gives is tensors: others give a dictionary of all parts of their reply."""
    return isinstance(operation.reply[0], TensorOutput) or any(not each.optional for each in operation.outputs)


def has_report(operation: Operation) -> bool:
    """Return whether there is something to report beside the tensors."""
    return gives_tensors(operation) and any(not isinstance(each, TensorOutput) for each in operation.reply)


def report_of(operation: Operation, result: Result) -> dict[str, Any]:
    """Return what an operation reports beside its outputs, stages as arrays."""
    # Members of enumerations as plain texts.
    members = {**result.report, **result.members}
    report = {name: str(each) if isinstance(each, str) else each for name, each in members.items()}
    report |= result.numbers
    report |= {f"{name}_type": each.type_text for name, each in result.outputs.items()}
    if operation.records is not None and result.records is not None:
        report[operation.records.name] = list(result.records)
    if operation.trace is not None and result.records is not None:
        stages = {name: array_of(each) for name, each in result.stages.items()}
        report["trace"] = {operation.trace.records.name: list(result.records), **stages}
    return report


def file_of(operation: Operation, form: str, file: bytes) -> str | bytes:
    """Return a file that is text as that."""
    return file.decode() if operation.files[form].startswith("text/") else file


def function_of(operation: Operation) -> Callable[..., Any]:
    """Return an operation as a function."""
    signature = signature_of(operation)
    required = {name for name, each in signature.parameters.items() if each.default is each.empty}

    def call(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError as error:
            raise _wrong_arguments(operation, signature, named, error) from None
        # None is what is absent, but no value of an argument that has to be there.
        absent = {name for name, value in bound.arguments.items() if value is None and name not in required}
        given = {name: value for name, value in bound.arguments.items() if name not in absent}
        arrays = {each.name: given.pop(each.name) for each in operation.arguments if each.name in given}
        types = {each.name: given.pop(each.type_option) for each in operation.tensors if each.type_option in given}
        return_report = given.pop("return_report", False)
        result = run_operation(operation, arrays, types, given)
        if result.file is not None:
            return file_of(operation, given["format"], result.file)
        if not gives_tensors(operation):
            return report_of(operation, result) | {name: array_of(each) for name, each in result.outputs.items()}
        outputs = tuple(array_of(each) for each in result.outputs.values())
        if return_report:
            return (*outputs, report_of(operation, result))
        return outputs[0] if len(outputs) == 1 else outputs

    call.__name__ = call.__qualname__ = operation.name.rpartition(".")[2]
    call.__doc__ = documentation_of(operation)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _wrong_arguments(
    operation: Operation, signature: inspect.Signature, named: Mapping[str, Any], error: TypeError
) -> TypeError:
    unknown = [name for name in named if name not in signature.parameters]
    if unknown:
        hint = did_you_mean(unknown[0], signature.parameters) or f"there are {', '.join(signature.parameters)}"
        return TypeError(f"{operation.name} has no argument {unknown[0]}; {hint}")
    return TypeError(f"{operation.name}: {error}")


# These give a report or a type, which has more to it than a dictionary (`requant.arrays`).
_WRITTEN = ("compare", "parse_type")

DESCRIBED: Mapping[str, Operation] = {
    each.name: each for each in (*EXPLANATIONS.values(), VECTORS, *OPERATIONS.values()) if each.name not in _WRITTEN
}
"""Those of our own operations whose functions are made here."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {name: function_of(each) for name, each in DESCRIBED.items()}

# The package `mlir` is the type language, so operators of MLIR are reached by their dialect, `quant`.
_UNNAMED_SYSTEM = "mlir."


def public_name(operator: str) -> str:
    """Return what the function of an operator is called in this package: `onnx.QuantizeLinear`, `quant.qcast`."""
    return operator.removeprefix(_UNNAMED_SYSTEM)


def _namespaces() -> dict[str, Any]:
    """Return the functions of other systems' operators below the names of their systems.

    An overload is an attribute of the function that it overloads, as in torch.
    """
    root = SimpleNamespace()
    for name, operator in OPERATORS.items():
        *path, last = public_name(name).split(".")
        place: Any = root
        for step in path:
            if not hasattr(place, step):
                setattr(place, step, SimpleNamespace())
            place = getattr(place, step)
        setattr(place, last, function_of(operation_of(operator)))
    return vars(root)


SYSTEMS: Mapping[str, Any] = _namespaces()
"""Other systems' operators: `SYSTEMS["onnx"].QuantizeLinear`."""


def __getattr__(name: str) -> Any:
    for known in (FUNCTIONS, SYSTEMS):
        if name in known:
            return known[name]
    raise AttributeError(f"module 'requant.functions' has no attribute '{name}'")
