"""`requant vectors verify PACK --command "./my_kernel {in} {out}"`: runs a program on a pack of vectors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from requant.command.exit_status import DONE, FAILED
from requant.command.junit import OPTION_HELP, TestCase, write_junit

if TYPE_CHECKING:
    from requant.command.output import Output

HELP = "Run a program on a pack of test vectors, and say which of its results are wrong."


def parser() -> argparse.ArgumentParser:
    """Return the parser of what follows `requant vectors verify`."""
    made = argparse.ArgumentParser(prog="requant vectors verify", description=HELP)
    made.add_argument("pack", type=Path, metavar="PACK", help="a .tar.zst or .tar of `make packs`, or its folder")
    made.add_argument(
        "--command",
        required=True,
        metavar="COMMAND",
        help="what is run for each case, with {in} and {out} in the place of the files: './my_kernel {in} {out}'",
    )
    made.add_argument("--case", action="append", default=[], metavar="NAME", help="only this case; may be repeated")
    made.add_argument("--junit", type=Path, metavar="FILE", help=OPTION_HELP)
    made.add_argument("--json", action="store_true", help="print the verdict as one JSON object")
    made.set_defaults(run=run)
    return made


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Verify, and print the verdict."""
    from requant.packs.pack import read_pack
    from requant.packs.verification import verify_pack

    verdict = verify_pack(read_pack(arguments.pack), arguments.command, arguments.case)
    if arguments.junit is not None:
        cases = [TestCase(each.name, None if each.passed else each.summary, each.details()) for each in verdict.cases]
        write_junit(arguments.junit, f"requant vectors {verdict.name} {verdict.version}", cases)
    said = verdict.members()
    output.done(json.dumps(said) if arguments.json else "\n".join(verdict.lines()), said)
    return DONE if verdict.passed else FAILED
