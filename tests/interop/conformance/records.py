"""One line of JSON per comparison, in the directory of CONFORMANCE_RECORDS, one file per process.

Without the variable nothing is written. It does not begin with REQUANT_: the service refuses settings that it has not.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.interop.conformance import instruction_set
from tests.interop.conformance.divergences import DIVERGENCES
from tests.interop.conformance.subject import Subject
from tests.interop.conformance.systems import System
from tests.interop.seed_of_the_day import drawn_seed

VARIABLE = "CONFORMANCE_RECORDS"


def read_records(directory: Path) -> list[dict[str, Any]]:
    """Return the lines of all files."""
    return [
        json.loads(line)
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def record(
    system: System,
    subjects: Iterable[Subject],
    elements: int,
    differences: int = 0,
    divergences: Mapping[str, int] | None = None,
    isa: str | None = None,
    witness: Mapping[str, Any] | None = None,
) -> None:
    """Record what a test has compared, for each of its subjects.

    elements: numbers compared bit by bit, or answers, where an answer is no number. divergences: the elements that were
    not compared, by the name of the reason in DIVERGENCES; 0 where the tests leave such inputs out beforehand. isa: the
    instruction set that the system was told to use, or the interpreter that ran it, if it is not the machine's.
    witness: the first difference, for `make drift`.
    """
    left_out = dict(divergences or {})
    unknown = left_out.keys() - DIVERGENCES.keys()
    assert not unknown, f"not in tests/interop/conformance/divergences.py: {sorted(unknown)}"
    directory = os.environ.get(VARIABLE)
    if directory is None:
        return
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    line = {
        "test": test,
        # None: the same elements are compared in each run.
        "seed": drawn_seed(test),
        "round": os.environ.get("TEST_SEED", ""),
        "environment": Path(sys.prefix).name,
        "system": system.name,
        "version": system.version(),
        "instruction_set": isa or instruction_set.host(),
        "elements": elements,
        "differences": differences,
        "divergences": left_out,
        "witness": witness,
    }
    with (Path(directory) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        for subject in subjects:
            of = {"kind": subject.kind, "name": subject.name, "operation": subject.operation}
            file.write(json.dumps(of | line) + "\n")
