"""`requant equivalence OPERATION ...`: whether two rules give the same for every input.

A bar shows how far it is where every input is computed. `requant equivalence check FILE` verifies a certificate. The
exit status tells whether the rules are equal, or the certificate holds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from requant.command.exit_status import DONE, FAILED
from requant.command.output import add_progress_option
from requant.command.tensor_operation import NEGATIVE_NUMBER, add_option, as_json, flag, json_object, read_text
from requant.description import Group, Kind, Operation, Option
from requant.equality.certificates import fault
from requant.errors import ParameterError, StorageError, excerpt
from requant.errors.progress import progress_report

if TYPE_CHECKING:
    from requant.command.output import Output

_CHECK = "check"
_FILES = ("certificate", "smt2")
"""What is written to files of its own."""


def add_arguments(parser: argparse.ArgumentParser, operation: Operation) -> None:
    """Add the arguments: an operation and two rules for it, or the word check and a certificate."""
    parser._negative_number_matcher = NEGATIVE_NUMBER
    options = {each.name: each for each in operation.options}
    compared = options.pop("operation")
    assert compared.choices is not None
    parser.add_argument(
        "operation",
        choices=[*compared.choices.values, _CHECK],
        help=f"{compared.description} Or check, which verifies the certificate in FILE.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a certificate, - for the standard input")
    for numbers in operation.numbers:
        parser.add_argument(flag(numbers.name), type=int, nargs="+", metavar="INTEGER", help=numbers.description)
    for option in options.values():
        if option.group is not None:
            _add_rule(parser, option, option.group)
        elif option.document:
            parser.add_argument(
                flag(option.name), metavar="FILE", help=f"{option.description} - is the standard input."
            )
        elif option.name in _FILES:
            said = {"certificate": "the certificate", "smt2": "the claim as SMT-LIB 2 of bit vectors"}[option.name]
            parser.add_argument(flag(option.name), type=Path, metavar="FILE", help=f"where {said} is written")
        else:
            add_option(parser, option)
    add_progress_option(parser)


def _add_rule(parser: argparse.ArgumentParser, option: Option, group: Group) -> None:
    names = ", ".join(each.name for each in group.options)
    parser.add_argument(
        flag(option.name),
        nargs="+",
        metavar="NAME=VALUE",
        type=partial(_members, group),
        help=f"{option.description} Any of {names}; or a JSON object of them.",
    )


def _members(group: Group, text: str) -> dict[str, Any]:
    """Return what `name=value` says, or a JSON object."""
    if text.lstrip().startswith("{"):
        found: dict[str, Any] = json_object(text)
        return found
    name, equals, value = text.partition("=")
    kinds = {each.name: each.kind for each in group.options}
    if not equals or name not in kinds:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE with one of {', '.join(kinds)}")
    if kinds[name] in (Kind.INTEGER, Kind.BOOLEAN):
        try:
            return {name: json.loads(value)}
        except ValueError:
            raise argparse.ArgumentTypeError(f"{name} is no {kinds[name]}") from None
    return {name: value}


def run(operation: Operation, arguments: argparse.Namespace, output: Output) -> int:
    """Compare two rules and print what was found, or check a certificate."""
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    if (given["operation"] == _CHECK) != ("file" in given):
        raise ParameterError("FILE is the certificate of: requant equivalence check FILE")
    if given["operation"] == _CHECK:
        return _check(given["file"], output)
    return _compare(operation, given, output)


def _compare(operation: Operation, given: Mapping[str, Any], output: Output) -> int:
    from requant.functions import report_of, run_operation

    options: dict[str, Any] = {each.name: given[each.name] for each in operation.options if each.name in given}
    for option in operation.options:
        if option.name not in given:
            continue
        if option.group is not None:
            options[option.name] = {name: value for each in given[option.name] for name, value in each.items()}
        elif option.document:
            options[option.name] = read_text(given[option.name])
        elif option.name in _FILES:
            options[option.name] = True
    numbers = {each.name: given[each.name] for each in operation.numbers if each.name in given}
    token = progress_report.set(output.compared)
    try:
        report = report_of(operation, run_operation(operation, numbers, {}, options))
    finally:
        progress_report.reset(token)
    for name in _FILES:
        text = report.pop(name, None)
        if name in given and text is not None:
            _write(given[name], text)
    shown = as_json(report)
    output.done(json.dumps(shown), shown)
    return DONE if report["equal"] else FAILED


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(f"{text.rstrip()}\n")
    except OSError as error:
        raise StorageError(f"{excerpt(str(path))} cannot be written: {error.strerror or error}") from None


def _check(named: str, output: Output) -> int:
    try:
        document = json.loads(read_text(named))
    except (ValueError, RecursionError):
        raise StorageError(f"{excerpt(named)} is no JSON document") from None
    found: dict[str, Any] = {"proven": (wrong := fault(document)) is None}
    if wrong is None:
        found |= {"claim": document["claim"], "rules": document["rules"]}
    else:
        found["fault"] = excerpt(wrong)
    output.done(json.dumps(found), found)
    return DONE if found["proven"] else FAILED
