"""The scale of a bias, input scale times weight scale, and its integers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from requant.calibration.bias import BIAS_RULES, BIAS_STORAGE, bias_rule_named, bias_scales, quantize_bias
from requant.calibration.finished_type import PerAxis, PerTensor
from requant.description import (
    Array,
    Choices,
    Elements,
    Kind,
    Member,
    NumbersInput,
    NumbersOutput,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Report,
    Result,
    Stored,
    TensorInput,
    TensorOutput,
    TensorValue,
)
from requant.errors import TypeFitError, UnsupportedError, default_pointer, error_side
from requant.formats.elements import FLOATS, IntegerElement
from requant.mlir.printer import print_tensor
from requant.mlir.types import TensorType
from requant.operations.parameters import BYTES_PER_RANGE, at_range, finished_type
from requant.plan.operands import bind, static_shape

_F32 = FLOATS["f32"]
# An element of f32, its integer, and what it takes to divide it.
_BYTES_PER_ELEMENT = 32


def _plan(call: OperationCall) -> PlannedWork:
    rule, weight_scales = call.options["scheme"], call.numbers["weight_scales"]
    [input_scale] = call.numbers["input_scale"].reshape(-1).tolist()
    with at_range("/weight_scales"):
        scales = bias_scales(rule, input_scale, weight_scales.reshape(-1))
    granularity = PerTensor() if scales.size == 1 else PerAxis(0, scales.size)
    zero_points = np.zeros(scales.size, np.int64)
    type_, finished = finished_type(BIAS_STORAGE, _F32, scales, zero_points, granularity)
    members = {"scheme": rule.name, **finished}
    numbers = {
        "scales": scales.reshape(weight_scales.shape),
        "zero_points": zero_points.reshape(weight_scales.shape),
    }
    cost = BYTES_PER_RANGE * scales.size
    bias = call.types.get("bias")
    if bias is None:
        result = Result(report=members, numbers=numbers)
        return PlannedWork(operands={}, run=lambda _: result, byte_count=cost, weight=cost)
    with error_side("bias"):
        if bias.element != _F32:
            raise UnsupportedError("a bias is quantized from f32")
        shape = static_shape(bias)
        if scales.size > 1 and shape != (scales.size,):
            raise TypeFitError(
                f"{scales.size} weight scales need a bias of shape {scales.size}; "
                f"a tensor of rank {len(shape)} is given"
            )
    # Where no type has the scales, the integers have the type of integers.
    output = bind(IntegerElement(32) if type_ is None else type_, shape)
    text = print_tensor(output, finished["type"]) if type_ is not None else ""

    def run(arrays: Mapping[str, Array]) -> Result:
        values = arrays["bias"]
        with at_range("/weight_scales"), default_pointer("/bias"):
            quantized = quantize_bias(rule, values, scales)
        report = {
            "elements": values.size,
            "saturated_low": quantized.saturated_low,
            "saturated_high": quantized.saturated_high,
        }
        return Result({"output": TensorValue(output, quantized.values, text)}, members | report, numbers)

    elements = int(np.prod(shape, dtype=np.int64))
    return PlannedWork(
        operands={"bias": Stored(TensorType(shape, _F32), np.dtype("<f4"))},
        run=run,
        byte_count=cost + _BYTES_PER_ELEMENT * elements,
        weight=cost,
    )


DERIVE_BIAS = Operation(
    name="derive_bias",
    path="parameters/bias",
    request_title="BiasRequest",
    title="Scale of a bias",
    group="params",
    summary="Derive the scale of a bias from the scales of input and weights, and quantize the bias to int32.",
    request="The scales of an input and of weights, and optionally the bias to quantize.",
    source="LiteRT SymmetricBiasQuantize; onnxruntime.quantization quantize_bias_static; torch QuantizeBias",
    inputs=(
        NumbersInput(name="input_scale", description="The scale of the input.", single=True, examples=(0.5,)),
        NumbersInput(
            name="weight_scales",
            description="One, or one per channel.",
            model_name="weight_scale",
            examples=([0.25, 0.125],),
        ),
        TensorInput(
            name="bias",
            description="f32: any shape with one scale, else one element per channel.",
            elements=Elements.SINGLES,
            optional=True,
        ),
    ),
    options=(
        Option(
            name="scheme",
            description="The rule, named after its system.",
            choices=Choices("BiasSchemeName", tuple(BIAS_RULES)),
            read=bias_rule_named,
        ),
    ),
    reply=(
        Member(name="scheme", kind=Kind.TEXT),
        NumbersOutput(name="scales", description="One per weight scale.", model_name="scale"),
        NumbersOutput(name="zero_points", kind=Kind.INTEGER, description="All 0.", model_name="zero_point"),
        Member(
            name="type",
            kind=Kind.TEXT,
            description="As in the response for ranges; several scales go along axis 0.",
            optional=True,
        ),
        Member(name="untyped", kind=Kind.TEXT, optional=True),
        TensorOutput(
            name="output",
            description="The bias as int32, if a bias was sent.",
            elements=Elements.INT32,
            optional=True,
            model_name="y",
        ),
        Report(
            title="BiasReport",
            description="What happened to the elements of a bias.",
            members=(Member(name="elements"), Member(name="saturated_low"), Member(name="saturated_high")),
            optional=True,
        ),
    ),
    reply_title="BiasReply",
    reply_description="Scales, zero points (all 0), the resulting type, and the quantized bias.",
    plan=_plan,
    example={
        "input_scale": 0.5,
        "weight_scales": [0.25, 0.125],
        "scheme": "litert",
        "bias": {"type": "tensor<2xf32>", "values": [1.0, -2.5]},
    },
)
