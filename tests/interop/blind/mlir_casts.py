"""Dumps of MLIR's casts of quantized types, lowered by its pass and compiled by IREE."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.interop.blind import draws
from tests.interop.blind.dump import Dump
from tests.interop.iree_casts import in_iree, within

LABEL = {"profile": "mlir"}
STORAGES = ("i8", "u8", "i16")


def quantize(rng: np.random.Generator) -> Dump:
    """Of what the storage holds: it does not saturate."""
    of = draws.case(rng, str(rng.choice(STORAGES)))
    source = within(of, draws.reals(rng, of, odd=False))
    return draws.quantize_dump(of, source, lambda x: in_iree(of, "qcast", x).view(of.dtype), label=LABEL)


def dequantize(rng: np.random.Generator) -> Dump:
    of = draws.case(rng, str(rng.choice(STORAGES)))
    source = draws.stored(rng, of)
    signless = f"i{source.itemsize}"
    return draws.dequantize_dump(of, source, lambda q: in_iree(of, "dcast", q.view(signless)), label=LABEL)


def dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps."""
    return draws.some(rng, count, (quantize, dequantize))
