"""A seed that differs from day to day, so that each run looks somewhere new, and can be repeated.

TEST_SEED replaces it.
"""

from __future__ import annotations

import datetime
import os
import sys

import numpy as np


def generator(*salt: int) -> np.random.Generator:
    """Return a generator of the day, and print the seed."""
    day = datetime.datetime.now(datetime.UTC).date()
    seed = int(os.environ.get("TEST_SEED", f"{day:%Y%m%d}"))
    sys.stdout.write(f"seed of the day: {seed}\n")
    return np.random.default_rng((seed, *salt))
