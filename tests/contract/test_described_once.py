"""What an operation is described with stands in one file: no sentence of a description occurs in a second one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from requant.description import Member, Operation, Records, RecordsInput, Report, TensorInput
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from requant.operations.explain import EXPLANATIONS
from requant.operations.vectors import VECTORS
from tests.conftest import ROOT

# Shorter ones are no sentences, but words that different things have in common.
_MIN_CHARACTERS = 40


def sentences(operation: Operation) -> Iterator[str]:
    """Every text of a description."""
    yield operation.summary
    yield operation.request
    yield operation.reply_description
    for given in operation.inputs:
        yield given.description
        if isinstance(given, TensorInput):
            yield given.several_description
        if isinstance(given, RecordsInput):
            yield given.record_description
            for member in given.members:
                yield from (member.description, member.numbers.description)
    for option in operation.options:
        yield option.description
        if option.group is not None:
            yield from (option.group.description, option.group.reply_description)
            yield from (each.description for each in option.group.options)
    for part in operation.reply:
        yield part.description
        if isinstance(part, Member | Report):
            yield from _members(part.members)
        if isinstance(part, Records):
            yield part.record.description
            yield from _members(part.record.members)
    if operation.trace is not None:
        yield operation.trace.description
        for stage in operation.trace.stages:
            yield stage.description


def _members(members: tuple[Member, ...]) -> Iterator[str]:
    for member in members:
        yield member.description
        yield member.group_description
        yield from _members(member.members)


@cache
def texts() -> dict[str, list[Path]]:
    """The files in which each text of the product stands. Adjacent literals are one."""
    places: dict[str, list[Path]] = {}
    for root in ("core", "service"):
        for file in sorted((ROOT / root).rglob("*.py")):
            constants = {
                node.value
                for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
            for text in constants:
                places.setdefault(text, []).append(file.relative_to(ROOT))
    return places


def test_no_sentence_of_a_description_stands_in_a_second_file() -> None:
    operations = (*OPERATIONS.values(), *CONVERSIONS.values(), *EXPLANATIONS.values(), VECTORS)
    described = {text for operation in operations for text in sentences(operation) if len(text) >= _MIN_CHARACTERS}
    assert len(described) > 60
    twice = {text: files for text in described if len(files := texts().get(text, [])) > 1}
    assert not twice, "\n".join(f"{text!r}: {', '.join(map(str, files))}" for text, files in twice.items())
