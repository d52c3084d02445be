"""Print the certificate of a converted model as an in-toto statement, to be signed by cosign or another tool.

The files are hashed first, and compared with the manifest. The exit status is 1 if any was changed.
"""

from __future__ import annotations

import argparse
import json

from requant.command.checkpoint import options
from requant.command.exit_status import DONE
from requant.command.output import Output

HELP = "print an in-toto statement about a converted model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("checkpoint", type=options.place, metavar="CHECKPOINT", help="the converted model")


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Print the statement."""
    from requant.checkpoint.storage.location import open_folder
    from requant.checkpoint.verify.attestation import statement_of, statement_of_file
    from requant.checkpoints import is_gguf, open_source

    place = arguments.checkpoint
    statement = statement_of_file(*open_folder(place)) if is_gguf(place) else statement_of(open_source(place))
    output.done(json.dumps(statement, indent=2, ensure_ascii=False), statement)
    return DONE
