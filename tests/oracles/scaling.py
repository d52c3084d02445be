"""Long tensors through the oracle of the schemes: what is stored, and how many saturate."""

from __future__ import annotations

import math

import numpy as np

from requant.plan.plan import Array, Plan
from tests.oracles import schemes as scheme_oracle

BOUNDS = {f"u{bits}": (0, (1 << bits) - 1) for bits in (4, 8, 16, 32)} | {
    f"i{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (4, 8, 16, 32)
}


class Scaling:
    """One parameter of a scheme between two storages: what becomes of a number, and whether it saturates."""

    def __init__(self, scheme: str, pair: scheme_oracle.Derived, z_in: int, z_out: int, target: str) -> None:
        self._arguments = (scheme, z_in, pair.multiplier, pair.shift, z_out, math.ldexp(pair.multiplier, -pair.right))
        self._bounds = BOUNDS[target]
        self._known: dict[int, tuple[int | None, int]] = {}

    def of(self, q: int) -> tuple[int | None, int]:
        """What is stored, None where that is not defined, and -1, 0 or 1: saturated low, not, or high."""
        if q not in self._known:
            scheme, z_in, m, shift, z_out, exact = self._arguments
            low, high = self._bounds
            stored = scheme_oracle.requantized(scheme, q, z_in, m, shift, z_out, self._bounds, exact)
            wide = scheme_oracle.requantized(scheme, q, z_in, m, shift, z_out, (-(1 << 70), 1 << 70), exact)
            self._known[q] = stored, 0 if wide is None else int(wide > high) - int(wide < low)
        return self._known[q]


def check(plan: Plan, numbers: Array, oracles: list[Scaling], channel: Array) -> None:
    """Compare every element and the tally, in one piece and in several."""
    found = [oracles[c].of(q) for q, c in zip(numbers.tolist(), channel.tolist(), strict=True)]
    expected = [stored for stored, _ in found]
    tally = [sum(sign < 0 for _, sign in found), sum(sign > 0 for _, sign in found), 0, -1]
    source = numbers.astype(plan.input_dtype)
    for piece in (source.size, 5000, 1111):
        target, counts = np.empty(source.size, plan.output_dtype), plan.new_counts()
        for start in range(0, source.size, piece):
            plan.step(source[start : start + piece], target[start : start + piece], start, counts)
        assert target.tolist() == expected
        assert counts[:4].tolist() == tally
