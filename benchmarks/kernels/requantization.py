"""A requantization to be timed, between two uniform types of one scale and zero point each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.kernels.conversion import Array
from core.elements import FLOATS, IntegerElement, integer_dtype
from core.mlir.types import StorageType, TensorType, UniformType
from core.plan import Plan
from core.requantize import plan_requantize


class Parameters(NamedTuple):
    """One side."""

    storage: str
    scale: float
    zero_point: int = 0


@dataclass(frozen=True)
class Requantization:
    """One requantization of a flat tensor."""

    given: Parameters
    wanted: Parameters
    profile: str = "litert"
    dense: bool = False

    def elements(self, size: int) -> int:
        """As many as asked for."""
        return size

    def plan(self, size: int) -> Plan:
        """Our plan."""
        given, wanted = (_tensor_type(side, size) for side in (self.given, self.wanted))
        return plan_requantize(given, wanted, self.profile)

    def source(self, size: int) -> Array:
        """Normally distributed numbers that use the range of the result; a few saturate."""
        ratio = self.wanted.scale / self.given.scale
        steps = np.random.default_rng(7).standard_normal(size) * 128 / 4.5 * ratio
        storage = _storage(self.given)
        dtype = integer_dtype(storage.width, signed=storage.signed)
        stored: Array = np.clip(np.rint(steps), storage.minimum, storage.maximum).astype(dtype)
        return stored


def _storage(side: Parameters) -> StorageType:
    return StorageType.unbounded(IntegerElement(int(side.storage[1:])), signed=side.storage[0] == "i")


def _tensor_type(side: Parameters, size: int) -> TensorType:
    return TensorType((size,), UniformType(_storage(side), FLOATS["f32"], side.scale, side.zero_point))
