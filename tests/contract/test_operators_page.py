"""docs/operators.md has a row for each operator and each of its versions, with what was compared and no mismatch."""

from __future__ import annotations

import re

import pytest

from requant.operators.description import Operator
from requant.operators.registry import OPERATORS
from tests.support.page_table import DOCS

PAGE = (DOCS / "operators.md").read_text(encoding="utf-8").partition("## TOSA RESCALE")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| `")]
# From the end: mismatches, known differences.
MISMATCHES = -2


def rows(operator: Operator) -> list[list[str]]:
    return [row for row in ROWS if row[0] == f"`{operator.full_name}`"]


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_every_operator_and_version_has_a_row(operator: Operator) -> None:
    versions = [row[1] for row in rows(operator)]
    assert len(versions) == len(set(versions))
    if operator.versions:
        assert versions == [str(version) for version in operator.versions]
    assert versions
    for row in rows(operator):
        assert row[MISMATCHES] == "0", row
        assert any(cell for cell in row[2:MISMATCHES]), row


def test_the_implementations_are_listed() -> None:
    listed = {row[0].strip("`"): row[1].replace("`", "").split(", ") for row in ROWS if len(row) == 3}
    for operator in OPERATORS.values():
        assert listed[operator.system] == list(operator.implementations.values)
    assert listed.keys() == {operator.system for operator in OPERATORS.values()}


def test_every_row_is_of_an_operator() -> None:
    names = {row[0].strip("`") for row in ROWS if len(row) > 3 and "." in row[0]}
    assert names == set(OPERATORS)


def test_the_known_differences_are_explained() -> None:
    explained = {int(each) for each in re.findall(r"^(\d+)\. ", PAGE.partition("## Deliberate differences")[2], re.M)}
    assert explained == set(range(1, max(explained) + 1))
    named = {int(each) for row in ROWS for each in re.findall(r"\b\d+\b", row[-1]) if not row[0].startswith("`tosa")}
    assert named == explained
