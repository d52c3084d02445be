"""Fuzz a running service: `python -m tests.fuzz --port 8080 --seed today --seconds 600`."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.campaign import Outcome, campaign, one
from tests.fuzz.wire import Connection


def main() -> int:
    """Return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="the port of the service on 127.0.0.1")
    parser.add_argument("--seed", required=True, help="any text; the same one gives the same requests")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--requests", type=int, help="at most how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first request")
    parser.add_argument("--only", type=int, help="send the request of this number alone, and show its reply")
    arguments = parser.parse_args()
    origin = f"http://127.0.0.1:{arguments.port}"
    write = sys.stdout.write
    if arguments.only is None:
        outcome = campaign(
            arguments.port,
            arguments.seed,
            seconds=arguments.seconds,
            requests=arguments.requests,
            first=arguments.first,
        )
    else:
        outcome = Outcome()
        with Connection(arguments.port) as connection:
            reply = one(connection, arguments.seed, arguments.only, outcome)
        if reply is not None:
            write(f"{reply.status}\n{reply.fields}{reply.body.decode('utf-8', 'replace')}\n")
    for finding in outcome.findings.values():
        write(f"{finding.told(arguments.seed, origin)}\n\n")
    write(f"{outcome.summary(arguments.seed)}\n")
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
