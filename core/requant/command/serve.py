"""`requant serve`: the HTTP and gRPC service."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from requant.command.exit_status import FAILED

HELP = "Serve the operations over HTTP and gRPC. `requant serve --help` lists the settings."


def run(arguments: Sequence[str]) -> None:
    """Serve until a signal ends it. `arguments`: the settings as flags. Exit if the extra `serve` is not installed."""
    if find_spec("fastapi") is None:
        sys.stderr.write(
            "requant serve needs the packages of the service: run pip install '.[serve]' in the repository\n"
        )
        sys.exit(FAILED)
    from requant_service.main import main

    main(arguments, program="requant serve")
