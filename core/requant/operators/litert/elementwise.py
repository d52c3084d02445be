"""LiteRT's MUL, SUB and PRELU of quantized tensors (kernels/mul.cc, sub.cc, activations.cc, XNNPACK's qs8-vmul and
qs8-vadd).

    MUL  d = f32(f32(s1 * s2) / s), p = (x1 - z1) * (x2 - z2)
         reference  output = sat(scaled(p, d) + z)
         optimized  8 bits, whole groups of 16 (i8) or 8 (u8): sat8(wrap16(sat16(scaled(p, d)) + z)); the rest, and
                    16 bits, as reference
         xnnpack    8 bits: RNE(clamp(f32(f32(p) * d))) + z, for 2^-16 <= d < 2^8
    SUB  t = 2 * max(s1, s2) in f32, L = 20 for 8 bits and 15 for 16
         reference  output = sat(scaled(scaled((x1 - z1) << L, s1 / t) - scaled((x2 - z2) << L, s2 / t),
                    t / f32(2^L * s)) + z)
         xnnpack    8 bits: r = f32(s1 / s), f32(s2 / s), each 2^-10 up to 2^8; n = 20 - floor(log2(max r)),
                    m = RNE(r * 2^n): sat(RNU((m1 * (x1 - z1) - m2 * (x2 - z2)) / 2^n) + z)

    PRELU  x >= zx: output = sat(scaled(x - zx, f32(sx / s)) + z)
         x < zx: output = sat(scaled((x - zx) * (alpha - za), f32(f32(sx * sa) / s)) + z), all kernels alike
         16 bits: alpha are the bytes of the tensor alpha from its beginning, as i8

What XNNPACK does not take is computed by the optimized kernels. Activations clamp what saturates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from requant.description import Array
from requant.errors import ParameterError, TypeFitError, UnsupportedError
from requant.operators.description import OperatorCall, Work
from requant.operators.litert.arithmetic import (
    ACTIVATION,
    OPTIMIZED,
    REFERENCE,
    XNNPACK,
    activation_range,
    clamped,
    described,
    even_in_f32,
    is_between,
    multiplier_of,
    quantized,
    quantized_output,
    same_dtype,
    scaled,
    tensor,
    xnnpack_range,
)
from requant.operators.stages import F32, I32, Quantized, Stages, in_stages, stage

_GROUP = {np.dtype(np.int8): 16, np.dtype(np.uint8): 8}

Compute = Callable[[Array, Array], Stages]


def _planned(
    call: OperatorCall,
    computing: Callable[[OperatorCall, Quantized, Quantized, Quantized], Compute],
    names: tuple[str, str] = ("input1", "input2"),
) -> Work:
    a, b = (call.inputs[name] for name in names)
    same_dtype(call, names[1], names[0])
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise TypeFitError(
            f"the shapes {list(a.shape)} and {list(b.shape)} cannot be broadcast", pointer=f"/inputs/{names[1]}"
        ) from None
    of_a, of_b = quantized(call, names[0]), quantized(call, names[1])
    of_y, element = quantized_output(call, shape, names[0])
    with np.errstate(all="ignore"):
        compute = computing(call, of_a, of_b, of_y)

    def stages() -> Stages:
        spread = np.broadcast_arrays(of_a.centered(a.data).reshape(a.shape), of_b.centered(b.data).reshape(b.shape))
        return compute(*spread)

    return in_stages(call, stages, shape, element=element)


def _multiply(call: OperatorCall, a: Quantized, b: Quantized, y: Quantized) -> Compute:
    factor, kernel = a.scale * b.scale / y.scale, call.text("kernel")
    if kernel == XNNPACK and y.dtype in _GROUP and is_between(2.0**-16, 2.0**8, factor):
        bounds = xnnpack_range(call, y)
        return lambda left, right: {
            "product": left * right, **even_in_f32(left * right, factor, y, bounds)
        }  # fmt: skip
    multiplier, bounds = multiplier_of(factor), activation_range(call, y)
    group = 0 if kernel == REFERENCE else _GROUP.get(y.dtype, 0)
    same_shape = call.inputs["input1"].shape == call.inputs["input2"].shape

    def compute(left: Array, right: Array) -> Stages:
        product = left * right
        rescaled = scaled(product, multiplier)
        total = rescaled + np.int32(y.zero_point)
        if group:
            low, high = -(1 << 15), (1 << 15) - 1
            if not same_shape and (np.any(rescaled < low) or np.any(rescaled > high) or np.any(abs(total) > high)):
                raise UnsupportedError(
                    "a sum is beyond int16, and what LiteRT makes of it depends on how it broadcasts",
                    pointer="/inputs/input2",
                )
            whole = total.size // group * group
            wrapped = (np.clip(rescaled, low, high) + y.zero_point).astype(np.int16)
            total = np.concatenate([wrapped.reshape(-1)[:whole], total.reshape(-1)[whole:]]).reshape(total.shape)
        return {"product": product, "scaled": rescaled, "output": clamped(total, bounds, y.dtype)}

    return compute


def _subtract(call: OperatorCall, a: Quantized, b: Quantized, y: Quantized) -> Compute:
    ratios = [float(each.scale / y.scale) for each in (a, b)]
    if call.text("kernel") == XNNPACK and y.dtype in _GROUP and is_between(2.0**-10, 2.0**8, *ratios):
        bounds = xnnpack_range(call, y)
        shift = 21 - int(np.frexp(max(ratios))[1])
        first, second = (round(each * 2.0**shift) for each in ratios)

        def in_one(left: Array, right: Array) -> Stages:
            total = left.astype(np.int64) * first - right.astype(np.int64) * second
            rounded = ((total + (1 << (shift - 1))) >> shift).astype(np.int32)
            return {"difference": total, "scaled": rounded, "output": clamped(rounded + y.zero_point, bounds, y.dtype)}

        return in_one
    left_shift = 15 if y.dtype == np.int16 else 20
    twice = 2 * max(a.scale, b.scale)
    of_sides = [multiplier_of(float(each.scale) / float(twice)) for each in (a, b)]
    factor = float(twice) / float(np.float32(2.0**left_shift) * y.scale)
    last, bounds = multiplier_of(factor), activation_range(call, y)
    if not factor < 1 or last.shift > 0:
        raise ParameterError(
            f"the factor of the difference, {factor!r}, must be below 1 in LiteRT", pointer="/attributes/output_type"
        )

    def compute(left: Array, right: Array) -> Stages:
        sides = [
            scaled(numbers << np.int32(left_shift), each) for numbers, each in zip((left, right), of_sides, strict=True)
        ]
        difference = sides[0] - sides[1]
        rescaled = scaled(difference, last)
        return {
            "first": sides[0], "second": sides[1], "difference": difference, "scaled": rescaled,
            "output": clamped(rescaled + np.int32(y.zero_point), bounds, y.dtype),
        }  # fmt: skip

    return compute


def _prelu(call: OperatorCall, x: Quantized, alpha: Quantized, y: Quantized) -> Compute:
    at_least_zero, of_negative = multiplier_of(x.scale / y.scale), multiplier_of(x.scale * alpha.scale / y.scale)
    if y.dtype == np.int16:
        given = call.inputs["alpha"]
        read = given.data.view(np.int8)[: given.data.size].astype(np.int32).reshape(given.shape)

    def compute(centered: Array, factor: Array) -> Stages:
        if y.dtype == np.int16:
            factor = np.broadcast_to(read, centered.shape)
        product = centered * np.where(centered >= 0, np.int32(1), factor)
        rescaled = np.where(centered >= 0, scaled(product, at_least_zero), scaled(product, of_negative))
        total = rescaled.astype(np.int64) + y.zero_point
        return {"product": product, "scaled": rescaled, "output": y.saturated(total)}

    return compute


def _plan_prelu(call: OperatorCall) -> Work:
    work = _planned(call, _prelu, ("input", "alpha"))
    x, alpha = call.inputs["input"].shape, call.inputs["alpha"].shape
    if np.broadcast_shapes(x, alpha) != x:
        raise TypeFitError(
            f"alpha has shape {list(alpha)}, which {list(x)} is no broadcast of", pointer="/inputs/alpha"
        )
    return work


_OPERANDS = (
    tensor("input1", "The first tensor, of i8, u8 or i16."),
    tensor("input2", "The second, of the same storage. Shapes are broadcast as numpy does."),
)
_EXAMPLE = {
    "inputs": {
        "input1": {"type": "tensor<3x!quant.uniform<i8:f32, 0.5:3>>", "values": [-100, 3, 120]},
        "input2": {"type": "tensor<3x!quant.uniform<i8:f32, 0.25:-1>>", "values": [-100, 50, 77]},
    },
}
_SCALED = stage("scaled", "scaled(..), the zero point not added.", I32)

MUL = described(
    "MUL",
    summary="Multiply quantized tensors element by element, with broadcasting.",
    inputs=_OPERANDS,
    stages=(
        stage("product", "(x1 - z1) * (x2 - z2).", I32),
        _SCALED,
        stage("real", "f32(f32(product) * d), d = f32(f32(s1 * s2) / s); of xnnpack.", F32),
    ),
    attributes=(ACTIVATION,),
    deviations=("optimized, 8 bits: where a product, rescaled, is beyond int16, shapes that differ are refused.",),
    plan=lambda call: _planned(call, _multiply),
    example={**_EXAMPLE, "attributes": {"output_type": "!quant.uniform<i8:f32, 16.0:5>", "kernel": OPTIMIZED}},
)

SUB = described(
    "SUB",
    summary="Subtract quantized tensors element by element, with broadcasting.",
    inputs=_OPERANDS,
    stages=(
        stage("first", "scaled((x1 - z1) << L, s1 / t).", I32),
        stage("second", "scaled((x2 - z2) << L, s2 / t).", I32),
        stage("difference", "first - second; of xnnpack m1 * (x1 - z1) - m2 * (x2 - z2).", {"i32": 1, "i64": 1}),
        _SCALED,
    ),
    attributes=(ACTIVATION,),
    deviations=("i16 is computed as LiteRT does with pot_scale_int16 false.",),
    plan=lambda call: _planned(call, _subtract),
    example={**_EXAMPLE, "attributes": {"output_type": "!quant.uniform<i8:f32, 0.75:5>", "kernel": XNNPACK}},
)

PRELU = described(
    "PRELU",
    summary="A quantized tensor with its negative numbers multiplied by another.",
    inputs=(
        tensor("input", "The tensor, of i8, u8 or i16."),
        tensor("alpha", "The factors, of the same storage, broadcast to the shape of input."),
    ),
    stages=(stage("product", "x - zx, below 0 times alpha - za.", I32), _SCALED),
    deviations=("i16: the bytes of alpha are read as i8 from its beginning, as in LiteRT.",),
    plan=_plan_prelu,
    example={
        "inputs": {
            "input": {"type": "tensor<3x!quant.uniform<i8:f32, 0.5:3>>", "values": [-100, 3, 120]},
            "alpha": {"type": "tensor<1x!quant.uniform<i8:f32, 0.01:-1>>", "values": [50]},
        },
        "attributes": {"output_type": "!quant.uniform<i8:f32, 0.5:5>"},
    },
)
