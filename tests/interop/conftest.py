"""What was compared: the counts that the tests print, together at the end of the run."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.conformance.records import VARIABLE, read_records

# What onnxruntime's calibrators print looks much the same.
_COUNT = re.compile(r"(?!Number of|Percentile )[^:]+: .*\d")
# A line of Comparison.finish: the system and operation, from which type to which, and three counts.
_ELEMENTS = re.compile(r"(.+?)(?: \S+ to \S+)?: ([\d,]+) elements of (\d+) conversions compared, ([\d,]+) excluded")


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Import nothing here in a run without these tests: the systems are not installed there."""
    return True if "not interop" in config.option.markexpr else None


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the later rounds of `make conformance`, keep the tests that draw the seed of the day."""
    if os.environ.get("CONFORMANCE_ROUND") != "again":
        return
    seeded = {record["test"] for record in read_records(Path(os.environ[VARIABLE])) if record["seed"] is not None}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in seeded])
    items[:] = [item for item in items if item.nodeid in seeded]


@pytest.fixture
def no_debugger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each error TOSA's reference model starts gdb and waits for its backtrace; without one, perhaps for ever."""
    debugger = tmp_path / "gdb"
    debugger.write_text("#!/bin/sh\n")
    debugger.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """An environment none of whose tests draws a seed has nothing to repeat."""
    if os.environ.get("CONFORMANCE_ROUND") == "again" and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
