"""What was compared: the lines of counts that the tests print, together at the end of the run."""

from __future__ import annotations

import re

import pytest

# onnxruntime's calibrators print numbers of their own.
_COUNT = re.compile(r"(?!Number of)[^:]+: .*\d")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write each line `system: count what` that a test printed and that pytest's own -rP would bury in headings."""
    lines = [
        line
        for report in terminalreporter.getreports("passed")
        for line in report.capstdout.splitlines()
        if _COUNT.match(line)
    ]
    if lines:
        terminalreporter.section("compared")
    for line in lines:
        terminalreporter.write_line(line)
