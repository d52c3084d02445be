"""Calls of operations: `requant identify CALLS.json`, or `requant identify OPERATION --input x.npy --observed y.npy`.

The file is the request of the JSON route, in which a file may be in the place of a tensor: `"x.npy"`, or with its type
`{"type": "...", "file": "x.npy"}`. Paths in it start at its folder.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from requant.arrays.elements import Array, shaped
from requant.arrays.json_values import decode_elements
from requant.arrays.observed import element_of_output, listed_numbers, observable, outputs_of
from requant.arrays.types import read_type
from requant.command.exit_status import DONE
from requant.command.tensor_files import read_tensor
from requant.command.tensor_operation import NEGATIVE_NUMBER, NUMBERS, add_option, as_json, flag, read_text
from requant.description import CallsInput, Operation, TensorInput
from requant.errors import ParameterError, StorageError, TensorDataError, TypeFitError, excerpt
from requant.errors.names import entry_named, not_among
from requant.mlir.types import TensorType, Type
from requant.plan.operands import kept_dtype, static_shape
from requant.plan.plan import Packing, dense_bytes, dense_width, unpack

if TYPE_CHECKING:
    from requant.command.output import Output

_SAID = "A .npy file, or FILE.npz:NAME, FILE.safetensors:NAME"
_DATA, _VALUES, _FILE, _TYPE = "data", "values", "file", "type"


def add_arguments(parser: argparse.ArgumentParser, operation: Operation) -> None:
    """Add the arguments: a file of calls, or an operation with the arguments of one call."""
    given = _calls_of(operation)
    parser.add_argument(
        "calls",
        metavar="CALLS",
        help="a JSON file with the request of the route, - for the standard input; or the name of an operation, "
        "or of an operator, such as litert.MUL, followed by the arguments of a call of it: "
        + ", ".join(name for name in given.operations if "." not in name),
    )
    # They depend on the operation, and are read when that is known.
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    _add_options(parser, operation)


def _calls_of(operation: Operation) -> CallsInput:
    assert operation.calls is not None
    return operation.calls


def _add_options(parser: argparse.ArgumentParser, operation: Operation) -> None:
    for option in operation.options:
        add_option(parser, option)
    parser.add_argument("--json", action="store_true", help="print the reply as one JSON object")


def _call_parser(operation: Operation, called: Operation) -> argparse.ArgumentParser:
    """Return the parser of a call of an operation, and of what follows a file."""
    parser = argparse.ArgumentParser(prog=f"requant {operation.name} {called.name}", description=called.summary)
    parser._negative_number_matcher = NEGATIVE_NUMBER
    for tensor in called.tensors:
        nargs = "+" if tensor.several else None
        said = f"{tensor.description} {_SAID}".strip()
        parser.add_argument(flag(tensor.name), required=not tensor.optional, nargs=nargs, metavar="FILE", help=said)
    for tensor in called.tensors:
        said = f"the type of {tensor.name} in MLIR syntax; default: what the file holds, without scales"
        parser.add_argument(flag(tensor.type_option), metavar="TYPE", help=said)
    for numbers in called.numbers:
        kind = NUMBERS.get(numbers.kind, str)
        required = not numbers.optional
        parser.add_argument(
            flag(numbers.name), type=kind, nargs="+", required=required, metavar="NUMBER", help=numbers.description
        )
    for option in _options_of(called):
        add_option(parser, option)
    if _calls_of(operation).observed:
        parser.add_argument(
            "--observed",
            nargs="+",
            required=True,
            metavar="[NAME=]FILE",
            help=f"what was observed of an output, by default of the first: {_SAID}, or numbers: NAME=[1,2]",
        )
    _add_options(parser, operation)
    return parser


def _options_of(called: Operation) -> list[Any]:
    """Return the options of a call, of which those may be absent that choose the arithmetic."""
    from requant.functions import options_of

    return [each if each.chooses is None else replace(each, optional=True) for each in options_of(called)]


def run(operation: Operation, arguments: argparse.Namespace, output: Output) -> int:
    """Read the calls, do what is asked of them, and print the reply."""
    from requant.functions import report_of, run_operation

    given = _calls_of(operation)
    if arguments.calls in given.operations:
        called = given.operations[arguments.calls]
        parsed = vars(_call_parser(operation, called).parse_args(arguments.rest, arguments))
        calls: list[Any] = [_call_of(called, parsed, observed=given.observed)]
        options: dict[str, Any] = {}
    else:
        parser = argparse.ArgumentParser(prog=f"requant {operation.name} {arguments.calls}")
        _add_options(parser, operation)
        parsed = vars(parser.parse_args(arguments.rest, arguments))
        calls, options = _File(arguments.calls, operation).read()
    options |= {each.name: parsed[each.name] for each in operation.options if parsed.get(each.name) is not None}
    report = as_json(report_of(operation, run_operation(operation, {given.name: calls}, {}, options)))
    output.done(json.dumps(report) if parsed["json"] else "\n".join(_lines(_for_people(report))), report)
    return DONE


def _for_people(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reply with words in the place of the names of patterns."""
    from requant.identification.patterns import in_words

    patterns = report.get("patterns")
    return {**report, "patterns": list(map(in_words, patterns))} if patterns else report


def _call_of(called: Operation, given: Mapping[str, Any], *, observed: bool) -> dict[str, Any]:
    """Return the call that the command line says."""
    arguments: dict[str, Any] = {}
    for tensor in called.tensors:
        if (named := given[tensor.name]) is not None:
            arguments[tensor.name] = list(map(read_tensor, named)) if tensor.several else read_tensor(named)
    names = [each.name for each in (*called.numbers, *_options_of(called))]
    names += [each.type_option for each in called.tensors]
    arguments |= {name: given[name] for name in names if given[name] is not None}
    call = {"operation": called.name, "arguments": arguments}
    return {**call, "observed": dict(_observed(called, each) for each in given["observed"])} if observed else call


def _observed(called: Operation, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        return called.reply[0].name, read_tensor(text)
    if value.startswith("["):
        try:
            return name, np.array(json.loads(value))
        except ValueError:
            raise ParameterError(f"{name} is no list of numbers: {excerpt(value)}") from None
    return name, read_tensor(value)


class _File:
    """A request of the JSON route in a file."""

    def __init__(self, named: str, operation: Operation) -> None:
        self._operation = operation
        self._folder = Path() if named == "-" else Path(named).parent
        self._text = read_text(named)
        self._named = named
        self._request = self._parsed()

    def _parsed(self, number: Callable[[str], Any] | None = None) -> dict[str, Any]:
        """Return the request. `number`: what its numbers become, in the place of numbers."""
        try:
            request = json.loads(self._text, parse_float=number, parse_int=number, parse_constant=number)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            names = ", ".join(_calls_of(self._operation).operations)
            raise StorageError(f"{excerpt(self._named)} is no JSON object, nor one of the operations {names}")
        return request

    def read(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the calls, with the arguments of functions, and the options. Raise ParameterError."""
        operation, given = self._operation, _calls_of(self._operation)
        known = [given.name, *(each.name for each in operation.options)]
        for name in self._request:
            if name not in known:
                raise ParameterError(f"{excerpt(name)}: {not_among('known member', name, known)}")
        listed = self._request.get(given.name)
        if not isinstance(listed, list):
            raise ParameterError(f"the request has no list of {given.name}")
        options = {name: value for name, value in self._request.items() if name != given.name}
        return [self._call(each, [given.name, index]) for index, each in enumerate(listed)], options

    def _call(self, call: Any, place: list[str | int]) -> Any:
        """Return a call, with arrays for its tensors. What is no call is left to who reads it."""
        if not isinstance(call, dict) or not isinstance(call.get("arguments"), dict):
            return call
        called = entry_named(_calls_of(self._operation).operations, str(call.get("operation")), "operation")
        read = {**call, "arguments": self._arguments(called, call["arguments"], [*place, "arguments"])}
        if isinstance(outputs := call.get("observed"), dict):
            types = {each.name: _type(read["arguments"].get(each.type_option)) for each in called.tensors}
            stated = _type(read["arguments"].get("output_type"))
            known = {name: each for name, each in types.items() if isinstance(each, TensorType)}

            def observed(name: str, value: Any) -> Any:
                element = element_of_output(called, observable(called, name), known, stated)
                return self._output(value, element, [*place, "observed", name])

            read["observed"] = {name: observed(name, each) for name, each in outputs_of(called, outputs).items()}
        return read

    def _arguments(self, called: Operation, arguments: Mapping[str, Any], place: list[str | int]) -> dict[str, Any]:
        found = dict(arguments)
        dense = found.pop("packing", None) == Packing.DENSE
        for each in called.tensors:
            if each.several and isinstance(listed := found.pop(each.several, None), list):
                read = [self._tensor(each, value, [*place, each.several, at], dense) for at, value in enumerate(listed)]
                found[each.name] = [array for array, _ in read]
                types = {type_ for _, type_ in read if type_ is not None}
                if len(types) > 1:
                    raise TypeFitError(f"the tensors of {each.several} must have one type")
                if types:
                    found[each.type_option] = types.pop()
            elif each.name in found:
                found[each.name], type_ = self._tensor(each, found[each.name], [*place, each.name], dense)
                if type_ is not None:
                    found[each.type_option] = type_
        for records in called.record_inputs:
            if isinstance(listed := found.pop(records.name, None), list):
                for member in records.members:
                    numbers = [each.get(member.name) for each in listed if isinstance(each, dict)]
                    if any(each is not None for each in numbers):
                        found[member.numbers.name] = numbers
        return found

    def _tensor(self, given: TensorInput, value: Any, place: list[str | int], dense: bool) -> tuple[Any, str | None]:
        """Return a tensor, and its type if that stands with it."""
        if isinstance(value, str):
            return self._file(value), None
        if not isinstance(value, dict):
            return value, None
        if _FILE in value:
            return self._file(value[_FILE]), value.get(_TYPE)
        type_ = _type(value.get(_TYPE))
        if not isinstance(type_, TensorType):
            raise ParameterError(f"{given.name} has values or data, and no type of a tensor")
        element, shape = type_.element, static_shape(type_)
        dtype = kept_dtype(element, given.name)
        width = dense_width(type_) if dense and given.packable else None
        if _DATA in value and width is not None:
            packed = _decoded(value[_DATA], np.dtype(np.uint8), given.name, dense_bytes(prod(shape), width))
            flat = unpack(packed, width, prod(shape), dtype)
        elif _DATA in value:
            flat = _decoded(value[_DATA], dtype, given.name, prod(shape))
        else:
            values = value.get(_VALUES)
            if not isinstance(values, list):
                raise ParameterError(f"{given.name} has no values, no data and no file")
            flat = decode_elements(values, element, dtype, shape, lambda: self._literals([*place, _VALUES]))
        return shaped(flat, type_, shape), value[_TYPE]

    def _output(self, value: Any, element: Any, place: list[str | int]) -> Any:
        """Return an output that was observed: a file, a list of numbers, or an object with one of these or data."""
        if isinstance(value, dict) and _TYPE in value and _FILE not in value:
            array, _ = self._tensor(TensorInput(name=str(place[-1]), packable=False), value, place, dense=False)
            return array
        if isinstance(value, dict):
            form = next((each for each in (_FILE, _VALUES, _DATA) if each in value), None)
            place, value = ([*place, form], value[form]) if form in (_VALUES, _DATA) else (place, value.get(_FILE))
            if form == _DATA:
                if element is None:
                    raise ParameterError(f"{place[-2]} has data, and no type tells what they are")
                flat = _decoded(value, kept_dtype(element, "output"), str(place[-2]))
                return shaped(flat, TensorType(flat.shape, element), flat.shape)
        if isinstance(value, list):
            return listed_numbers(value, element, lambda: self._literals(place))
        return self._file(value) if isinstance(value, str) else value

    def _file(self, named: Any) -> Array:
        if not isinstance(named, str):
            raise ParameterError(f"a file is the text of its path, not {excerpt(repr(named))}")
        return read_tensor(str(self._folder / named))

    def _literals(self, place: list[str | int]) -> Any:
        """Return what is in a place, with the texts of numbers."""
        value: Any = self._parsed(str)
        for each in place:
            value = value[each]
        return value


def _type(text: Any) -> Type | None:
    return None if text is None else read_type(text)


def _decoded(text: Any, dtype: np.dtype[Any], name: str, elements: int | None = None) -> Array:
    try:
        data = base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise TensorDataError(f"the data of {name} are not standard base64 with padding") from None
    if len(data) % dtype.itemsize or elements not in (None, len(data) // dtype.itemsize):
        raise TensorDataError(f"the data of {name} have {len(data)} bytes, which is not what its type has")
    return np.frombuffer(data, dtype)


def _lines(value: Any, indent: str = "") -> list[str]:
    """Return a reply for people: a line for each member, and for each of a list; nothing for what is empty."""
    lines = []
    for name, each in value.items():
        if isinstance(each, list | dict) and not each:
            continue
        if (text := _on_one_line(each)) is not None:
            lines.append(f"{indent}{name}: {text}")
            continue
        lines.append(f"{indent}{name}:")
        for member in each if isinstance(each, list) else [each]:
            short = _on_one_line(member)
            inside = _lines(member) if short is None else [short]
            bullet = "- " if isinstance(each, list) else "  "
            lines += [f"{indent}{bullet if index == 0 else '  '}{line}" for index, line in enumerate(inside)]
    return lines


_LONGEST_LINE = 100


def _on_one_line(value: Any) -> str | None:
    """Return a value as short text, None for one that takes lines."""
    if isinstance(value, dict):
        parts = [(name, _on_one_line(each)) for name, each in value.items()]
        flat = all(not isinstance(each, list | dict) for each in value.values())
        text = " ".join(f"{name}={part}" for name, part in parts)
    elif isinstance(value, list):
        flat = all(not isinstance(each, list) for each in value)
        parts_of_list = [_on_one_line(each) for each in value]
        flat = flat and all(each is not None for each in parts_of_list)
        text = ("; " if any(isinstance(each, dict | str) for each in value) else ", ").join(map(str, parts_of_list))
    else:
        return ("yes" if value else "no") if isinstance(value, bool) else str(value)
    return text if flat and len(text) <= _LONGEST_LINE else None
