"""A requantization to be timed, from a uniform type of one scale, or one for each index of the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.kernels.conversion import Array
from requant.convert.requantize import plan_requantize
from requant.formats.elements import FLOATS, IntegerElement, integer_dtype
from requant.mlir.types import StorageType, TensorType, UniformPerAxisType, UniformType
from requant.plan.plan import Plan


class Parameters(NamedTuple):
    """One side."""

    storage: str
    scale: float
    zero_point: int = 0


@dataclass(frozen=True)
class Requantization:
    """One requantization: of a flat tensor, or of rows with so many channels, each with a scale of its own."""

    given: Parameters
    wanted: Parameters
    profile: str = "litert"
    dense: bool = False
    channels: int | None = None

    def elements(self, size: int) -> int:
        """As many as asked for, in whole rows."""
        return size if self.channels is None else size // self.channels * self.channels

    def plan(self, size: int) -> Plan:
        """Our plan."""
        given, wanted = (
            UniformType(_storage(side), FLOATS["f32"], side.scale, side.zero_point)
            for side in (self.given, self.wanted)
        )
        if self.channels is None:
            return plan_requantize(TensorType((size,), given), wanted, self.profile)
        scales = tuple(self.given.scale * (0.75 + 0.25 * index / self.channels) for index in range(self.channels))
        zeros = (self.given.zero_point,) * self.channels
        per_axis = UniformPerAxisType(given.storage, given.expressed, 1, scales, zeros)
        return plan_requantize(TensorType((size // self.channels, self.channels), per_axis), wanted, self.profile)

    def source(self, size: int) -> Array:
        """Normally distributed numbers that use the range of the result; a few saturate."""
        ratio = self.wanted.scale / self.given.scale
        steps = np.random.default_rng(7).standard_normal(self.elements(size)) * 128 / 4.5 * ratio
        storage = _storage(self.given)
        dtype = integer_dtype(storage.width, signed=storage.signed)
        stored: Array = np.clip(np.rint(steps), storage.minimum, storage.maximum).astype(dtype)
        return stored


def _storage(side: Parameters) -> StorageType:
    return StorageType.unbounded(IntegerElement(int(side.storage[1:])), signed=side.storage[0] == "i")
