"""Operators that are lists of stages: named arrays in the order in which they are computed, the output last.

A call with the attribute `trace` gives all of them, any other the output. Each operation on f32 arrays rounds once, as
numpy does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from requant.description import Array, Kind, TensorValue
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.mlir.types import ElementType, TensorType
from requant.operators.description import Attribute, Operand, OperatorCall, Outputs, Work

Real = Array | np.floating[Any]
Stages = Mapping[str, Real]

F32 = {"f32": 1}
I32 = {"i32": 1}
_BYTES_OF_STAGES = 32
_BLOCK = 1 << 16

TRACE = Attribute(
    name="trace",
    kind=Kind.BOOLEAN,
    description="Also give the stages of the computation. Not an attribute of the system.",
    default=False,
)


def stage(name: str, formula: str, types: Mapping[str, int] = F32) -> Operand:
    """Return a stage as descriptions have it."""
    return Operand(name=name, description=formula, types=types, optional=True)


@dataclass(frozen=True, slots=True)
class Quantized:
    """Scale and zero point of a tensor of integers."""

    scale: np.float32
    zero_point: int
    dtype: np.dtype[Any]

    @property
    def lowest(self) -> int:
        return int(np.iinfo(self.dtype).min)

    @property
    def highest(self) -> int:
        return int(np.iinfo(self.dtype).max)

    def centered(self, stored: Array) -> Array:
        """Return stored - zero_point as i32."""
        return stored.astype(np.int32) - self.zero_point

    def dequantized(self, stored: Array) -> Array:
        """Return f32(scale * (stored - zero_point))."""
        return self.scale * self.centered(stored).astype(np.float32)

    def saturated(self, integers: Array) -> Array:
        """Return integers clamped to the type."""
        return np.clip(integers, self.lowest, self.highest).astype(self.dtype)

    def quantized(self, scaled: Array) -> Array:
        """Return RNE(clamp(scaled, lowest - zero_point, highest - zero_point)) + zero_point; NaN is the lowest."""
        # fmax keeps the bound where the other is NaN.
        clamped = np.fmin(np.fmax(scaled, self.lowest - self.zero_point), self.highest - self.zero_point)
        return (np.rint(clamped).astype(np.int32) + self.zero_point).astype(self.dtype)


def looked_up(table: Array, *codes: Array) -> Array:
    """Return the entries of codes in a table of 256, or of pairs of codes in one of 65,536, all flat."""
    first, *others = (each.reshape(-1).view(np.uint8) for each in codes)
    found = np.empty(first.size, table.dtype)
    for start in range(0, first.size, _BLOCK):  # indices become wide ones, which stay in the cache
        block = slice(start, start + _BLOCK)
        index: Array = first[block]
        for other in others:
            index = (index.astype(np.uint16) << 8) | other[block]
        found[block] = table.take(index)
    return found


_ELEMENTS: Mapping[str, IntegerElement | FloatElement] = {
    "int8": IntegerElement(8),
    "int16": IntegerElement(16),
    "int64": IntegerElement(64),
    "uint8": IntegerElement(8, Signedness.UNSIGNED),
    "int32": IntegerElement(32),
    "float32": FLOATS["f32"],
    "float64": FLOATS["f64"],
}


def tensor_of(array: Array) -> TensorValue:
    """Return an array of one of the types that outputs and stages have."""
    return TensorValue(TensorType(array.shape, _ELEMENTS[array.dtype.name]), np.ascontiguousarray(array).reshape(-1))


def in_stages(
    call: OperatorCall,
    stages: Callable[[], Stages],
    shape: tuple[int, ...],
    products: int = 0,
    *,
    blocks: bool = False,
    element: ElementType | None = None,
    width: int = _BYTES_OF_STAGES,
) -> Work:
    """Return the work of all stages, whose output has `shape`. A call without `trace` gives the output only.

    `blocks`: without `trace` only a block of each stage is in memory at a time. `element`: the type of the output's
    elements, where that is more than the dtype of its array. `width`: the bytes of all stages for one element.
    """

    traced = bool(call.attributes.get(TRACE.name))

    def run() -> Outputs:
        with np.errstate(all="ignore"):
            found = stages()
        shown = found if traced else {name: found[name] for name in [*found][-1:]}
        tensors = {name: tensor_of(np.asarray(array)) for name, array in shown.items()}
        if element is not None:
            name, tensor = tensors.popitem()
            tensors[name] = TensorValue(TensorType(tensor.shape, element), tensor.data)
        return tensors

    in_memory = 0 if blocks and not traced else width * prod(shape)
    return Work(run, prod(shape), products, in_memory)
