"""Fake quantization: f32 to the nearest step of a nudged range, and back, in one call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from requant.calibration.fake_quantize import FAKE_QUANTIZE_SCHEMES, plan_fake_quantize
from requant.description import (
    Array,
    Choices,
    Chooses,
    Elements,
    Kind,
    Member,
    NumbersInput,
    NumbersOutput,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Stored,
    TensorInput,
    TensorOutput,
    TensorValue,
)
from requant.errors import ParameterError, UnknownNameError, default_pointer, error_side
from requant.operations.parameters import BYTES_PER_RANGE, at_range, axis_option

_DEFAULT_SCHEME = "tf_fake_quant"


def _plan(call: OperationCall) -> PlannedWork:
    minimums, maximums = (call.numbers[name].reshape(-1) for name in ("minimums", "maximums"))
    axis = call.options["axis"]
    with (
        error_side("input"),
        default_pointer("/minimums", ParameterError),
        default_pointer("/scheme", UnknownNameError),
        at_range("/minimums"),
    ):
        plan = plan_fake_quantize(
            call.types["input"],
            minimums,
            maximums,
            num_bits=call.options["num_bits"],
            narrow_range=call.options["narrow_range"],
            scheme=call.options["scheme"],
            axis=axis,
        )
    ranges, shape = plan.ranges, () if axis is None else (plan.ranges.scales.size,)
    assert ranges.nudged_minimums is not None
    assert ranges.nudged_maximums is not None
    numbers = {
        "scales": ranges.scales.reshape(shape),
        "nudged_minimums": ranges.nudged_minimums.reshape(shape),
        "nudged_maximums": ranges.nudged_maximums.reshape(shape),
    }

    def run(arrays: Mapping[str, Array]) -> Result:
        target = np.empty(plan.elements, np.float32)
        plan.run(arrays["input"], target)
        members = {"scheme": call.options["scheme"], "elements": plan.elements}
        return Result({"output": TensorValue(plan.type, target)}, members, numbers)

    cost = BYTES_PER_RANGE * minimums.size
    return PlannedWork(
        operands={"input": Stored(plan.type, np.dtype("<f4"))},
        run=run,
        byte_count=4 * plan.elements + cost,
        weight=cost,
        plan=plan,
    )


FAKE_QUANTIZE = Operation(
    name="fake_quantize",
    title="Fake-quantize",
    group="ops",
    summary="Fake-quantize a tensor: round each element to the nearest step of a nudged range.",
    request="An f32 tensor and its range, or one range per index of its last axis.",
    source="TensorFlow fake_quant_ops_functor.h; LiteRT FakeQuantizeArray",
    inputs=(
        TensorInput(name="input", description="The real tensor.", elements=Elements.SINGLES, model_name="x"),
        NumbersInput(
            name="minimums",
            description="The lower end of the range: one, or one per index of the axis.",
            model_name="minimum",
            examples=([-1.0],),
        ),
        NumbersInput(name="maximums", description="One per minimum.", model_name="maximum", examples=([1.0],)),
    ),
    options=(
        Option(
            name="num_bits",
            kind=Kind.INTEGER,
            description="The bit width of the quantized values.",
            default=8,
            lowest=2,
            highest=16,
        ),
        Option(
            name="narrow_range",
            kind=Kind.BOOLEAN,
            description="Do not use the lowest quantized value, so that the range is symmetric.",
            default=False,
        ),
        Option(
            name="scheme",
            description=f"Default: {_DEFAULT_SCHEME}.",
            default=_DEFAULT_SCHEME,
            choices=Choices("FakeQuantizeSchemeName", tuple(FAKE_QUANTIZE_SCHEMES)),
            chooses=Chooses.RULES,
        ),
        axis_option("The last axis, if there are several ranges."),
    ),
    reply=(
        TensorOutput(
            name="output", description="The fake-quantized tensor.", elements=Elements.SINGLES, model_name="y"
        ),
        NumbersOutput(name="scales", description="One per range.", model_name="scale"),
        NumbersOutput(name="nudged_minimums", description="The effective values.", model_name="nudged_minimum"),
        NumbersOutput(name="nudged_maximums", description="The effective values.", model_name="nudged_maximum"),
        Member(name="scheme", kind=Kind.TEXT, in_json=False),
        Member(name="elements", in_json=False),
    ),
    reply_title="FakeQuantizeReply",
    reply_description="The fake-quantized tensor, and the nudged ranges that were used.",
    plan=_plan,
    example={
        "input": {"type": "tensor<4xf32>", "values": [-0.5, 0.1, 0.2, 3.0]},
        "minimums": [-1.0],
        "maximums": [1.0],
    },
)
