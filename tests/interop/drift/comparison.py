"""What the newest releases of an environment change, and since which release."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tests.interop.conformance.records import read_records
from tests.interop.conformance.subject import Kind, Subject
from tests.interop.drift.installation import FOLDER, Installation, NotInstalledError


@dataclass(frozen=True)
class Change:
    """A row of docs/conformance.md whose bits are no longer the system's.

    `since` is the first release that differs, `before` the last that does not. `witness` is what was recorded of the
    first difference, as tests.interop.comparison makes it.
    """

    subject: Subject
    package: str
    since: str
    before: str
    elements: int
    differences: int
    witness: Mapping[str, Any] | None


@dataclass(frozen=True)
class Outcome:
    """What came of an environment: rows that changed, tests that no longer run, and how many rows are equal."""

    releases: Mapping[str, str]
    changes: Sequence[Change]
    broken: Sequence[tuple[str, str]]
    equal: int


_runs = count()


@dataclass(frozen=True)
class _Run:
    records: Sequence[Mapping[str, Any]]
    failed: Sequence[tuple[str, str]]

    def different(self, systems: Iterable[str]) -> dict[Subject, list[Mapping[str, Any]]]:
        """Return the records with differences of these systems, by row."""
        found: dict[Subject, list[Mapping[str, Any]]] = {}
        for record in self.records:
            if record["system"] in systems and record["differences"]:
                found.setdefault(_subject(record), []).append(record)
        return found


class Watch:
    """Runs an environment's tests with the releases that are asked for, expecting the bits of the pinned ones."""

    def __init__(self, installation: Installation, newest: Mapping[str, str], pinned: Mapping[str, str]) -> None:
        self._installation, self._newest, self._pinned = installation, newest, pinned
        self._runs: dict[tuple[str, str], _Run] = {}

    def run(self, releases: Mapping[str, str], tests: Sequence[str]) -> _Run:
        """Install releases, and run tests."""
        self._installation.install(releases)
        folder = FOLDER / "records" / f"{self._installation.environment.name}-{next(_runs)}"
        report = self._installation.compare(tests, {name: self._pinned[name] for name in self._newest}, folder)
        return _Run(read_records(folder), failures(report))

    def changes(self, package: str, releases: Sequence[str], found: _Run) -> Iterator[tuple[str, Change]]:
        """Yield each row that differs with the newest release, and the tests that say so. `found`: the run with it."""
        systems = self._installation.environment.packages[package]
        different = found.different(systems)
        tests = sorted({str(record["test"]) for records in different.values() for record in records})

        def changed(subject: Subject, release: str) -> bool:
            if release == releases[-1]:
                return True
            if (package, release) not in self._runs:
                try:
                    self._runs[package, release] = self.run({**self._newest, package: release}, tests)
                except NotInstalledError:
                    return False
            return subject in self._runs[package, release].different(systems)

        for subject, records in different.items():
            place = first_of(releases, partial(changed, subject))
            since, before = releases[place], releases[place - 1] if place else self._pinned[package]
            elements, differences = (sum(int(record[key]) for record in records) for key in ("elements", "differences"))
            witness = next((record["witness"] for record in records if record.get("witness")), None)
            change = Change(subject, package, since, before, elements, differences, witness)
            yield from ((str(record["test"]), change) for record in records)


def compare_environment(
    installation: Installation, tests: Sequence[str], pinned: Mapping[str, str], newer: Mapping[str, Sequence[str]]
) -> Outcome:
    """Compare with the newest releases, and find the first release of each change between them and the pinned ones."""
    newest = {name: releases[-1] for name, releases in newer.items()}
    watch = Watch(installation, newest, pinned)
    found = watch.run(newest, tests)
    changes = dict(explained for name, releases in newer.items() for explained in watch.changes(name, releases, found))
    rows = {_subject(record) for record in found.records}
    distinct = list({change.subject: change for change in changes.values()}.values())
    broken = [(test, line) for test, line in found.failed if test not in changes]
    return Outcome(newest, distinct, broken, len(rows) - len(distinct))


def first_of(releases: Sequence[str], changed: Callable[[str], bool]) -> int:
    """Return the place of the first release that changed something. The last one did, and all after the first."""
    low, high = 0, len(releases) - 1
    while low < high:
        middle = (low + high) // 2
        if changed(releases[middle]):
            high = middle
        else:
            low = middle + 1
    return low


def failures(report: Path) -> list[tuple[str, str]]:
    """Return each failed test of a JUnit report, with the first line of its reason."""
    if not report.exists():
        return [("pytest", "it ended without a report")]
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        for problem in (*case.findall("failure"), *case.findall("error")):
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            found.append((name, (problem.get("message") or "").partition("\n")[0]))
    return found


def _subject(record: Mapping[str, Any]) -> Subject:
    return Subject(Kind(record["kind"]), record["name"], record["operation"])
