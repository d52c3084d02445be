"""onnxruntime's QGemm, MatMulIntegerToFloat and DynamicQuantizeMatMul, and the weights of MatMulNBits.

    QGemm                 scale = f32(f32(alpha * sa) * sb[n])
                          Y = RNE(clamp(f32(f32(acc) * f32(scale / sy)))) + zy, or without y_scale f32(f32(acc) * scale)
    MatMulIntegerToFloat  Y = f32(f32(f32(acc) * f32(sa * sb[n])) + bias[n]), of neon with one rounding
    DynamicQuantizeMatMul the same of A that DynamicQuantizeLinear quantized
    MatMulNBits           weights = f32((q - zp) * s), zp by default 2^(bits - 1)
                          zp of f32: weights = f32(f32(q * s) - f32(zp * s))

acc are sums of (a - za) * (b - zb), and C of QGemm, modulo 2^32.
"""

from __future__ import annotations

from math import prod

import numpy as np

from requant.description import Array, Kind, TensorValue
from requant.errors import ParameterError, PreconditionError, TypeFitError, UnsupportedError
from requant.integer.accumulation import Integers
from requant.integer.matmul import Matmul
from requant.operators.description import Attribute, Operand, OperatorCall, Work
from requant.operators.execution import placed
from requant.operators.onnx.dynamic_quantize_linear import DYNAMIC_QUANTIZE_LINEAR
from requant.operators.onnx.matrix import Matrices, zeros_of
from requant.operators.onnx.operands import same_type
from requant.operators.onnxruntime.arithmetic import BYTES, KERNEL, NEON, fma32, fused, parameters, quantized_of
from requant.operators.stages import F32, I32, Stages, in_stages, stage, tensor_of
from requant.profiles.rule import Accumulator, SumOverflow

_PLACES = {"lhs": "/inputs/A", "rhs": "/inputs/B"}
_BITS = (2, 4, 8)


def _sums(matrices: Matrices, a: TensorValue, b: TensorValue, zeros: tuple[Array, Array]) -> Matmul:
    sides = zip((a, b), (matrices.a, matrices.b), zeros, strict=True)
    with placed(_PLACES):
        left, right = (Integers.of_array(each.data.reshape(matrix.shape), zero) for each, matrix, zero in sides)
        return Matmul.of(left, right, Accumulator.I32, SumOverflow.WRAP)


def _of_columns(matrices: Matrices, parameter: TensorValue, name: str) -> Array:
    return parameter.data.reshape(matrices.b.parameter_shape(parameter, name))


def _transposed(call: OperatorCall, name: str, attribute: str) -> TensorValue:
    operand = call.inputs[name]
    if len(operand.shape) != 2:
        raise TypeFitError(f"{name} has rank {len(operand.shape)}; a matrix has 2", pointer=f"/inputs/{name}")
    matrix = operand.data.reshape(operand.shape)
    return tensor_of(matrix.T if call.integer(attribute) else matrix)


def _plan_gemm(call: OperatorCall) -> Work:
    a, b = _transposed(call, "A", "transA"), _transposed(call, "B", "transB")
    same_type(call, "b_zero_point", "B")
    matrices, of_a = Matrices.of(a, b, ("A", "B")), quantized_of(call, "a", "A")
    with placed(_PLACES):
        zeros = zeros_of(matrices.b, call.inputs["b_zero_point"], "b_zero_point")
        b_scale = _of_columns(matrices, call.inputs["b_scale"], "b_scale")
    sums = _sums(matrices, a, b, (np.array(of_a.zero_point), zeros))
    added, zero_point = call.optional("C"), call.optional("y_zero_point")
    if (zero_point is None) != (call.optional("y_scale") is None):
        given = "y_scale" if zero_point is None else "y_zero_point"
        raise TypeFitError("y_scale and y_zero_point are given together", pointer=f"/inputs/{given}")
    y = None if zero_point is None else quantized_of(call, "y", "y_zero_point")
    try:
        addend = np.broadcast_to(0 if added is None else added.data.reshape(added.shape), sums.shape)
    except ValueError:
        raise TypeFitError(f"C cannot be broadcast to {list(sums.shape)}", pointer="/inputs/C") from None

    def stages() -> Stages:
        accumulator = sums.run(a.data, b.data).reshape(sums.shape) + addend.astype(np.int32)
        scale = np.float32(call.number("alpha")) * of_a.scale * b_scale
        found = {"accumulator": accumulator, "scale": scale}
        if y is None:
            return {**found, "Y": accumulator.astype(np.float32) * scale}
        scaled = accumulator.astype(np.float32) * (scale / y.scale)
        return {**found, "scaled": scaled, "Y": y.quantized(scaled)}

    return in_stages(call, stages, sums.shape, sums.cost)


def _to_float(
    call: OperatorCall, a: TensorValue, a_scale: np.float32, a_zero_point: int, quantized: Stages | None = None
) -> Work:
    b, bias = call.inputs["B"], call.optional("bias")
    same_type(call, "b_zero_point", "B")
    matrices = Matrices.of(a, b, ("A", "B"))
    zeros = zeros_of(matrices.b, call.optional("b_zero_point"), "b_zero_point")
    b_scale = _of_columns(matrices, call.inputs["b_scale"], "b_scale")
    if bias is not None and bias.shape != b.shape[-1:]:
        raise TypeFitError(f"bias has shape {list(bias.shape)}; it is {list(b.shape[-1:])}", pointer="/inputs/bias")
    sums = _sums(matrices, a, b, (np.array(a_zero_point), zeros))
    shape = matrices.product_shape(sums.shape)

    def stages() -> Stages:
        accumulator = sums.run(a.data, b.data).reshape(sums.shape)
        scale, real = a_scale * b_scale, accumulator.astype(np.float32)
        scaled = real * scale
        if bias is None:
            y = scaled
        elif call.text(KERNEL.name) == NEON:
            y = fma32(real, scale, bias.data)
        else:
            y = scaled + bias.data
        found = {"accumulator": accumulator, "scaled": scaled, "Y": y}
        return {**(quantized or {}), "scale": scale} | {name: each.reshape(shape) for name, each in found.items()}

    return in_stages(call, stages, shape, sums.cost)


def _plan_integer_to_float(call: OperatorCall) -> Work:
    same_type(call, "a_zero_point", "A")
    of_a = quantized_of(call, "a", "A")
    return _to_float(call, call.inputs["A"], of_a.scale, of_a.zero_point)


def _plan_dynamic(call: OperatorCall) -> Work:
    quantize = OperatorCall(DYNAMIC_QUANTIZE_LINEAR.versions[-1], "onnxruntime", {"x": call.inputs["A"]}, {})
    try:
        found = DYNAMIC_QUANTIZE_LINEAR.work_of(quantize).run()
    except (ParameterError, PreconditionError) as error:
        error.pointer, error.detail = "/inputs/A", error.detail.replace("x has", "A has", 1)
        raise
    shown = {f"a_{name}": each.data.reshape(each.shape) for name, each in found.items()}
    quantized = {"a_quantized": shown["a_y"], "a_scale": shown["a_y_scale"], "a_zero_point": shown["a_y_zero_point"]}
    scale, zero_point = quantized["a_scale"], quantized["a_zero_point"]
    return _to_float(call, found["y"], np.float32(scale), int(zero_point), quantized)


def _unpacked(stored: Array, bits: int, count: int) -> Array:
    """Return the first `count` codes of each row of bytes, low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((stored[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*stored.shape[:-1], -1)[..., :count]


def _plan_bits(call: OperatorCall) -> Work:
    bits, block, k, n = (call.integer(name) for name in ("bits", "block_size", "K", "N"))
    if bits not in _BITS:
        raise ParameterError(f"bits is {bits}; available: 2, 4, 8", pointer="/attributes/bits")
    if block < 16 or block & (block - 1):
        raise ParameterError(f"block_size is {block}; a power of two from 16 on", pointer="/attributes/block_size")
    blocks = -(-k // block)
    stored, scales, zero_points = call.inputs["B"], call.inputs["scales"], call.optional("zero_points")
    expected = {"B": (n, blocks, block * bits // 8), "scales": (n, blocks)}
    sizes = {name: prod(shape) for name, shape in expected.items()}
    packed = zero_points is not None and zero_points.data.dtype == np.uint8
    sizes["zero_points"] = n * -(-blocks * bits // 8) if packed else n * blocks
    for name, size in sizes.items():
        if name in call.inputs and call.inputs[name].data.size != size:
            raise TypeFitError(
                f"{name} has {call.inputs[name].data.size} elements; K, N and block_size ask for {size}",
                pointer=f"/inputs/{name}",
            )
    if zero_points is not None and not packed and bits != 4:
        raise UnsupportedError("zero_points of f32 are there with 4 bits", pointer="/inputs/zero_points")

    def stages() -> Stages:
        codes = _unpacked(stored.data.reshape(n, blocks, -1), bits, block)
        if zero_points is None:
            zeros = np.full((n, blocks), 1 << (bits - 1), np.float32)
        elif packed:
            zeros = _unpacked(zero_points.data.reshape(n, -1), bits, blocks).astype(np.float32)
        else:
            zeros = zero_points.data.reshape(n, blocks)
        real, zero, scale = codes.astype(np.float32), zeros[..., None], scales.data.reshape(n, blocks, 1)
        weights = (real - zero) * scale if zero_points is None or packed else real * scale - zero * scale
        return {"codes": codes, "zeros": zeros, "weights": weights.reshape(n, -1)[:, :k]}

    return in_stages(call, stages, (n, k))


def _flag(name: str, description: str) -> Attribute:
    return Attribute(name=name, kind=Kind.INTEGER, description=description, default=0, lowest=0, highest=1)


def _columns(name: str, *, optional: bool) -> tuple[Operand, Operand]:
    return (
        Operand(name=f"{name}_scale", description="One, or one for each column.", types=F32),
        Operand(
            name=f"{name}_zero_point",
            description=f"One, or one for each column, of the type of B.{' Default: 0.' if optional else ''}",
            types=BYTES,
            optional=optional,
        ),
    )


_SATURATION = (
    "On x86-64 without VNNI, onnxruntime's sums of ui8 by i8 saturate in 16 bits where both have more than 7 bits; "
    "these are exact."
)
_ACCUMULATOR = stage("accumulator", "The sums of (a - za) * (b - zb), and C.", I32)
_BIAS = Operand(name="bias", description="One for each column.", types=F32, optional=True)
_A_B = {
    "A": {"type": "tensor<2x3xui8>", "values": [11, 7, 3, 10, 6, 2]},
    "B": {"type": "tensor<3x2xi8>", "values": [1, 4, 2, 5, 3, -6]},
}

QGEMM = fused(
    "QGemm",
    summary="Quantized matrix product, transposed or not, with an addend, as quantized or real numbers.",
    inputs=(
        Operand(name="A", description="[M, K], with transA [K, M].", types=BYTES),
        *parameters("A", prefix="a", optional=False),
        Operand(name="B", description="[K, N], with transB [N, K].", types=BYTES),
        *_columns("b", optional=False),
        Operand(name="C", description="What is added to the sums, of the shape of Y or broadcast to it.", types=I32,
                optional=True),
        Operand(name="y_scale", description="One. Absent: Y is of f32.", types=F32, optional=True),
        Operand(name="y_zero_point", description="One, of the type of Y.", types=BYTES, optional=True),
    ),
    output=Operand(name="Y", description="The product.", types=BYTES | F32),
    stages=(
        _ACCUMULATOR,
        stage("scale", "f32(f32(alpha * sa) * sb), one or one for each column."),
        stage("scaled", "f32(f32(accumulator) * f32(scale / sy))."),
    ),
    attributes=(
        Attribute(name="alpha", kind=Kind.NUMBER, description="A factor of the product, in f32.", default=1.0),
        _flag("transA", "1: A is transposed."),
        _flag("transB", "1: B is transposed."),
    ),
    deviations=(_SATURATION,),
    plan=_plan_gemm,
    example={
        "inputs": {
            **_A_B,
            "a_scale": {"type": "tensor<f32>", "values": [0.5]},
            "a_zero_point": {"type": "tensor<ui8>", "values": [12]},
            "b_scale": {"type": "tensor<2xf32>", "values": [0.25, 0.125]},
            "b_zero_point": {"type": "tensor<2xi8>", "values": [0, 1]},
            "C": {"type": "tensor<2xi32>", "values": [100, -100]},
            "y_scale": {"type": "tensor<f32>", "values": [0.375]},
            "y_zero_point": {"type": "tensor<ui8>", "values": [128]},
        },
    },
)  # fmt: skip

MATMUL_INTEGER_TO_FLOAT = fused(
    "MatMulIntegerToFloat",
    summary="Quantized matrix product as real numbers, with an optional bias.",
    inputs=(
        Operand(name="A", description="[.., M, K], or [K].", types=BYTES),
        Operand(name="B", description="[.., K, N], or [K].", types=BYTES),
        Operand(name="a_scale", description="One.", types=F32),
        Operand(name="b_scale", description="One, or one for each column.", types=F32),
        Operand(name="a_zero_point", description="One, of the type of A. Default: 0.", types=BYTES, optional=True),
        Operand(name="b_zero_point", description="One, or one for each column, of the type of B. Default: 0.",
                types=BYTES, optional=True),
        _BIAS,
    ),
    output=Operand(name="Y", description="The product.", types=F32),
    stages=(_ACCUMULATOR, stage("scale", "f32(sa * sb)."), stage("scaled", "f32(f32(accumulator) * scale).")),
    attributes=(KERNEL,),
    deviations=(_SATURATION,),
    plan=_plan_integer_to_float,
    example={
        "inputs": {
            **_A_B,
            "a_scale": {"type": "tensor<f32>", "values": [0.5]},
            "b_scale": {"type": "tensor<2xf32>", "values": [0.25, 0.125]},
            "a_zero_point": {"type": "tensor<ui8>", "values": [12]},
            "b_zero_point": {"type": "tensor<2xi8>", "values": [0, 1]},
            "bias": {"type": "tensor<2xf32>", "values": [0.1, -0.1]},
        },
    },
)  # fmt: skip

DYNAMIC_QUANTIZE_MATMUL = fused(
    "DynamicQuantizeMatMul",
    summary="Product of real numbers, quantized to ui8 by their range, and a quantized matrix, as real numbers.",
    inputs=(
        Operand(name="A", description="[.., M, K], or [K].", types=F32),
        Operand(name="B", description="[.., K, N], or [K].", types=BYTES),
        *_columns("b", optional=True),
        _BIAS,
    ),
    output=Operand(name="Y", description="The product.", types=F32),
    stages=(
        stage("a_quantized", "A by DynamicQuantizeLinear.", {"ui8": 1}),
        stage("a_scale", "Its scale."),
        stage("a_zero_point", "Its zero point.", {"ui8": 1}),
        _ACCUMULATOR,
        stage("scale", "f32(sa * sb)."),
        stage("scaled", "f32(f32(accumulator) * scale)."),
    ),
    attributes=(KERNEL,),
    deviations=(_SATURATION, "NaN in A is an error, as in onnx.DynamicQuantizeLinear."),
    plan=_plan_dynamic,
    example={
        "inputs": {
            "A": {"type": "tensor<2x3xf32>", "values": [0.5, -1.25, 3.0, 2.5, 0.125, -0.75]},
            "B": _A_B["B"],
            "b_scale": {"type": "tensor<f32>", "values": [0.25]},
            "b_zero_point": {"type": "tensor<i8>", "values": [1]},
        },
    },
)

MATMUL_N_BITS = fused(
    "MatMulNBits",
    summary="The weights that MatMulNBits multiplies with, dequantized from 2, 4 or 8 bits in blocks.",
    inputs=(
        Operand(name="B", description="[N, ceil(K / block_size), block_size * bits / 8], low bits first.",
                types={"ui8": 1}),
        Operand(name="scales", description="One for each block.", types=F32),
        Operand(name="zero_points", description="One for each block: packed like B, each of N on its own, or with 4 "
                "bits of f32. Default: 2^(bits - 1).", types={"ui8": 1, "f32": 1}, optional=True),
    ),
    output=Operand(name="weights", description="[N, K].", types=F32),
    stages=(
        stage("codes", "The stored integers, block by block.", {"ui8": 1}),
        stage("zeros", "The zero point of each block."),
    ),
    attributes=(
        *(Attribute(name=name, kind=Kind.INTEGER, description=said, lowest=1, highest=(1 << 31) - 1)
          for name, said in (("K", "The rows of the weights that are multiplied."), ("N", "Their columns."))),
        Attribute(name="bits", kind=Kind.INTEGER, description="2, 4 or 8.", default=4),
        Attribute(name="block_size", kind=Kind.INTEGER, description="Weights of a scale: a power of two from 16 on.",
                  highest=(1 << 31) - 1),
    ),
    deviations=(
        "The product itself is not computed. With accuracy_level 0 to 3, or where B is not constant, it is a sum of "
        "f32 whose order depends on the processor, and these are its weights; with level 4, A is quantized first.",
    ),
    plan=_plan_bits,
    example={
        "inputs": {
            "B": {"type": "tensor<1x1x8xui8>", "values": [16, 50, 84, 118, 152, 186, 220, 254]},
            "scales": {"type": "tensor<1xf32>", "values": [0.25]},
        },
        "attributes": {"K": 16, "N": 1, "bits": 4, "block_size": 16},
    },
)  # fmt: skip
