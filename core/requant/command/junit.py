"""Verdicts as JUnit's XML, which CI systems show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from requant.errors import StorageError

OPTION_HELP = "write the verdict as JUnit's XML, too"


@dataclass(frozen=True, slots=True)
class TestCase:
    """A test case. `failure`: what is wrong, in short, None if it passes; `details`: the lines that say more."""

    name: str
    failure: str | None = None
    details: Sequence[str] = ()


def write_junit(path: Path, suite: str, cases: Sequence[TestCase]) -> None:
    """Write a suite of test cases to a file. Raise StorageError where that fails."""
    failures = sum(each.failure is not None for each in cases)
    root = ElementTree.Element("testsuite", name=suite, tests=str(len(cases)), failures=str(failures))
    for each in cases:
        case = ElementTree.SubElement(root, "testcase", classname=suite, name=each.name)
        if each.failure is not None:
            ElementTree.SubElement(case, "failure", message=each.failure).text = "\n".join(each.details)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    try:
        path.write_bytes(text)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None
