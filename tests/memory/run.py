"""Run the cases with guarded memory: `python -m tests.memory.run --seed 1 --rounds 10 [--case NAME]`.

Each case of each round has a seed of its own. Before it begins, its name and round are written to standard output, so
that the last line tells which one ended the process. The last line of a run that went through is the counts, as JSON.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import warnings
import zlib

import numpy as np

from requant.errors import RequantError
from tests.memory.guarded import all_names, install


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--case", action="append", help="one of tests.memory.cases, or out_of_bounds; otherwise all")
    parser.add_argument("--verbose", action="store_true", help="also what is refused, and why")
    given = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    guard = install()
    # After the guard: plans may take the compiled code of a kernel when their module is imported.
    import requant.kernels.jit.warmup  # noqa: F401  # for all kernels there are; each is compiled when it is first called
    from tests.memory.cases import CASES, out_of_bounds

    refused = answered = 0
    for name in given.case or CASES:
        for number in range(given.first, given.first + given.rounds):
            sys.stdout.write(f"{name} --seed {given.seed} --first {number}\n")
            sys.stdout.flush()
            rng = np.random.default_rng([given.seed, number, zlib.crc32(name.encode())])
            try:
                (CASES.get(name) or out_of_bounds)(rng)
                answered += 1
            except RequantError as error:
                refused += 1
                if given.verbose:
                    sys.stdout.write(f"  refused: {error}\n")
    found = {"answered": answered, "refused": refused, "called": guard.called, "kernels": all_names()}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
