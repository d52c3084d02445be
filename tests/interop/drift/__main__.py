"""`python -m tests.interop.drift`: the last step of `make drift`.

The newest release of each watched package is installed beside the locks' other packages, and compared with the profiles
that the pinned release equals. The report, in .drift/report.md and on stdout, names the rows of docs/conformance.md
that changed, since which release, with the first witness and the step of the arithmetic that it is in. The exit status
is 1 if bits changed, or if a test failed for another reason: it may be one that records no difference.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping

from tests.interop.conformance.subject import Kind
from tests.interop.drift.comparison import Change, Outcome, compare_environment
from tests.interop.drift.explanation import explained
from tests.interop.drift.installation import FOLDER, Installation, NotInstalledError, newer_releases
from tests.interop.drift.watched import ENVIRONMENTS, Environment, pinned_releases


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.drift", description=__doc__)
    parser.add_argument("--from", dest="since", default="", help="other pins: onnxruntime==1.31.1 torch==2.13.0")
    parser.add_argument("--only", default="", help="the packages to watch, separated by spaces; default: all")
    options = parser.parse_args()
    torch = os.environ["TORCH"].split()[-1]
    pinned = pinned_releases(torch) | dict(each.split("==") for each in options.since.split())
    shutil.rmtree(FOLDER / "records", ignore_errors=True)
    FOLDER.mkdir(exist_ok=True)
    failed = False
    with (FOLDER / "report.md").open("w", encoding="utf-8") as file:
        for environment in ENVIRONMENTS:
            for line in _report(environment, pinned, torch, set(options.only.split())):
                failed = failed or line.startswith((_CHANGED, _FAILED))
                for stream in (file, sys.stdout):
                    stream.write(line + "\n")
                    stream.flush()
    return 1 if failed else 0


_CHANGED = "**changed**"
_FAILED = "- no longer compared"


def _report(environment: Environment, pinned: Mapping[str, str], torch: str, only: set[str]) -> Iterator[str]:
    newer = {}
    yield f"## {environment.name}\n"
    for name in environment.packages:
        if only and name not in only:
            continue
        try:
            newer[name] = newer_releases(name, pinned[name])
        except NotInstalledError as error:
            yield f"- not compared: {error}"
            continue
        releases = newer[name]
        yield f"- {name} {pinned[name]}" + (f", newer: {', '.join(releases)}" if releases else " is the newest")
    newer = {name: releases for name, releases in newer.items() if releases}
    if not newer:
        yield ""
        return
    tests = shlex.split(os.environ[environment.tests])
    try:
        outcome = compare_environment(Installation(environment, torch), tests, pinned, newer)
    except NotInstalledError as error:
        yield f"- not compared: {error}\n"
        return
    yield from _outcome(outcome)


def _outcome(outcome: Outcome) -> Iterator[str]:
    yield from (f"- not installed: {reason}" for reason in outcome.refused)
    if not outcome.releases:
        yield ""
        return
    installed = ", ".join(f"{name} {release}" for name, release in outcome.releases.items())
    yield f"\n{installed}: {outcome.equal} rows are equal, {len(outcome.changes)} changed.\n"
    for change in outcome.changes:
        yield from _change(change)
    for test, line in outcome.broken:
        yield f"{_FAILED}: `{test}`: {line}"
    yield ""


def _change(change: Change) -> Iterator[str]:
    subject = change.subject
    yield (
        f"{_CHANGED} {subject.kind} `{subject.name}` {subject.operation}, since {change.package} {change.since} "
        f"(equal up to {change.before}): {change.differences:,} of {change.elements:,} elements differ."
    )
    if change.witness is not None:
        profile = subject.name if subject.kind is Kind.PROFILE else ""
        yield from explained(profile, change.witness)
    yield ""


if __name__ == "__main__":
    sys.exit(main())
