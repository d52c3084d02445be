"""The operations as functions on numpy arrays, made from their descriptions. `functions.pyi` tells editors of them.

    array = requant.matmul(lhs, rhs, output_type, lhs_type=..., rhs_type=...)

Inputs come first, then what is required, the rest by name. The type of an input, `NAME_type`, is MLIR text or a type;
without one, it is what the array is.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from requant.arrays.calls import call_on_arrays
from requant.arrays.elements import Array, shaped
from requant.description import (
    Kind,
    Operation,
    Option,
    RecordsInput,
    Report,
    Result,
    TensorOutput,
    TensorValue,
)
from requant.errors.names import did_you_mean
from requant.operations import OPERATIONS
from requant.operations.explain import EXPLANATIONS
from requant.operations.operators import operation_of
from requant.operations.vectors import VECTORS
from requant.operators.registry import OPERATORS

# In memory numbers are never packed.
_OF_TRANSPORT = ("packing",)


def options_of(operation: Operation) -> list[Option]:
    """Return the options that are not about how tensors travel."""
    return [each for each in operation.options if each.name not in _OF_TRANSPORT]


def run_operation(
    operation: Operation, arrays: Mapping[str, Any], types: Mapping[str, Any], options: Mapping[str, Any]
) -> Result:
    """Run an operation on arrays. See `requant.arrays.calls.call_on_arrays`; raise what that and the work raise."""
    call = call_on_arrays(operation, arrays, types, options)
    return call.result(call.planned())


def array_of(value: TensorValue) -> Array:
    """Return a tensor as an array."""
    return shaped(value.data, value.type, value.shape)


def signature_of(operation: Operation) -> inspect.Signature:
    """Return the signature of an operation's function."""
    kinds = inspect.Parameter
    typed = [each for each in operation.tensors if not each.elements.tell_their_type]
    first = [each for each in operation.inputs_of_function if not each.optional]
    parameters = [kinds(each.name, kinds.POSITIONAL_OR_KEYWORD) for each in first]
    parameters += [kinds(each.name, kinds.POSITIONAL_OR_KEYWORD) for each in options_of(operation) if each.required]
    # Behind what is required, an optional input is given by its name.
    place = kinds.KEYWORD_ONLY if any(each.required for each in options_of(operation)) else kinds.POSITIONAL_OR_KEYWORD
    parameters += [kinds(each.name, place, default=None) for each in operation.inputs_of_function if each.optional]
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
    pairs = {each.name: f" Or records of both: ({', '.join(_members(each))})." for each in operation.record_inputs}
    for given in operation.inputs_of_function:
        lines.append(entry(given.name, given.description + pairs.get(given.name, "")).rstrip(": "))
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


def _members(records: RecordsInput) -> list[str]:
    return [each.name for each in records.members]


def _split_records(operation: Operation, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arrays with an argument for each member of records that were given as such.

    `multipliers=[(1073741824, 34)]` are `multipliers=[1073741824]` and `shifts=[34]`; so are records as in JSON.
    """
    for records in operation.record_inputs:
        given, names = arrays.get(records.name), [each.numbers.name for each in records.members]
        if isinstance(given, list | tuple) and given and not arrays.keys() & set(names[1:]):
            rows = [
                [each.get(name) for name in _members(records)] if isinstance(each, Mapping) else each for each in given
            ]
            if all(isinstance(row, list | tuple) and len(row) == len(names) for row in rows):
                arrays = {**arrays, **dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))}
    return arrays


def requirements_of(operation: Operation) -> list[str]:
    """Return what is required of several arguments together, each a sentence."""
    required = map(operation.required, operation.one_of)
    return [f"{each[:1].upper()}{each[1:]}." for each in required]


def gives_tensors(operation: Operation) -> bool:
    """Return whether what an operation gives is tensors: others give a dictionary of all parts of their reply."""
    return isinstance(operation.reply[0], TensorOutput) or any(not each.optional for each in operation.outputs)


def has_report(operation: Operation) -> bool:
    """Return whether there is something to report beside the tensors."""
    reported = operation.trace is not None or any(not isinstance(each, TensorOutput) for each in operation.reply)
    return gives_tensors(operation) and reported


def report_of(operation: Operation, result: Result) -> dict[str, Any]:
    """Return what an operation reports beside its outputs, stages as arrays."""
    # Members of enumerations as plain texts.
    members = {**result.report, **result.members}
    report = {name: str(each) if isinstance(each, str) else each for name, each in members.items()}
    report |= result.numbers
    report |= {f"{name}_type": each.type_text for name, each in result.outputs.items()}
    if operation.records is not None and result.records is not None:
        report[operation.records.name] = list(result.records)
    if operation.trace is not None and result.stages:
        stages = {name: array_of(each) for name, each in result.stages.items()}
        records = operation.trace.records
        used = {} if records is None else {records.name: list(result.records or ())}
        report["trace"] = {**used, **stages}
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
        arrays = {each.name: given.pop(each.name) for each in operation.inputs_of_function if each.name in given}
        types = {each.name: given.pop(each.type_option) for each in operation.tensors if each.type_option in given}
        return_report = given.pop("return_report", False)
        result = run_operation(operation, _split_records(operation, arrays), types, given)
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
