"""How many calls of each operator and version were compared with a system, and which of them differ."""

from __future__ import annotations

import sys
from collections import Counter


class Tally:
    """Cases compared with one system. `finish` prints them by operator and version, as docs/operators.md has them."""

    def __init__(self, system: str) -> None:
        self.system = system
        self.cases: Counter[tuple[str, int]] = Counter()
        self.differences: list[str] = []

    def add(self, operator: str, version: int, equal: bool, what: str) -> None:
        """Count one case; `what` says what it was."""
        self.cases[operator, version] += 1
        if not equal:
            self.differences.append(what)

    def finish(self, at_least: int) -> None:
        """Fail if a case differed, or if fewer than `at_least` were compared. `-rP` shows the counts."""
        for (operator, version), count in sorted(self.cases.items()):
            sys.stdout.write(f"{operator} {version} {self.system}: {count}\n")
        total = sum(self.cases.values())
        assert not self.differences, f"{len(self.differences)} of {total} differ\n" + "\n".join(self.differences[:20])
        assert total >= at_least, f"only {total} cases were compared"
