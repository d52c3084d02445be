"""Dumps of ml_dtypes: casts between numpy's floats and its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.interop.blind import draws
from tests.interop.blind.dump import Dump
from tests.interop.casts.cast_data import FORMATS, WIDE, numpy_cast

LABEL = {"profile": "ml_dtypes"}


def narrow(rng: np.random.Generator) -> Dump:
    target = str(rng.choice(FORMATS))
    source = str(rng.choice([each for each in WIDE if each != target]))
    data = draws.reals_to_cast(rng, source, target)
    return draws.cast_dump(data, source, target, lambda x: numpy_cast(x, source, target), label=LABEL)


def widen(rng: np.random.Generator) -> Dump:
    source, target = str(rng.choice(FORMATS)), str(rng.choice(["f32", "f64"]))
    codes = draws.codes_to_cast(rng, source)
    return draws.cast_dump(codes, source, target, lambda q: numpy_cast(q, source, target), label=LABEL)


def dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps."""
    return draws.some(rng, count, (narrow, narrow, widen))
