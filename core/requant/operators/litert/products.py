"""LiteRT's BATCH_MATMUL and TRANSPOSE_CONV of quantized tensors (kernels/batch_matmul.cc, kernels/transpose_conv.cc).

    BATCH_MATMUL    acc = sum((a - za) * (b - zb)), d = f32(sa * sb) / sy
                    i8: sat(scaled(acc, d) + zy); i16: by LiteRT's rule for 64-bit accumulators
                    xnnpack, i8 with zb = 0: RNE(clamp(f32(f32(acc) * f32(f32(sa * sb) / sy)))) + zy
    TRANSPOSE_CONV  acc = sum((x - zx) * (w - zw)) + bias, where x[i, j] * w[k, l] goes to [i * stride_h + k - top,
                    j * stride_w + l - left]
                    d = sx * sw / sy, of u8 f32(sx * sw) / sy; weights of i8 may have a scale for each channel
                    8 bits: sat(scaled(acc, d) + zy); of optimized the last rounding has ties up in whole groups of
                    8 channels (i8) or 16 elements (u8); i16: as of BATCH_MATMUL
                    xnnpack, 8 bits, unless a window with SAME is shorter than its stride: in f32 as above

Without `f32` d is in f64. XNNPACK takes factors from 2^-32 up to 256. What it does not take, the optimized kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from requant.description import Array, Kind
from requant.errors import TypeFitError, UnsupportedError, default_pointer
from requant.errors.cancellation import check_cancelled
from requant.integer.matmul import plan_matmul
from requant.mlir.types import TensorType, UniformPerAxisType
from requant.operators.description import Attribute, Operand, OperatorCall, Work
from requant.operators.execution import placed
from requant.operators.litert.arithmetic import (
    REFERENCE,
    XNNPACK,
    described,
    even_in_f32,
    is_between,
    multiplier_of,
    quantized,
    quantized_output,
    same_dtype,
    scaled,
    tensor,
)
from requant.operators.litert.pools import PADDING, STRIDES
from requant.operators.stages import F32, I32, Stages, in_stages, stage
from requant.schemes import Factor
from requant.schemes.litert import ARM_VECTOR, LITERT, LITERT_INT64

_SMALLEST, _LARGEST = 2.0**-32, 2.0**8
# As many products take as long as the work on a tap that does not depend on the size.
_COST_OF_TAP = 1 << 14


def _transposed(call: OperatorCall, name: str, flag: str) -> tuple[TensorType, Array]:
    """Return an operand as a product has it: a type, and flat integers."""
    operand = call.inputs[name]
    if len(operand.shape) < 2:
        raise TypeFitError(f"{name} has rank {len(operand.shape)}; 2 or more", pointer=f"/inputs/{name}")
    if not call.boolean(flag):
        return operand.type, operand.data
    turned = operand.data.reshape(operand.shape).swapaxes(-1, -2)
    return TensorType(turned.shape, operand.type.element), np.ascontiguousarray(turned).reshape(-1)


def _plan_batch_matmul(call: OperatorCall) -> Work:
    same_dtype(call, "rhs", "lhs")
    a, b = (quantized(call, name, ("i8", "i16")) for name in ("lhs", "rhs"))
    (left, left_data), (right, right_data) = _transposed(call, "lhs", "adj_x"), _transposed(call, "rhs", "adj_y")
    (rows, depth), (other, columns) = left.shape[-2:], right.shape[-2:]  # type: ignore[index]
    if depth != other:
        raise TypeFitError(f"lhs has a depth of {depth}, and rhs of {other}", pointer="/inputs/rhs")
    try:
        batches = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])  # type: ignore[index, arg-type]
    except ValueError:
        raise TypeFitError("the batches of lhs and rhs cannot be broadcast", pointer="/inputs/rhs") from None
    y, element = quantized_output(call, (*batches, rows, columns), "lhs")  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        factor = a.scale * b.scale / y.scale
    of_xnnpack = (
        call.text("kernel") == XNNPACK
        and y.dtype == np.int8
        and b.zero_point == 0
        and is_between(_SMALLEST, _LARGEST, factor)
    )
    scheme = LITERT_INT64 if y.dtype == np.int16 else LITERT
    with placed({"lhs": "/inputs/lhs", "rhs": "/inputs/rhs", "output": "/attributes/output_type"}):
        if of_xnnpack:
            plan = plan_matmul(left, right, element, "litert_xnnpack")
        else:
            plan = plan_matmul(left, right, element, "litert", scheme=scheme.name, factor=Factor.F64_OF_F32_PRODUCT)
    shape = tuple(size for size in plan.output_type.shape or () if size is not None)

    def stages() -> Stages:
        found = np.empty(prod(shape), plan.output_dtype)
        plan.run(left_data, right_data, None, found)
        return {"output": found.reshape(shape)}

    return in_stages(call, stages, shape, plan.accumulation.cost, element=element)


def _scales_of(call: OperatorCall) -> tuple[Array, int]:
    """Return the scale of each output channel of the weights, as f32, and their zero point."""
    weights = call.inputs["weights"]
    element = weights.type.element
    if isinstance(element, UniformPerAxisType):
        storage = element.storage
        whole = (storage.minimum, storage.maximum) in (storage.default_bounds, (-127, 127))
        if weights.data.dtype != np.int8 or element.axis or any(element.zero_points) or not whole:
            raise UnsupportedError("scales along an axis are of i8, along axis 0, with zero points 0",
                                   pointer="/inputs/weights")  # fmt: skip
        return np.array(element.scales, np.float64).astype(np.float32), 0
    of_weights = quantized(call, "weights", ("i8", "u8"))
    return np.full(weights.shape[0], of_weights.scale), of_weights.zero_point


def _before(places: int, taps: int, stride: int, padding: str) -> int:
    """Return how much of what is spread lies before the output."""
    reached = (places + stride - 1) // stride if padding == "SAME" else (places + stride - taps) // stride
    return max((reached - 1) * stride + taps - places, 0) // 2


@dataclass(frozen=True, slots=True)
class _Spread:
    """Along one dimension: `size` elements, each spread over `taps` places of the output, `stride` places apart."""

    places: int
    taps: int
    stride: int
    size: int
    before: int

    def reach(self, tap: int) -> tuple[slice, slice]:
        """Return the elements whose `tap` lies in the output, and its places there."""
        shift = tap - self.before
        first = max(-(shift // self.stride), 0)
        end = max(min((self.places - 1 - shift) // self.stride + 1, self.size), first)
        start = first * self.stride + shift
        return slice(first, end), slice(start, start + (end - first) * self.stride, self.stride)


def _plan_transpose_conv(call: OperatorCall) -> Work:
    x, weights, bias = call.inputs["input"], call.inputs["weights"], call.optional("bias")
    of_x = quantized(call, "input")
    if len(x.shape) != 4 or len(weights.shape) != 4 or weights.shape[3] != x.shape[3]:
        raise TypeFitError("input is [N, H, W, I], and weights are [O, KH, KW, I]", pointer="/inputs/weights")
    expected = np.dtype(np.uint8 if of_x.dtype == np.uint8 else np.int8)
    if weights.data.dtype != expected:
        raise UnsupportedError("weights are of i8, or of u8 with an input of u8", pointer="/inputs/weights")
    given = call.inputs["output_shape"]
    shape = tuple(given.data.tolist())
    channels, taps = weights.shape[0], weights.shape[1:3]
    if given.shape != (4,) or shape[0] != x.shape[0] or shape[3] != channels or min(shape) < 1:
        raise TypeFitError(
            f"output_shape is [N, H, W, O], N {x.shape[0]} and O {channels}", pointer="/inputs/output_shape"
        )
    strides, padding = (call.integer("stride_h"), call.integer("stride_w")), call.text("padding")
    spreads = [
        _Spread(*each, before=_before(*each[:3], padding))
        for each in zip(shape[1:3], taps, strides, x.shape[1:3], strict=True)
    ]
    if bias is not None and (bias.shape != (channels,) or of_x.dtype == np.int16):
        raise TypeFitError(f"bias has {channels} elements; i16 takes none", pointer="/inputs/bias")
    y, element = quantized_output(call, shape, "input")
    scales, zero_point = _scales_of(call)
    with np.errstate(all="ignore"), default_pointer("/attributes/output_type"):
        products = of_x.scale * scales
        real = products / y.scale
        of_xnnpack = (
            call.text("kernel") == XNNPACK
            and y.dtype != np.int16
            and (padding == "VALID" or all(tap >= stride for tap, stride in zip(taps, strides, strict=True)))
            and is_between(_SMALLEST, _LARGEST, *real)
        )
        exact = float(of_x.scale) * scales.astype(np.float64) / float(y.scale)
        factors = products.astype(np.float64) / float(y.scale) if y.dtype == np.uint8 else exact
        multipliers = [] if of_xnnpack else [multiplier_of(each) for each in factors]
    scheme = LITERT_INT64 if y.dtype == np.int16 else LITERT
    in_vectors = call.text("kernel") != REFERENCE and y.dtype != np.int16

    def stages() -> Stages:
        # In f64 sums of such products are exact below 2^53.
        stored = of_x.centered(x.data).astype(np.float64).reshape(x.shape)
        filters = (weights.data.astype(np.float64) - zero_point).reshape(weights.shape)
        total = np.zeros(shape)
        for row, column in np.ndindex(*taps):
            check_cancelled()
            taken, given = zip(
                *(each.reach(tap) for each, tap in zip(spreads, (row, column), strict=True)), strict=True
            )
            total[:, *given] += stored[:, *taken] @ filters[:, row, column].T
        sums = total.astype(np.int64)
        if bias is not None:
            sums = sums + bias.data
        if y.dtype != np.int16:
            sums = sums.astype(np.int32)
        if of_xnnpack:
            return {"accumulator": sums, **even_in_f32(sums, real, y, (y.lowest, y.highest))}
        rescaled = scaled(sums, multipliers, scheme)
        if in_vectors:
            flat, of_vectors = rescaled.reshape(-1), scaled(sums, multipliers, ARM_VECTOR).reshape(-1)
            place = np.arange(flat.size)
            whole = flat.size // 16 * 16
            if y.dtype == np.int8:
                place, whole = place % channels, channels // 8 * 8
            rescaled = np.where(place < whole, of_vectors, flat).reshape(sums.shape)
        return {
            "accumulator": sums, "scaled": rescaled, "output": y.saturated(rescaled.astype(np.int64) + y.zero_point)
        }  # fmt: skip

    cost = prod(x.shape) * channels * prod(taps) + _COST_OF_TAP * prod(taps)
    return in_stages(call, stages, shape, cost, element=element)


def _flag(name: str, description: str) -> Attribute:
    return Attribute(name=name, kind=Kind.BOOLEAN, description=description, default=False)


BATCH_MATMUL = described(
    "BATCH_MATMUL",
    summary="Multiply quantized matrices, in batches.",
    inputs=(tensor("lhs", "[.., M, K], of i8 or i16."), tensor("rhs", "[.., K, N], of the same storage.")),
    attributes=(
        _flag("adj_x", "Whether lhs is [.., K, M]."),
        _flag("adj_y", "Whether rhs is [.., N, K]."),
    ),
    plan=_plan_batch_matmul,
    example={
        "inputs": {
            "lhs": {"type": "tensor<2x2x!quant.uniform<i8:f32, 0.5>>", "values": [1, 2, 3, -9]},
            "rhs": {"type": "tensor<2x2x!quant.uniform<i8:f32, 0.25:-1>>", "values": [100, 50, -60, 77]},
        },
        "attributes": {"output_type": "!quant.uniform<i8:f32, 1.5:5>", "kernel": XNNPACK},
    },
)

TRANSPOSE_CONV = described(
    "TRANSPOSE_CONV",
    summary="The transposed convolution of a quantized image.",
    inputs=(
        Operand(name="output_shape", description="[N, H, W, O] of the output.", types=I32),
        tensor("weights", "[O, KH, KW, I], of i8, with one scale or one for each O, or of u8 with one."),
        tensor("input", "[N, H, W, I], of i8, u8 or i16."),
        Operand(name="bias", description="[O]; not with i16. Default: 0.", types=I32, optional=True),
    ),
    stages=(
        stage("accumulator", "The sums.", {"i32": 1, "i64": 1}),
        stage("scaled", "The sums times their factors, as integers.", I32),
        stage("real", "f32(f32(accumulator) * f32(f32(sx * sw) / sy)); of xnnpack.", F32),
    ),
    attributes=(PADDING, *STRIDES),
    plan=_plan_transpose_conv,
    example={
        "inputs": {
            "output_shape": {"type": "tensor<4xi32>", "values": [1, 2, 4, 1]},
            "weights": {"type": "tensor<1x2x2x1x!quant.uniform<i8:f32, 0.25>>", "values": [100, 50, -60, 77]},
            "input": {"type": "tensor<1x1x2x1x!quant.uniform<i8:f32, 0.5:3>>", "values": [10, -20]},
        },
        "attributes": {
            "padding": "VALID", "stride_h": 2, "stride_w": 2, "output_type": "!quant.uniform<i8:f32, 8.0:5>",
        },
    },
)  # fmt: skip
