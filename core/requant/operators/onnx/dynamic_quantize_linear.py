"""ONNX DynamicQuantizeLinear, opset 11 (https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html).

    lo = min(0, min x); hi = max(0, max x); y_scale = f32(f32(hi - lo) / 255)
    y_zero_point = RNE(clamp(f32(0 - f32(lo / y_scale)), 0, 255)); y = clamp(RNE(f32(x / y_scale)) + y_zero_point)

An all-zero x has scale 1 in onnxruntime and 1/255 in the reference evaluator.

NaN is an error. The reference evaluator's scale becomes NaN. onnxruntime has no rule for it: minps and maxps return
their second operand where either is NaN, so that a NaN erases what its vector lane held before it. How many lanes there
are depends on the instruction set (four with SSE2, eight with AVX, and on Arm NaN propagates), and where a lane begins
anew on how its thread pool divides more than 128 elements.
"""

from __future__ import annotations

import numpy as np

from requant.calibration.ranges import RangeOptions, range_rule_named
from requant.convert.quantize import plan_quantize
from requant.description import Array, TensorValue
from requant.errors import PreconditionError
from requant.formats.elements import FLOATS, IntegerElement, Signedness
from requant.mlir.types import TensorType, UniformType
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Run
from requant.operators.execution import converted
from requant.operators.onnx.operands import IMPLEMENTATIONS, LAST_OPSET, PROFILES, REFERENCE
from requant.operators.separate_parameters import storage_of

_UINT8 = IntegerElement(8, Signedness.UNSIGNED)
_F32 = FLOATS["f32"]
_RULES = dict.fromkeys(PROFILES, "onnx_dynamic") | {REFERENCE: "onnx_dynamic_reference"}

_NAN = dict.fromkeys(PROFILES, "onnxruntime's scale then depends on the instruction set and the number of threads") | {
    REFERENCE: "the reference evaluator's scale becomes NaN with it",
}


def _ends(data: Array) -> tuple[Array, Array]:
    """Return the least and the largest number, as arrays of one; NaN if there is one."""
    numbers = data if data.size else np.zeros(1, np.float32)
    return numbers.min(keepdims=True), numbers.max(keepdims=True)


def _plan(call: OperatorCall) -> Run:
    x = call.inputs["x"]
    storage = storage_of(_UINT8)
    rule = range_rule_named(_RULES[call.implementation])

    def run() -> Outputs:
        with np.errstate(all="ignore"):
            lows, highs = _ends(x.data)
            if np.isnan(lows[0]):
                raise PreconditionError(
                    f"x has a NaN; {_NAN[call.implementation]}",
                    pointer="/inputs/x",
                    index=int(np.argmax(np.isnan(x.data))),
                )
            derived = rule.derive(lows, highs, rule.stored_range(storage, RangeOptions()), RangeOptions())
        scale, zero_point = float(derived.scales[0]), int(derived.zero_points[0])
        y_type = TensorType(x.shape, _UINT8)
        y = np.empty(0, np.uint8)
        if x.data.size:
            stored = UniformType(storage, _F32, scale, zero_point)
            # The reference evaluator clips in floats here: nothing wraps, as in onnxruntime.
            y = converted(plan_quantize(x.type, stored, "onnx"), x.data, "x")
        return {
            "y": TensorValue(y_type, y),
            "y_scale": TensorValue(TensorType((), _F32), np.array([scale], np.float32)),
            "y_zero_point": TensorValue(TensorType((), _UINT8), np.array([zero_point], np.uint8)),
        }

    return run


DYNAMIC_QUANTIZE_LINEAR = Operator(
    system="onnx",
    name="DynamicQuantizeLinear",
    summary="Quantize to ui8 with a scale and zero point derived from the range of x.",
    source="ONNX operators, opset 11; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2",
    versions=(11,),
    last_version=LAST_OPSET,
    implementations=IMPLEMENTATIONS,
    inputs=(Operand(name="x", description="The tensor to quantize.", types={"f32": 11}),),
    outputs=(
        Operand(name="y", description="The quantized tensor.", types={"ui8": 11}),
        Operand(name="y_scale", description="The scale, of rank 0.", types={"f32": 11}),
        Operand(name="y_zero_point", description="The zero point, of rank 0.", types={"ui8": 11}),
    ),
    deviations=(
        "NaN in x is an error. The reference evaluator's scale becomes NaN; onnxruntime's depends on the instruction "
        "set and the number of threads.",
        "An x without elements has the parameters of an all-zero one.",
    ),
    plan=_plan,
    example={
        "opset": 11,
        "inputs": {"x": {"type": "tensor<6xf32>", "values": [0, 2, -3, -2.5, 1.34, 0.5]}},
    },
)
