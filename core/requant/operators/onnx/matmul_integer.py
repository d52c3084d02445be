"""ONNX MatMulInteger, opset 10 (https://onnx.ai/onnx/operators/onnx__MatMulInteger.html).

Y = (A - a_zero_point) x (B - b_zero_point), in int32, modulo 2^32
"""

from __future__ import annotations

from requant.description import TensorValue
from requant.formats.elements import IntegerElement
from requant.integer.accumulation import Integers
from requant.integer.matmul import Matmul
from requant.mlir.types import TensorType
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Work
from requant.operators.execution import placed
from requant.operators.onnx.matrix import Matrices, zeros_of
from requant.operators.onnx.operands import IMPLEMENTATIONS, LAST_OPSET, same_type
from requant.profiles.rule import Accumulator, SumOverflow

_BYTES = {"ui8": 10, "i8": 10}
_PLACES = {"lhs": "/inputs/A", "rhs": "/inputs/B"}


def _plan(call: OperatorCall) -> Work:
    a, b = call.inputs["A"], call.inputs["B"]
    same_type(call, "a_zero_point", "A")
    same_type(call, "b_zero_point", "B")
    matrices = Matrices.of(a, b, ("A", "B"))
    left, right = (
        Integers.of_array(operand.data.reshape(matrix.shape), zeros_of(matrix, call.optional(name), name))
        for operand, matrix, name in ((a, matrices.a, "a_zero_point"), (b, matrices.b, "b_zero_point"))
    )
    with placed(_PLACES):
        sums = Matmul.of(left, right, Accumulator.I32, SumOverflow.WRAP)
    y_type = TensorType(matrices.product_shape(sums.shape), IntegerElement(32))

    def run() -> Outputs:
        return {"Y": TensorValue(y_type, sums.run(a.data, b.data))}

    return Work(run, sums.elements, sums.cost)


MATMUL_INTEGER = Operator(
    system="onnx",
    name="MatMulInteger",
    summary="Integer matrix product with zero points, with numpy's matmul semantics, as i32.",
    source="ONNX operators, opset 10; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2",
    versions=(10,),
    last_version=LAST_OPSET,
    inputs=(
        Operand(name="A", description="[.., M, K], or [K].", types=_BYTES),
        Operand(name="B", description="[.., K, N], or [K].", types=_BYTES),
        Operand(
            name="a_zero_point",
            description="One, or one per row ([M] or [.., M, 1]), of the type of A. Default: 0.",
            types=_BYTES,
            optional=True,
        ),
        Operand(
            name="b_zero_point",
            description="One, or one per column ([N] or [.., 1, N]), of the type of B. Default: 0.",
            types=_BYTES,
            optional=True,
        ),
    ),
    outputs=(Operand(name="Y", description="The sums, modulo 2^32.", types={"i32": 10}),),
    deviations=(
        "onnxruntime has no zero points for each row of A.",
        "The reference evaluator reads a vector of zero points of A as one per column, and zero points of "
        "any shape that numpy broadcasts; ONNX specifies one per row.",
    ),
    implementations=IMPLEMENTATIONS,
    plan=_plan,
    example={
        "opset": 10,
        "inputs": {
            "A": {"type": "tensor<2x3xui8>", "values": [11, 7, 3, 10, 6, 2]},
            "B": {"type": "tensor<3x2xi8>", "values": [1, 4, 2, 5, 3, -6]},
            "a_zero_point": {"type": "tensor<ui8>", "values": [12]},
            "b_zero_point": {"type": "tensor<2xi8>", "values": [0, 1]},
        },
    },
)
