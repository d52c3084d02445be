"""Multipliers and shifts of the schemes of Ethos-U against Vela, which programs the hardware with them.

What the hardware makes of them no package can run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.interop.conformance import subject, systems
from tests.interop.conformance.records import record
from tests.interop.schemes.accumulators import derived, factors
from tests.interop.seed_of_the_day import generator

scaling: Any = pytest.importorskip("ethosu.vela.scaling")

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(
    ("scheme", "function"), [("ethos_u", "quantise_scale"), ("ethos_u_reduced", "reduced_quantise_scale")]
)
def test_multipliers(scheme: str, function: str) -> None:
    """Of f32 and f64 factors, and of those whose shift the hardware does not have, at both ends."""
    rng = generator(121)
    reals = factors(rng, 60_000, 2.0**-80, 2.0**60)
    reals += np.array(factors(rng, 20_000, 2.0**-34, 2.0**31), np.float32).tolist()
    reals += [0.0, 1.0, float(np.nextafter(1.0, 0)), 2.0**-33, 2.0**31, 2.0**32, 2.0**-32 * (1 - 2.0**-40)]
    for factor in reals:
        ours = derived(scheme, factor)
        assert (ours.multiplier, ours.shift) == getattr(scaling, function)(factor), factor
    print(f"Vela {function}: {len(reals):,} multipliers compared")  # noqa: T201
    record(systems.VELA, [subject.scheme(scheme)], len(reals))
