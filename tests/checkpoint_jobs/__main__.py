"""Hostile requests about checkpoint jobs: `python -m tests.checkpoint_jobs --seed today --requests 100000`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.checkpoint_jobs.campaign import campaign


def main() -> int:
    """Return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.checkpoint_jobs", description=__doc__)
    parser.add_argument("--seed", required=True, help="any text; the same one gives the same requests")
    parser.add_argument("--requests", type=int, default=100_000, help="how many")
    parser.add_argument("--seconds", type=float, default=1e9, help="at most how long")
    parser.add_argument("--quiet", action="store_true", help="swap nothing meanwhile")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        outcome = campaign(
            Path(directory), arguments.seed, arguments.requests, attack=not arguments.quiet, seconds=arguments.seconds
        )
    sys.stdout.write(outcome.summary())
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
