"""What onnxruntime's fused operators share: arithmetic in f32, and per-tensor parameters as operands.

What the machine contracts is `fma32`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from requant.description import Array, Choices, Chooses, Kind
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Work
from requant.operators.onnx.operands import same_type, single
from requant.operators.stages import F32, TRACE, Quantized, Real

BYTES = {"ui8": 1, "i8": 1}

# The bits that f64 has more than f32, half a step of f32 among them, and the least number whose steps are such.
_BELOW_F32, _HALF_OF_F32, _SMALLEST_NORMAL = (1 << 29) - 1, 1 << 28, 2.0**-126

UNTIL_1_31 = "onnxruntime"
IMPLEMENTATIONS = Choices(
    "MicrosoftImplementation",
    (UNTIL_1_31, "onnxruntime_1_32"),
    "onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.",
)

NEON = "neon"
KERNEL = Attribute(
    name="kernel",
    kind=Kind.TEXT,
    chooses=Chooses.RULES,
    description="The kernel of mlas to follow.",
    default="avx2",
    choices=Choices("MlasKernel", ("avx2", NEON), "That of x86-64 with AVX2 and FMA, or that of 64-bit Arm."),
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


def quantized_of(call: OperatorCall, name: str, like: str, prefix: str = "", scale_name: str = "") -> Quantized:
    """Read scale and zero point, which has the type of the operand `like`. Raise TypeFitError or UnsupportedError."""
    prefix = prefix or name
    scale = np.float32(single(call, scale_name or f"{prefix}_scale").data[0])
    zero_point = call.optional(f"{prefix}_zero_point")
    same_type(call, f"{prefix}_zero_point", like)
    if zero_point is not None:
        single(call, f"{prefix}_zero_point")
    return Quantized(scale, 0 if zero_point is None else int(zero_point.data[0]), call.inputs[like].data.dtype)


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


def nearest(real: Array) -> Array:
    """Return RNE(real) as i32, the least one for NaN and for what i32 does not hold, as cvtps2dq does."""
    rounded = np.rint(real)
    holds = (rounded >= -(2.0**31)) & (rounded < 2.0**31)
    return np.where(holds, rounded, -(2.0**31)).astype(np.int32)
