"""What onnxruntime's fused operators share: arithmetic in f32, per-tensor parameters, and stages.

An operator is a function that returns its stages: named arrays in the order in which they are computed, the output
last. Each operation on f32 arrays rounds once, as numpy does; what the machine contracts is `fma32`. A call with the
attribute `trace` gives all of them, any other the output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from requant.description import Array, Choices, Kind, TensorValue
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.mlir.types import TensorType
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Work
from requant.operators.onnx.operands import same_type, single

Real = Array | np.floating[Any]
Stages = Mapping[str, Real]

BYTES = {"ui8": 1, "i8": 1}
F32 = {"f32": 1}
I32 = {"i32": 1}
_BYTES_OF_STAGES = 32
_BLOCK = 1 << 16

# The bits that f64 has more than f32, half a step of f32 among them, and the least number whose steps are such.
_BELOW_F32, _HALF_OF_F32, _SMALLEST_NORMAL = (1 << 29) - 1, 1 << 28, 2.0**-126

UNTIL_1_31 = "onnxruntime"
IMPLEMENTATIONS = Choices(
    "MicrosoftImplementation",
    (UNTIL_1_31, "onnxruntime_1_32"),
    "onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.",
)
TRACE = Attribute(
    name="trace",
    kind=Kind.BOOLEAN,
    description="Also give the stages of the computation. Not an attribute of onnxruntime.",
    default=False,
)


def fused(
    name: str,
    *,
    summary: str,
    inputs: tuple[Operand, ...],
    output: Operand,
    plan: Callable[[OperatorCall], Work],
    example: Mapping[str, Any],
    stages: tuple[Operand, ...] = (),
    attributes: tuple[Attribute, ...] = (),
    deviations: tuple[str, ...] = (),
) -> Operator:
    """Return an operator of the domain com.microsoft."""
    return Operator(
        system="com.microsoft",
        name=name,
        summary=summary,
        source="onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas",
        implementations=IMPLEMENTATIONS,
        inputs=inputs,
        outputs=(output,),
        stages=stages,
        attributes=(*attributes, *((TRACE,) if stages else ())),
        deviations=deviations,
        plan=plan,
        example=example,
    )


def stage(name: str, formula: str, types: Mapping[str, int] = F32) -> Operand:
    """Return a stage as descriptions have it."""
    return Operand(name=name, description=formula, types=types, optional=True)


def parameters(name: str, *, optional: bool = True, prefix: str = "") -> tuple[Operand, Operand]:
    """Return scale and zero point of an operand as descriptions have them."""
    default = " Default: 0." if optional else ""
    prefix = prefix or name
    return (
        Operand(name=f"{prefix}_scale", description="One.", types=F32),
        Operand(
            name=f"{prefix}_zero_point", description=f"One, of the type of {name}.{default}", types=BYTES,
            optional=optional,
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quantized:
    """Scale and zero point of a tensor of 8-bit integers."""

    scale: np.float32
    zero_point: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, call: OperatorCall, name: str, like: str, prefix: str = "") -> Quantized:
        """Read them; a zero point has the type of the operand `like`. Raise TypeFitError or UnsupportedError."""
        prefix = prefix or name
        scale = np.float32(single(call, f"{prefix}_scale").data[0])
        zero_point = call.optional(f"{prefix}_zero_point")
        same_type(call, f"{prefix}_zero_point", like)
        if zero_point is not None:
            single(call, f"{prefix}_zero_point")
        return cls(scale, 0 if zero_point is None else int(zero_point.data[0]), call.inputs[like].data.dtype)

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


def fma32(a: Real, b: Real, c: Real) -> Array:
    """Return f32(a * b + c), rounded once.

    The product is exact in f64. The sum is rounded there, which matters only where it then lies halfway between two
    numbers of f32; there it is rounded to odd.
    """
    product, addend = np.asarray(a, np.float64) * b, np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    bits = total.view(np.int64)
    if not np.any((bits & _BELOW_F32 == _HALF_OF_F32) | (np.abs(total) < _SMALLEST_NORMAL)):
        return total.astype(np.float32)
    part = total - product
    rest = (product - (total - part)) + (addend - part)
    # What was lost makes an even last bit odd, on its own side of the sum.
    step = np.where((rest > 0) == (total > 0), 1, -1)
    lost = (rest != 0) & np.isfinite(rest) & (bits & 1 == 0)
    return np.asarray(bits + np.where(lost, step, 0)).view(np.float64).astype(np.float32)


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


def nearest(real: Array) -> Array:
    """Return RNE(real) as i32, the least one for NaN and for what i32 does not hold, as cvtps2dq does."""
    rounded = np.rint(real)
    holds = (rounded >= -(2.0**31)) & (rounded < 2.0**31)
    return np.where(holds, rounded, -(2.0**31)).astype(np.int32)


_ELEMENTS: Mapping[str, IntegerElement | FloatElement] = {
    "int8": IntegerElement(8),
    "uint8": IntegerElement(8, Signedness.UNSIGNED),
    "int32": IntegerElement(32),
    "float32": FLOATS["f32"],
    "float64": FLOATS["f64"],
}


def tensor_of(array: Array) -> TensorValue:
    """Return an array of one of the types that outputs and stages have."""
    return TensorValue(TensorType(array.shape, _ELEMENTS[array.dtype.name]), np.ascontiguousarray(array).reshape(-1))


def in_stages(
    call: OperatorCall, stages: Callable[[], Stages], shape: tuple[int, ...], products: int = 0, *, blocks: bool = False
) -> Work:
    """Return the work of all stages, whose output has `shape`. A call without `trace` gives the output only.

    `blocks`: without `trace` only a block of each stage is in memory at a time.
    """

    def run() -> Outputs:
        with np.errstate(all="ignore"):
            found = stages()
        shown = found if call.boolean("trace") else {name: found[name] for name in [*found][-1:]}
        return {name: tensor_of(np.asarray(array)) for name, array in shown.items()}

    in_memory = 0 if blocks and not call.boolean("trace") else _BYTES_OF_STAGES * prod(shape)
    return Work(run, prod(shape), products, in_memory)
