"""How many calls of each operator and version were compared with a system, and which of them differ."""

from __future__ import annotations

import sys
from collections import Counter

from tests.interop.conformance.records import record
from tests.interop.conformance.subject import operator as subject
from tests.interop.conformance.systems import System


class Tally:
    """Calls compared with one system. `finish` prints them by operator and version, as docs/operators.md has them."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.cases: Counter[tuple[str, int]] = Counter()
        self.elements: Counter[str] = Counter()
        self.different: Counter[str] = Counter()
        self.differences: list[str] = []

    def add(self, operator: str, version: int, equal: bool, what: str, elements: int) -> None:
        """Count one call, which gave so many elements; `what` says what it was."""
        self.cases[operator, version] += 1
        self.elements[operator] += elements
        if not equal:
            self.different[operator] += 1
            self.differences.append(what)

    def finish(self, at_least: int) -> None:
        """Record the elements. Fail if a call differed, or if fewer than `at_least` were compared. `-rP` shows the
        counts."""
        for (operator, version), count in sorted(self.cases.items()):
            sys.stdout.write(f"{operator} {version} {self.system.name}: {count}\n")
        for operator, elements in sorted(self.elements.items()):
            record(self.system, [subject(operator)], elements, self.different[operator])
        total = sum(self.cases.values())
        assert not self.differences, f"{len(self.differences)} of {total} differ\n" + "\n".join(self.differences[:20])
        assert total >= at_least, f"only {total} cases were compared"
