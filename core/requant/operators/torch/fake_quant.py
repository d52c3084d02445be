"""torch.ops.quantized_decomposed.fake_quant_per_channel, forwards.

y = (clamp(RNE(x * (1/s)) + z, quant_min, quant_max) - z) * s, each step in f32. NaN stays NaN, and a zero point may be
outside of the bounds: unlike fake_quantize_per_channel_affine, nothing is converted to an integer.
"""

from __future__ import annotations

import numpy as np

from requant.description import TensorValue
from requant.errors import ParameterError, TypeFitError
from requant.operators.description import Operand, Operator, OperatorCall, Outputs, Run
from requant.operators.separate_parameters import Granularity, for_each
from requant.operators.torch.parameters import AXIS, BOUNDS, EAGER_SCALES, SOURCE, VERSIONS, ZERO_POINTS


def _plan(call: OperatorCall) -> Run:
    tensor, axis = call.inputs["input"], call.integer("axis")
    if axis >= len(tensor.shape):
        raise ParameterError(f"axis is {axis}; the input has rank {len(tensor.shape)}", pointer="/attributes/axis")
    for name in ("scales", "zero_points"):
        if call.inputs[name].shape != (tensor.shape[axis],):
            raise TypeFitError(
                f"{name} has shape {list(call.inputs[name].shape)}; dimension {axis} of the input has "
                f"{tensor.shape[axis]} indices",
                pointer=f"/inputs/{name}",
            )
    lowest, highest = call.integer("quant_min"), call.integer("quant_max")
    if not lowest <= highest:
        raise ParameterError(f"quant_min is {lowest}, and quant_max {highest}", pointer="/attributes/quant_min")
    with np.errstate(over="ignore"):
        scales = call.inputs["scales"].data.astype(np.float32)
    wrong = ~((scales > 0) & np.isfinite(scales))
    if wrong.any():
        raise ParameterError(
            "a scale is above 0 and finite in f32", index=int(np.argmax(wrong)), pointer="/inputs/scales"
        )
    points = call.inputs["zero_points"].data
    wrong = points != points.astype(np.int32)
    if wrong.any():
        raise ParameterError("a zero point is one of i32", index=int(np.argmax(wrong)), pointer="/inputs/zero_points")
    granularity = Granularity(axis)

    def run() -> Outputs:
        with np.errstate(all="ignore"):
            values = tensor.data * for_each(np.float32(1) / scales, tensor.shape, granularity)
            np.rint(values, out=values)
            zeros = for_each(points.astype(np.float32), tensor.shape, granularity)
            values += zeros
            np.clip(values, np.float32(lowest), np.float32(highest), out=values)
            values -= zeros
            values *= for_each(scales, tensor.shape, granularity)
        return {"output": TensorValue(tensor.type, values)}

    return run


FAKE_QUANT_PER_CHANNEL = Operator(
    system="torch",
    name="quantized_decomposed.fake_quant_per_channel",
    summary="Fake-quantize per channel; forward pass only.",
    source=SOURCE,
    inputs=(Operand(name="input", description="The real tensor.", types={"f32": 1}), EAGER_SCALES, ZERO_POINTS),
    outputs=(Operand(name="output", description="The real tensor.", types={"f32": 1}),),
    attributes=(AXIS, *BOUNDS),
    implementations=VERSIONS,
    plan=_plan,
    example={
        "inputs": {
            "input": {"type": "tensor<2x2xf32>", "values": [0.3, 1.0, -2.0, 100.0]},
            "scales": {"type": "tensor<2xf32>", "values": [0.5, 0.25]},
            "zero_points": {"type": "tensor<2xi32>", "values": [3, 0]},
        },
        "attributes": {"axis": 0, "quant_min": 0, "quant_max": 255},
    },
    deviations=("A zero point that int32 does not hold is an error; torch wraps it.",),
)
