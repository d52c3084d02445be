"""`requant <operation> x.npy ... -o y.npy`: the operations on tensors in files, made from their descriptions.

A file is `.npy`, `.npz` or `.safetensors`; of the latter two, which hold several, `file:name` is one tensor. The report
is one JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from requant.command.exit_status import DONE, FAILED
from requant.command.output import writing_stdout
from requant.command.tensor_files import read_tensor, write_tensors
from requant.description import Kind, Operation, Option, TensorInput
from requant.errors import ParameterError, StorageError, TypeTextError, excerpt

if TYPE_CHECKING:
    from requant.command.output import Output

NUMBERS = {Kind.INTEGER: int, Kind.NUMBER: float, Kind.INTEGERS: int, Kind.NUMBERS: float}
NEGATIVE_NUMBER = re.compile(r"-(\.?\d|inf)")


def flag(name: str) -> str:
    """Return the name of an option on the command line."""
    return f"--{name.replace('_', '-')}"


def add_arguments(parser: argparse.ArgumentParser, operation: Operation) -> None:
    """Add the arguments of an operation: its inputs, their types, its options, and where to write."""
    from requant.functions import options_of

    # argparse takes -1e-3 and -inf for options.
    parser._negative_number_matcher = NEGATIVE_NUMBER
    for tensor in operation.tensors:
        _add_input(parser, tensor)
    for numbers in operation.numbers:
        parser.add_argument(
            flag(numbers.name),
            type=NUMBERS.get(numbers.kind, str),
            nargs=1 if numbers.single else "+",
            required=not numbers.optional,
            metavar="NUMBER",
            help=numbers.description or None,
        )
    for tensor in operation.tensors:
        if tensor.elements.tell_their_type:
            continue
        said = f"the type of {tensor.name} in MLIR syntax; default: what the file holds, without scales"
        parser.add_argument(flag(tensor.type_option), metavar="TYPE", help=said)
    for option in options_of(operation):
        add_option(parser, option)
        if option.document:
            # A list of texts before it would take it for one of them.
            parser.usage = f"{parser.prog} FILE [options]"
    outputs = [each.name for each in operation.outputs]
    if operation.files:
        parser.add_argument(
            *("-o", "--output"),
            type=Path,
            metavar="FILE",
            help=f"where a file of the format {' or '.join(operation.files)} is written; default: stdout",
        )
    if not outputs:
        return
    written = f"{', '.join(outputs)} {'is' if len(outputs) == 1 else 'are'} written"
    parser.add_argument(
        *("-o", "--output"),
        type=Path,
        metavar="FILE",
        help=f"where {written}: .npy, or .npz or .safetensors for everything that there is, stages too",
    )


def _add_input(parser: argparse.ArgumentParser, tensor: TensorInput) -> None:
    said = f"{tensor.description} A .npy file, or FILE.npz:NAME, FILE.safetensors:NAME"
    if tensor.optional:
        parser.add_argument(flag(tensor.name), metavar="FILE", help=said)
    else:
        parser.add_argument(
            tensor.name, metavar=tensor.name.upper(), help=said.strip(), nargs="+" if tensor.several else None
        )


def add_option(parser: argparse.ArgumentParser, option: Option) -> None:
    """Add an option of an operation."""
    said = option.words.replace("%", "%%")
    if option.document:
        parser.add_argument(option.name, metavar="FILE", help=f"{said} A file, or - for the standard input.")
        return
    settings: dict[str, Any] = {"help": said, "required": option.required}
    if option.kind is Kind.BOOLEAN:
        parser.add_argument(flag(option.name), action=argparse.BooleanOptionalAction, default=None, help=said)
        return
    if option.kind in NUMBERS:
        settings["type"] = NUMBERS[option.kind]
    if option.kind in (Kind.INTEGERS, Kind.NUMBERS, Kind.TEXTS):
        settings["nargs"] = option.length or "+"
    if option.group is not None:
        settings |= {"type": json_object, "metavar": "JSON"}
        settings["help"] = f"{said} Members: {', '.join(each.name for each in option.group.options)}."
    if option.choices is not None and option.choices.enumeration is not None:
        settings["choices"] = [str(each) for each in option.choices.values]
    settings.setdefault("metavar", None if "choices" in settings else option.kind.upper().removesuffix("S"))
    parser.add_argument(flag(option.name), **settings)


def json_object(text: str) -> Any:
    """Read a JSON object, the members of a group of options."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return found


def run(operation: Operation, arguments: argparse.Namespace, output: Output) -> int:
    """Read the tensors, compute, write the outputs, and print the report. A check that has not passed is a failure, as
    differences are to cmp and diff.
    """
    from requant.functions import array_of, options_of, report_of, run_operation

    given = {name: value for name, value in vars(arguments).items() if value is not None}
    arrays = {each.name: _read(given[each.name]) for each in operation.tensors if each.name in given}
    numbers = {each.name: given[each.name] for each in operation.numbers if each.name in given}
    types = {each.name: given[each.type_option] for each in operation.tensors if each.type_option in given}
    options = {each.name: given[each.name] for each in options_of(operation) if each.name in given}
    documents = [each.name for each in operation.options if each.document]
    options |= {name: read_text(given[name]) for name in documents}
    try:
        result = run_operation(operation, arrays | numbers, types, options)
    except TypeTextError as error:
        if not documents:
            raise
        raise StorageError(f"{excerpt(given[documents[0]])} is no type: {error.detail}") from None
    if result.file is not None:
        _write_file(given.get("output"), result.file)
        return DONE
    report = report_of(operation, result)
    report |= {name: each.reshape(-1) for name, each in result.numbers.items()}
    stages = {name: array_of(each) for name, each in result.stages.items()}
    outputs = {name: array_of(each) for name, each in result.outputs.items()}
    if "output" in given and operation.files:
        raise ParameterError(f"-o is for the files of --format {' or '.join(operation.files)}; JSON goes to stdout")
    if "output" in given and not outputs:
        name = excerpt(given["output"].name)
        raise ParameterError(f"{operation.name} gives no tensor of these arguments, so none is written to {name}")
    if "output" in given:
        write_tensors(given["output"], outputs, stages)
    elif len(outputs) == 1 and not stages:
        (report["values"],) = outputs.values()
    elif len(outputs) > 1:
        report |= outputs
    if "trace" in report and "output" in given:
        # Stages that were written are not repeated.
        kept = {name: each for name, each in report["trace"].items() if not isinstance(each, np.ndarray)}
        report["trace"] = kept
    shown = as_json(report)
    output.done(json.dumps(shown), shown)
    return DONE if all(report[each.name] for each in operation.members if each.verdict) else FAILED


def _write_file(path: Path | None, file: bytes) -> None:
    if path is None:
        if sys.stdout is None:
            raise StorageError("stdout is closed; name a file with -o")
        with writing_stdout():
            sys.stdout.flush()
            sys.stdout.buffer.write(file)
            sys.stdout.buffer.flush()
        return
    try:
        path.write_bytes(file)
    except OSError as error:
        raise StorageError(f"{excerpt(str(path))} cannot be written: {error.strerror or error}") from None


def _read(named: str | list[str]) -> Any:
    return [read_tensor(each) for each in named] if isinstance(named, list) else read_tensor(named)


def read_text(named: str) -> str:
    """Return the text of a file. Raise StorageError for one that cannot be read, or is not UTF-8."""
    if named == "-" and sys.stdin is None:
        raise StorageError("stdin is closed; name a file")
    try:
        return (sys.stdin.buffer.read() if named == "-" else Path(named).read_bytes()).decode()
    except OSError as error:
        raise StorageError(f"{excerpt(named)} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StorageError(f"{excerpt(named)} is no text in UTF-8") from error


def as_json(value: Any) -> Any:
    """Return arrays as lists, and NaN and infinities, which JSON does not have, as the texts that routes have too."""
    if isinstance(value, np.ndarray):
        return as_json(value.tolist())
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
