"""`python -m requant.operation_reference`: write docs/operations.md, the reference of our own operations.

It is made from their descriptions; the page is checked in, and a test compares it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from requant.description import (
    LARGEST_INTEGER,
    Argument,
    CallsInput,
    Input,
    Kind,
    Member,
    NumbersInput,
    Operation,
    Option,
    Part,
    Records,
    RecordsInput,
    Report,
    Trace,
)
from requant.functions import requirements_of
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from requant.operations.explain import EXPLANATIONS
from requant.operations.vectors import VECTORS

_HEAD = """# Reference of the operations

<!-- Written by `python -m requant.operation_reference` from the descriptions of the operations. -->

What each operation takes and gives: as a JSON route, as a model of the
[inference protocol](open_inference_protocol.md), as a [function](python.md) and as a [subcommand](command_line.md).
A model calls an input or output by the name in brackets, where there is one. Model, function and subcommand have an
option `NAME_type` for the type of an input that an array does not tell. `packing` is about tensors that travel, so
functions and subcommands do not have it; a text such as a type or a module is a file on the command line.

Conversions have more as models than their tables say: scales and zero points as tensors, and the members of
`calibration` ([calibration](parameters.md#calibration-methods)) as parameters of their own. The functions
`requant.quantize`, `dequantize` and `requantize` have a page of their own ([Python](python.md)), and neither derive
scales nor report an error.
[Other systems' operators](operators.md) have a page of their own.
"""
_GROUPS = {"ops": "Arithmetic", "params": "Parameters", "explain": "Explanations"}
_TYPED = {Kind.TYPE: "MLIR type", Kind.TENSOR_TYPE: "MLIR tensor type", Kind.NUMBER_OR_TEXT: "number or text"}


def table(head: str, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, with an empty one before it; nothing without rows. `head`: `a | b`."""
    listed = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    if listed:
        yield from ("", f"| {head} |", f"|{' --- |' * len(head.split('|'))}", *listed)


def _named(name: str, model_name: str) -> str:
    return f"`{name}`" if model_name in ("", name) else f"`{name}` (`{model_name}`)"


def _inputs(given: Input) -> Iterator[tuple[str, ...]]:
    if isinstance(given, RecordsInput):
        names = ", ".join(f"`{each.name}`" for each in given.members)
        yield f"`{given.name}`", f"in JSON, records of {names}", "", given.description
        yield from (_argument(each.numbers) for each in given.members)
    elif isinstance(given, CallsInput):
        yield f"`{given.name}`", "calls", "" if given.optional else "yes", given.description
    else:
        yield _argument(given)


def _argument(given: Argument) -> tuple[str, ...]:
    if isinstance(given, NumbersInput):
        kind = "number" if given.single else "numbers"
        kind += " or texts" if given.kind is Kind.NUMBER_OR_TEXT else ""
    else:
        kind = f"tensor, or several as `{given.several}`" if given.several else "tensor"
    return _named(given.name, given.model_name), kind, "" if given.optional else "yes", given.description


def _bounds(option: Option) -> str:
    lowest, highest = option.lowest > -LARGEST_INTEGER, option.highest < LARGEST_INTEGER
    if lowest and highest:
        return f"{option.lowest} to {option.highest}"
    return f"at least {option.lowest}" if lowest else f"at most {option.highest}" if highest else ""


def _options(options: Iterable[Option], of: str = "") -> Iterator[tuple[str, ...]]:
    """Yield the rows of options, and of those of a group behind it."""
    for option in options:
        yield _option(option, of)
        if option.group is not None:
            yield from _options(option.group.options, f"{option.name}.")


def _option(option: Option, of: str) -> tuple[str, ...]:
    kind = _TYPED.get(option.kind, option.kind.value)
    if option.length is not None:
        kind = f"{option.length} {kind}"
    if option.choices is not None and option.choices.enumeration is not None:
        kind = ", ".join(f"`{each}`" for each in option.choices.values)
        kind = f"any of {kind}" if option.kind is Kind.TEXTS else kind
    elif bounds := _bounds(option):
        kind = f"{kind}, {bounds}"
    if option.required:
        default = "required"
    else:
        default = (
            ""
            if option.default in (None, ())
            else f"`{str(option.default).lower() if option.kind is Kind.BOOLEAN else option.default}`"
        )
    return f"`{of}{option.name}`", kind, default, option.words


def _part(part: Part) -> tuple[str, ...]:
    if isinstance(part, Report):
        return "`report`", "" if part.optional else "yes", _with_members(part.description, part.members)
    description = part.description
    if isinstance(part, Records):
        return f"`{part.name}`", "" if part.optional else "yes", _with_members(description, part.record.members)
    if isinstance(part, Member):
        description = _with_members(description or part.group_description, part.members)
    always = "not in JSON" if isinstance(part, Member) and not part.in_json else "" if part.optional else "yes"
    return _named(part.name, part.model_name), always, description


def _trace(trace: Trace) -> tuple[str, ...]:
    names = [*([] if trace.records is None else [trace.records.name]), *(each.name for each in trace.stages)]
    return "`trace`", "", f"{trace.description} Members: {', '.join(f'`{each}`' for each in names)}."


def _with_members(description: str, members: Iterable[Member]) -> str:
    names = ", ".join(f"`{each.name}`" for each in members)
    return f"{description} Members: {names}.".lstrip() if names else description


def _section(operation: Operation) -> Iterator[str]:
    yield from ("", f"### {operation.title}", "", operation.summary)
    if operation.request:
        yield from ("", operation.request)
    for requirement in requirements_of(operation):
        yield from ("", requirement)
    name = operation.name
    faces = f"`POST /v1/{operation.path or name}`, model `{name}`, `requant.{name}()`, `requant {name}`"
    yield from ("", f"{faces}. Source: {operation.source}.")
    yield from table("input | | required |", (row for each in operation.inputs for row in _inputs(each)))
    yield from table("option | | default |", _options(operation.options))
    traced = [] if operation.trace is None else [_trace(operation.trace)]
    yield from table("reply | always |", [*map(_part, operation.reply), *traced])


def page() -> str:
    """Return the text of docs/operations.md."""
    listed = [*CONVERSIONS.values(), *OPERATIONS.values(), *EXPLANATIONS.values(), VECTORS]
    order = list(dict.fromkeys(each.group for each in listed))
    lines = []
    for group, operations in groupby(sorted(listed, key=lambda each: order.index(each.group)), lambda each: each.group):
        lines += ["", f"## {_GROUPS.get(group, group.capitalize())}"]
        for each in operations:
            lines += _section(each)
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/operations.md").write_text(page(), encoding="utf-8")
