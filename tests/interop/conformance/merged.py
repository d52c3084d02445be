"""The records of many processes and rounds, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.interop.conformance.divergences import DIVERGENCES
from tests.interop.conformance.not_compared import NOT_COMPARED
from tests.interop.conformance.rows import expected_rows
from tests.interop.conformance.subject import Kind, Subject

Row = dict[str, Any]
Key = tuple[str, str, str]
"""System, version and instruction set."""


def merge(records: Iterable[Mapping[str, Any]], date: str) -> dict[str, Any]:
    """Return what the page says, with a row for each name and operation of ours.

    A test that was repeated with the same data counts once, also where it ran with the same version of a system in
    another environment.
    """
    rounds: dict[tuple[Any, ...], tuple[str, str]] = {}
    counted = []
    for record in records:
        data = record["system"], record["version"], record["test"], record["seed"]
        run = record["environment"], record["round"]
        if rounds.setdefault(data, run) == run:
            counted.append(record)
    sums: dict[Subject, dict[Key, tuple[Counter[str], Counter[str]]]] = {}
    for record in counted:
        subject = Subject(Kind(record["kind"]), record["name"], record["operation"])
        key = (record["system"], record["version"], record["instruction_set"])
        numbers, left_out = sums.setdefault(subject, {}).setdefault(key, (Counter(), Counter()))
        numbers.update(elements=record["elements"], differences=record["differences"])
        left_out.update(record["divergences"])
    rows = expected_rows()
    if unknown := sums.keys() - set(rows):
        raise ValueError(f"recorded, but in no catalogue: {sorted(unknown)}")
    used = {name for record in counted for name in record["divergences"]}
    return {
        "date": date,
        "seeds": sorted({record["seed"] for record in counted} - {None}),
        "divergences": {name: reason for name, reason in DIVERGENCES.items() if name in used},
        "rows": [_row(subject, sums.get(subject, {})) for subject in rows],
    }


def _row(subject: Subject, compared: Mapping[Key, tuple[Counter[str], Counter[str]]]) -> Row:
    row: Row = {"kind": subject.kind, "name": subject.name, "operation": subject.operation}
    row["compared"] = [
        {
            "system": system,
            "version": version,
            "instruction_set": instruction_set,
            "elements": numbers["elements"],
            "differences": numbers["differences"],
            "divergences": dict(sorted(left_out.items())),
        }
        for (system, version, instruction_set), (numbers, left_out) in sorted(compared.items())
        if numbers["elements"]
    ]
    if not row["compared"] and subject in NOT_COMPARED:
        row["not_compared"] = NOT_COMPARED[subject]
    return row


def gaps(facts: Mapping[str, Any]) -> list[str]:
    """Return the rows with neither a count nor a reason why no system can be run."""
    return [
        " ".join((row["kind"], row["name"], row["operation"]))
        for row in facts["rows"]
        if not row["compared"] and "not_compared" not in row
    ]


def changes(committed: Mapping[str, Any], found: Mapping[str, Any], *, whole: bool = True) -> list[str]:
    """Return what the committed facts say that a run did not make, and the reverse. Counts may differ.

    `whole`: the run had all tests, so that everything has to be compared in it.
    """
    before, now = _compared(committed), _compared(found)
    return [
        *(f"no longer compared: {each}" for each in sorted(before - now) if whole),
        *(f"not on the page: {each}" for each in sorted(now - before)),
        *differences(found),
    ]


def differences(facts: Mapping[str, Any]) -> list[str]:
    """Return the rows with elements whose bits differ."""
    return [
        f"{row['kind']} {row['name']} {row['operation']} with {each['system']}: {each['differences']} differ"
        for row in facts["rows"]
        for each in row["compared"]
        if each["differences"]
    ]


def _compared(facts: Mapping[str, Any]) -> set[str]:
    # Another machine may have other instruction sets.
    return {
        f"{row['kind']} {row['name']} {row['operation']} with {each['system']} ({each['version']})"
        for row in facts["rows"]
        for each in row["compared"]
    }
