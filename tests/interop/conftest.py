"""What was compared: the counts that the tests print, together at the end of the run."""

from __future__ import annotations

import re
from collections import Counter

import pytest

# What onnxruntime's calibrators print looks much the same.
_COUNT = re.compile(r"(?!Number of|Percentile )[^:]+: .*\d")
# A line of Comparison.finish: the system and operation, from which type to which, and three counts.
_ELEMENTS = re.compile(r"(.+?)(?: \S+ to \S+)?: ([\d,]+) elements of (\d+) conversions compared, ([\d,]+) excluded")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the counts of all tests that passed, the comparisons of one system and operation added up."""
    sums: dict[str, Counter[str]] = {}
    others = []
    for report in terminalreporter.getreports("passed"):
        for line in report.capstdout.splitlines():
            if found := _ELEMENTS.fullmatch(line):
                elements, conversions, excluded = (int(number.replace(",", "")) for number in found.groups()[1:])
                sums.setdefault(found[1], Counter()).update(
                    elements=elements, conversions=conversions, excluded=excluded
                )
            elif _COUNT.match(line):
                others.append(line)
    if sums or others:
        terminalreporter.section("compared")
    for system, of in sorted(sums.items()):
        terminalreporter.write_line(
            f"{system}: {of['elements']:,} elements of {of['conversions']} conversions compared, "
            f"{of['excluded']:,} excluded"
        )
    for line in sorted(others):
        terminalreporter.write_line(line)
