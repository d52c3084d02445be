"""`requant serve`: the HTTP service, with the settings of `python -m service`."""

from __future__ import annotations

from collections.abc import Sequence

HELP = "serve the operations over HTTP (`requant serve --help` lists the settings)"


def run(arguments: Sequence[str]) -> None:
    """Serve until a signal ends it. `arguments`: the settings as flags."""
    from service.__main__ import main

    main(arguments, program="requant serve")
