"""`python -m tests.interop.conformance write|check DIRECTORY`: the last step of `make conformance` and `make interop`.

write: generate service/requant_service/json_api/catalog/conformance.json and docs/conformance.md from the records in
the directory. page: generate the page only, from the JSON file. check: fail unless the records have exactly the
comparisons of the committed file; with TEST_DAYS, where a day has a part of them, unless they have none beside it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

from requant_service.json_api.catalog.conformance import FACTS
from tests.interop.conformance.merged import changes, differences, gaps, merge
from tests.interop.conformance.page import page
from tests.interop.conformance.records import read_records
from tests.support.cases import WHOLE

PAGE = Path(__file__).parents[3] / "docs/conformance.md"


def main() -> int:
    """Run the command. Return 1, with the reason on stderr, for rows without a count or a reason, and for changes."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.conformance", description=__doc__)
    parser.add_argument("command", choices=["write", "check", "page"])
    parser.add_argument("directory", type=Path, nargs="?", help="the records")
    options = parser.parse_args()
    if options.command == "page":
        PAGE.write_text(page(json.loads(FACTS.read_text(encoding="utf-8"))), encoding="utf-8")
        return 0
    found = merge(read_records(options.directory), f"{datetime.datetime.now(datetime.UTC).date()}")
    if options.command == "check":
        committed = json.loads(FACTS.read_text(encoding="utf-8"))
        return _report(changes(committed, found, whole=WHOLE), "docs/conformance.md is out of date")
    if found_different := differences(found):
        return _report(found_different, "not written")
    FACTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")
    return _report(gaps(found), "neither compared nor listed in tests/interop/conformance/not_compared.py")


def _report(lines: list[str], what: str) -> int:
    if lines:
        sys.stderr.write("\n".join([f"{what}:", *lines, ""]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
