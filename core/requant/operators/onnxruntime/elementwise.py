"""onnxruntime's QLinearAdd and QLinearMul (mlas qladd_avx2.cpp, qladd.cpp, qlmul.cpp).

    QLinearAdd  ra = f32(sa / sy), rb = f32(sb / sy)
                offset = f32(zy - fma32(ra, za, f32(rb * zb)))
                C = sat(RNE(fma32(A, ra, fma32(B, rb, offset))))
    QLinearMul  m = f32(f32(sa * sb) / sy)
                C = sat(RNE(f32(f32((A - za) * (B - zb) * m) + zy)))

The zero point of C is added in f32, before rounding. Sums that i32 does not hold, and NaN, become the lowest value.

Where A has one element per span of the broadcast, A and B change places in QLinearAdd, which rounds in another order.
The spans are along the innermost dimension in which one of both has more than one element.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from requant.description import Array
from requant.errors import TypeFitError, UnsupportedError
from requant.operators.description import Operand, OperatorCall, Work
from requant.operators.onnx.operands import same_type
from requant.operators.onnxruntime.arithmetic import (
    BYTES,
    KERNEL,
    NEON,
    fma32,
    fused,
    nearest,
    parameters,
    quantized_of,
)
from requant.operators.stages import F32, I32, Quantized, Stages, in_stages, looked_up, stage

# As many elements as have their stages in the cache; and from how many on a table of all pairs is faster.
_BLOCK = 1 << 13
_TABLE_FROM = 1 << 16

Elementwise = Callable[[Quantized, Quantized, Quantized, Array, Array], Stages]


def _added(a: Quantized, b: Quantized, c: Quantized, a_stored: Array, b_stored: Array) -> Stages:
    a_ratio, b_ratio = a.scale / c.scale, b.scale / c.scale
    zeros = [np.float32(each.zero_point) for each in (a, b, c)]
    offset = zeros[2] - fma32(a_ratio, zeros[0], b_ratio * zeros[1])
    with_b = fma32(b_stored.astype(np.float32), b_ratio, offset)
    total = fma32(a_stored.astype(np.float32), a_ratio, with_b)
    rounded = nearest(total)
    return {"offset": offset, "partial": with_b, "sum": total, "rounded": rounded, "C": c.saturated(rounded)}


def _exchanged(a: Quantized, b: Quantized, c: Quantized, a_stored: Array, b_stored: Array) -> Stages:
    return _added(b, a, c, b_stored, a_stored)


def _multiplied(a: Quantized, b: Quantized, c: Quantized, a_stored: Array, b_stored: Array) -> Stages:
    factor = a.scale * b.scale / c.scale
    product = a.centered(a_stored) * b.centered(b_stored)
    scaled = product.astype(np.float32) * factor
    shifted = scaled + np.float32(c.zero_point)
    rounded = nearest(shifted)
    return {
        "factor": factor, "product": product, "scaled": scaled, "shifted": shifted, "rounded": rounded,
        "C": c.saturated(rounded),
    }  # fmt: skip


def _fixed_point(a: Quantized, b: Quantized, c: Quantized, a_stored: Array, b_stored: Array) -> Stages:
    """Add as mlas does with NEON: ratios as integers below 2^22 with one shift.

    Raise UnsupportedError for ratios that have none: they are added in f32 there, as the compiler contracts it.
    """
    ratios = [float(each.scale / c.scale) for each in (a, b)]
    shift, multipliers = 0, [0, 0]
    if all(2.0**-14 <= each < 2.0**8 for each in ratios):
        shift = 21 - (np.frexp(max(ratios))[1] - 1)
        multipliers = [round(each * 2.0**shift) for each in ratios]
    if not 13 <= shift <= 31 or not 1 << 21 <= max(multipliers) < 1 << 22:
        raise UnsupportedError(
            f"the scales of A and B are {ratios[0]!r} and {ratios[1]!r} times that of C; neon adds integers only from "
            "2^-14 up to 2^8",
            pointer="/inputs/C_scale",
        )
    products = [
        each.centered(stored) * np.int32(multiplier)
        for stored, each, multiplier in zip((a_stored, b_stored), (a, b), multipliers, strict=True)
    ]
    total = products[0] + products[1]
    # Ties away from zero.
    rounded = ((total.astype(np.int64) + (total >> 31) + (1 << (shift - 1))) >> shift).astype(np.int32)
    return {"sum": total, "rounded": rounded, "C": c.saturated(rounded + c.zero_point)}


def _is_one_per_span(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Return whether onnxruntime takes A as one element of each span of the broadcast.

    It looks at the dimensions that both have. Of a scalar and a tensor, at the last one of the tensor.
    """
    if not a or not b:
        return not a or a[-1] <= 1
    for of_a, of_b in zip(reversed(a), reversed(b), strict=False):
        if max(of_a, of_b) > 1:
            return of_a <= 1
    return True


def _spread(stored: Array, shape: tuple[int, ...], whole: tuple[int, ...]) -> Array:
    return stored if shape == whole else np.broadcast_to(stored.reshape(shape), whole).reshape(-1)


def _outputs(compute: Callable[[Array, Array], Stages], a: Array, b: Array) -> Array:
    """Return the outputs of flat operands, at least one, block by block."""
    blocks = (slice(start, start + _BLOCK) for start in range(0, a.size, _BLOCK))
    return np.concatenate([np.asarray(compute(a[block], b[block])["C"]) for block in blocks])


def _by_table(compute: Callable[[Array, Array], Stages], a: Array, b: Array) -> Array:
    """Return the outputs from a table of all pairs of codes, which a and b are together."""
    codes = np.arange(256, dtype=np.uint8).view(a.dtype)
    rows = np.split(codes[:, None], 256 * 256 // _BLOCK)
    table = np.concatenate([np.asarray(compute(each, codes)["C"]) for each in rows])
    return looked_up(table.reshape(-1), a, b)


def _planned(call: OperatorCall, elementwise: Elementwise) -> Work:
    a, b = call.inputs["A"], call.inputs["B"]
    same_type(call, "B", "A")
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise TypeFitError(
            f"the shapes {list(a.shape)} and {list(b.shape)} cannot be broadcast", pointer="/inputs/B"
        ) from None
    of_a, of_b, of_c = (quantized_of(call, name, "A") for name in "ABC")

    def compute(a_stored: Array, b_stored: Array) -> Stages:
        return elementwise(of_a, of_b, of_c, a_stored, b_stored)

    with np.errstate(all="ignore"):
        compute(a.data[:0], b.data[:0])  # raises what is wrong with the scales

    def stages() -> Stages:
        flat_a, flat_b = _spread(a.data, a.shape, shape), _spread(b.data, b.shape, shape)
        if call.boolean("trace") or not prod(shape):
            found = compute(flat_a, flat_b)
            return {name: each.reshape(shape) if np.ndim(each) else each for name, each in found.items()}
        by = _outputs if flat_a.size < _TABLE_FROM else _by_table
        return {"C": by(compute, flat_a, flat_b).reshape(shape)}

    return in_stages(call, stages, shape, blocks=True)


def _plan_add(call: OperatorCall) -> Work:
    if call.text(KERNEL.name) == NEON:
        return _planned(call, _fixed_point)
    exchanged = _is_one_per_span(call.inputs["A"].shape, call.inputs["B"].shape)
    return _planned(call, _exchanged if exchanged else _added)


def _plan_multiply(call: OperatorCall) -> Work:
    return _planned(call, _multiplied)


_OPERANDS = (
    Operand(name="A", description="The first operand.", types=BYTES),
    *parameters("A"),
    Operand(name="B", description="The second, of the type of A. Shapes are broadcast as numpy does.", types=BYTES),
    *parameters("B"),
    *parameters("A", prefix="C"),
)
_OUTPUT = Operand(name="C", description="The result, of the type of A.", types=BYTES)
_LOWEST = "A result that i32 does not hold, and NaN, becomes the lowest value, whatever its sign: as in onnxruntime."

QLINEAR_ADD = fused(
    "QLinearAdd",
    summary="Add quantized tensors in f32, with broadcasting.",
    inputs=_OPERANDS,
    output=_OUTPUT,
    stages=(
        stage("offset", "f32(zc - fma32(ra, za, f32(rb * zb))), ra = f32(sa / sc), rb = f32(sb / sc)."),
        stage("partial", "fma32(B, rb, offset)."),
        stage("sum", "fma32(A, ra, partial); of neon the exact sum of integers.", F32 | I32),
        stage("rounded", "The sum, rounded to an integer.", I32),
    ),
    attributes=(KERNEL,),
    deviations=(
        _LOWEST,
        "Where A has one element per span of the broadcast, or both have, A and B change places in all formulas.",
        "neon: ratios of scales outside of its integers are refused.",
    ),
    plan=_plan_add,
    example={
        "inputs": {
            "A": {"type": "tensor<2xi8>", "values": [-114, 27]},
            "A_scale": {"type": "tensor<f32>", "values": [0.025346905]},
            "A_zero_point": {"type": "tensor<i8>", "values": [-106]},
            "B": {"type": "tensor<2xi8>", "values": [-122, 3]},
            "B_scale": {"type": "tensor<f32>", "values": [0.03580992]},
            "B_zero_point": {"type": "tensor<i8>", "values": [-120]},
            "C_scale": {"type": "tensor<f32>", "values": [0.036585972]},
            "C_zero_point": {"type": "tensor<i8>", "values": [-105]},
        },
    },
)

QLINEAR_MUL = fused(
    "QLinearMul",
    summary="Multiply quantized tensors element by element, with broadcasting.",
    inputs=_OPERANDS,
    output=_OUTPUT,
    stages=(
        stage("factor", "f32(f32(sa * sb) / sc)."),
        stage("product", "(A - za) * (B - zb).", I32),
        stage("scaled", "f32(product * factor)."),
        stage("shifted", "f32(scaled + zc)."),
        stage("rounded", "RNE(shifted).", I32),
    ),
    deviations=(_LOWEST,),
    plan=_plan_multiply,
    example={
        "inputs": {
            "A": {"type": "tensor<4xui8>", "values": [0, 7, 100, 255]},
            "A_scale": {"type": "tensor<f32>", "values": [0.5]},
            "A_zero_point": {"type": "tensor<ui8>", "values": [3]},
            "B": {"type": "tensor<ui8>", "values": [9]},
            "B_scale": {"type": "tensor<f32>", "values": [0.25]},
            "C_scale": {"type": "tensor<f32>", "values": [4.5]},
            "C_zero_point": {"type": "tensor<ui8>", "values": [12]},
        },
    },
)
