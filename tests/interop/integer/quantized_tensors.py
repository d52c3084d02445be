"""Quantized tensors for the tests of integer operations against real systems: parameters, data, and the type's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.integer.product import ProductPlan
from requant.mlir import parse_type
from requant.mlir.types import TensorType, Type

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}


@dataclass(frozen=True)
class Quantized:
    """A storage with one scale, or one for each index of `axis`. Scales are f32."""

    storage: str
    scales: Array
    zero_points: Array
    axis: int = 0
    bounds: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """The element type in MLIR."""
        pairs = zip(self.scales.ravel().tolist(), self.zero_points.ravel().tolist(), strict=True)
        parameters = ", ".join(f"{scale!r}:{zero}" for scale, zero in pairs)
        narrow = "" if self.bounds is None else f"<{self.bounds[0]}:{self.bounds[1]}>"
        if self.scales.size == 1:
            return f"!quant.uniform<{self.storage}{narrow}:f32, {parameters}>"
        return f"!quant.uniform<{self.storage}{narrow}:f32:{self.axis}, {{{parameters}}}>"

    @property
    def element(self) -> Type:
        """The element type, parsed."""
        return parse_type(self.text)

    def tensor(self, *shape: int) -> TensorType:
        """The type of a tensor."""
        return tensor("x".join(map(str, shape)) + f"x{self.text}")

    def data(self, rng: np.random.Generator, *shape: int) -> Array:
        """Stored numbers over all of the storage."""
        limits = np.iinfo(DTYPES[self.storage])
        return rng.integers(limits.min, limits.max + 1, shape).astype(DTYPES[self.storage])


def tensor(text: str) -> TensorType:
    """A tensor type from what stands between the brackets."""
    parsed = parse_type(f"tensor<{text}>")
    assert isinstance(parsed, TensorType)
    return parsed


def per_tensor(storage: str, scale: float, zero_point: int = 0) -> Quantized:
    """One scale."""
    return Quantized(storage, np.array([scale], np.float32), np.array([zero_point]))


def per_axis(storage: str, scales: Array, axis: int, zero_points: Array | None = None) -> Quantized:
    """One scale for each index of an axis, with zero point 0 unless they are given."""
    zeros = np.zeros(scales.size, np.int64) if zero_points is None else zero_points
    return Quantized(storage, scales.astype(np.float32), zeros, axis)


def run_product(plan: ProductPlan, lhs: Array, rhs: Array, bias: Array | None = None) -> Array:
    """The output of a plan, in its shape."""
    target = np.empty(plan.elements, plan.output_dtype)
    plan.run(np.ascontiguousarray(lhs).ravel(), np.ascontiguousarray(rhs).ravel(), bias, target)
    return target.reshape(tuple(size or 0 for size in plan.output_type.shape or ()))
