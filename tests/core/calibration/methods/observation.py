"""Observed tensors and targets, as the tests of every method need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, PerTensor
from requant.calibration.methods import CalibratedRanges, CalibrationOptions, Observed, Target, calibration_method_named
from requant.calibration.ranges import RangeOptions, range_rule_named
from requant.formats.elements import FLOATS
from requant.mlir import parse_storage

Array = NDArray[Any]
ELEMENTS = {"f2": "f16", "u2": "bf16", "f4": "f32", "f8": "f64"}


def observed(tensors: Sequence[Array], blocks: Sequence[int] | None = None) -> Observed:
    """Tensors of one shape; the element type is that of the dtype, bf16 for u2. Without `blocks`: per tensor."""
    first = tensors[0]
    element = FLOATS[ELEMENTS[first.dtype.str[1:]]]
    sizes = tuple(max(size, 1) for size in first.shape) if blocks is None else tuple(blocks)
    places = tuple(f"/inputs/{index}" for index in range(len(tensors)))
    return Observed(element, first.shape, sizes, tuple(tensor.ravel() for tensor in tensors), places)


def target(
    storage: str = "u8",
    scheme: str = "torch_observer",
    granularity: Granularity | None = None,
    expressed: str = "f32",
    **options: Any,
) -> Target:
    return Target(
        range_rule_named(scheme),
        RangeOptions(**options),
        parse_storage(storage),
        FLOATS[expressed],
        granularity or PerTensor(),
    )


def find(
    method: str,
    tensors: Sequence[Array],
    wanted: Target | None = None,
    blocks: Sequence[int] | None = None,
    **options: Any,
) -> CalibratedRanges:
    """The ranges that a method finds."""
    return calibration_method_named(method).find_ranges(
        observed(tensors, blocks), CalibrationOptions(**options), wanted or target()
    )


def samples(rng: np.random.Generator, size: int, scale: float = 1.0) -> Array:
    """f32 data of several kinds: normal, heavy tails, positive, one number, and numbers on a lattice."""
    kinds = (
        rng.normal(size=size),
        rng.laplace(size=size) ** 3,
        rng.random(size),
        np.full(size, rng.normal()),
        rng.integers(-9, 9, size) * 0.25,
    )
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(kinds[rng.integers(len(kinds))] * scale, np.float32)
