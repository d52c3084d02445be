"""Pseudorandom numbers from a seed, the same on every platform and with every version of numpy."""

from __future__ import annotations

from requant.convert.explain.float_steps import Draw


class Draws:
    """A pseudorandom stream: SplitMix64 of a seed and a counter."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def below(self, bound: int) -> int:
        """Return a number from 0 to bound - 1, at most 2^96 of them."""
        number = 0
        for _ in range(4):
            number = number << 32 | Draw.of(self._seed, self._count).bits
            self._count += 1
        return number * bound >> 128

    def between(self, lowest: int, highest: int) -> int:
        """Return a number from `lowest` to `highest`."""
        return lowest + self.below(highest - lowest + 1)
