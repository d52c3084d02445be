"""ONNX QLinearMatMul, opset 10 and 21 (https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html).

    y = saturate(RNE(acc * M) + y_zero_point), acc = (a - a_zero_point) x (b - b_zero_point) in int32, modulo 2^32

onnxruntime: M = f32(f32(a_scale * b_scale) / y_scale), the product in f32. reference: M in the type of the scales, the
product in f64, y_zero_point added before rounding.
"""

from __future__ import annotations

from math import prod

import numpy as np

from requant.description import TensorValue
from requant.formats.elements import FLOATS
from requant.integer.matmul import plan_matmul
from requant.integer.product import OPERANDS_OF_BATCHES
from requant.mlir.types import TensorType
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Work
from requant.operators.element_names import type_key
from requant.operators.execution import placed
from requant.operators.onnx.matrix import Matrices, Matrix
from requant.operators.onnx.operands import (
    F8,
    IMPLEMENTATIONS,
    LAST_OPSET,
    PROFILES,
    REFERENCE,
    integers_of,
    output_element,
    same_type,
)
from requant.operators.separate_parameters import MAX_FACTORS, check_number_of_scales, quantized_type, reals_of
from requant.schemes import Factor

_STORED = {"ui8": 10, "i8": 10, **dict.fromkeys(F8, 21)}
_SCALES = {"f32": 10, "f16": 21, "bf16": 21}
_FACTORS = {"f16": Factor.F16, "bf16": Factor.BF16}
_PLACES = {"lhs": "/inputs/a", "rhs": "/inputs/b", "output": "/inputs/y_scale"}


def _quantized(call: OperatorCall, name: str, matrix: Matrix) -> TensorType:
    """Return an operand with its parameters as a type. Scales and zero points may be of different granularity."""
    element = integers_of(call, name)
    same_type(call, f"{name}_zero_point", name)
    scale, zero_point = call.inputs[f"{name}_scale"], call.inputs[f"{name}_zero_point"]
    shapes = [matrix.parameter_shape(each, f"{name}_{what}") for each, what in
              ((scale, "scale"), (zero_point, "zero_point"))]  # fmt: skip
    shape = np.broadcast_shapes(*shapes)
    check_number_of_scales(prod(shape), f"/inputs/{name}_scale", MAX_FACTORS)
    scales, zeros = (
        np.broadcast_to(data.reshape(own), shape).reshape(-1)
        for data, own in zip((reals_of(scale), zero_point.data.astype(np.int64)), shapes, strict=True)
    )
    if not scales.size:  # there is no row, or no column
        shape, scales, zeros = (1,), np.ones(1), np.zeros(1, np.int64)
    return quantized_type(matrix.shape, matrix.granularity(shape), element, FLOATS["f32"], scales, zeros)


def _plan(call: OperatorCall) -> Work:
    a, b = call.inputs["a"], call.inputs["b"]
    for name in ("b_scale", "y_scale"):
        same_type(call, name, "a_scale")
    element = integers_of(call, "y_zero_point")
    matrices = Matrices.of(a, b, ("a", "b"))
    left, right = _quantized(call, "a", matrices.a), _quantized(call, "b", matrices.b)
    output = output_element(call, element)
    factor = None if call.implementation != REFERENCE else _FACTORS.get(type_key(call.inputs["y_scale"].type.element))
    with placed(_PLACES):
        plan = plan_matmul(
            left, right, output, PROFILES[call.implementation], factor=factor, operand_rule=OPERANDS_OF_BATCHES
        )
    shape = tuple(size for size in plan.output_type.shape or () if size is not None)
    y_type = TensorType(matrices.product_shape(shape), element)

    def run() -> Outputs:
        y = np.empty(plan.elements, plan.output_dtype)
        with placed(_PLACES):
            plan.run(a.data, b.data, None, y)
        return {"y": TensorValue(y_type, y)}

    return Work(run, plan.elements, plan.accumulation.cost)


def _parameters(name: str, each: str) -> tuple[Operand, Operand]:
    return (
        Operand(name=f"{name}_scale", description=f"One, or one for each {each}. All scales have one type.",
                types=_SCALES),
        Operand(name=f"{name}_zero_point", description=f"One, or one for each {each}. Of the type of {name}.",
                types=_STORED),
    )  # fmt: skip


QLINEAR_MATMUL = Operator(
    system="onnx",
    name="QLinearMatMul",
    summary="Quantized matrix product, with numpy's matmul semantics.",
    source="ONNX operators, opset 10, 21; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2",
    versions=(10, 21),
    last_version=LAST_OPSET,
    implementations=IMPLEMENTATIONS,
    inputs=(
        Operand(name="a", description="[.., M, K], or [K].", types=_STORED),
        *_parameters("a", "row, [M] or [.., M, 1]"),
        Operand(name="b", description="[.., K, N], or [K].", types=_STORED),
        *_parameters("b", "column, [N] or [.., 1, N]"),
        Operand(name="y_scale", description="One.", types=_SCALES),
        Operand(name="y_zero_point", description="One, of the type of y.", types=_STORED),
    ),
    outputs=(Operand(name="y", description="The product.", types=_STORED),),
    deviations=(
        "8-bit floats, which opset 21 has, are refused: onnxruntime has no kernel, and the reference evaluator "
        "truncates a and b to integers and has no such output.",
        "onnxruntime supports ui8 by ui8 or i8 to ui8, and i8 by i8 to i8, and neither bf16 nor per-row parameters; "
        "other cases extend its arithmetic.",
        "The reference evaluator reads a vector of parameters of a as one per column, and parameters of any "
        "shape that numpy broadcasts; ONNX specifies one per row.",
        "A factor a_scale * b_scale / y_scale that is not finite is refused.",
    ),
    plan=_plan,
    example={
        "opset": 21,
        "inputs": {
            "a": {"type": "tensor<2x3xui8>", "values": [208, 236, 0, 3, 214, 255]},
            "a_scale": {"type": "tensor<f32>", "values": [0.0066]},
            "a_zero_point": {"type": "tensor<ui8>", "values": [113]},
            "b": {"type": "tensor<3x2xi8>", "values": [-77, 51, 26, -6, 60, 118]},
            "b_scale": {"type": "tensor<2xf32>", "values": [0.00705, 0.0125]},
            "b_zero_point": {"type": "tensor<2xi8>", "values": [0, 3]},
            "y_scale": {"type": "tensor<f32>", "values": [0.0107]},
            "y_zero_point": {"type": "tensor<ui8>", "values": [118]},
        },
    },
)
