"""A seed that differs from day to day, so that each run looks somewhere new, and can be repeated.

TEST_SEED replaces it.
"""

from __future__ import annotations

import datetime
import os
import sys

import numpy as np

_drawn: dict[str, int] = {}


def _current_test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def generator(*salt: int) -> np.random.Generator:
    """Return a generator of the day, and print the seed."""
    day = datetime.datetime.now(datetime.UTC).date()
    seed = int(os.environ.get("TEST_SEED", f"{day:%Y%m%d}"))
    sys.stdout.write(f"seed of the day: {seed}\n")
    _drawn[_current_test()] = seed
    return np.random.default_rng((seed, *salt))


def drawn_seed(test: str) -> int | None:
    """Return the seed of the day or of TEST_SEED if a test has drawn it; None if its inputs are always the same."""
    return _drawn.get(test)
