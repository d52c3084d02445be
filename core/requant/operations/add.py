"""The addition of quantized tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from requant.description import (
    Array,
    Elements,
    Operation,
    OperationCall,
    PlannedWork,
    Result,
    TensorInput,
    TensorOutput,
    TensorValue,
    Trace,
)
from requant.integer.add import AddPlan, plan_add
from requant.integer.trace import trace_addition
from requant.operations.options import PACKING, REPORT, TRACE, TRACED_REPLY, output_type, profile, used_multipliers
from requant.operations.products import BYTES_OF_SUM, BYTES_TRACED_REPLY_SUM, operands_of
from requant.profiles import PROFILES


def _plan(call: OperationCall) -> PlannedWork:
    plan = plan_add(call.types["lhs"], call.types["rhs"], call.options["output_type"], call.options["profile"])
    traced = call.options["trace"]

    def run(arrays: Mapping[str, Array]) -> Result:
        return _run(plan, arrays["lhs"], arrays["rhs"], traced=traced)

    return PlannedWork(
        operands=operands_of(plan, {"lhs": "lhs", "rhs": "rhs"}),
        run=run,
        sums=plan.elements,
        byte_count=(BYTES_TRACED_REPLY_SUM if traced else BYTES_OF_SUM) * plan.elements,
        traced=traced,
        plan=plan,
    )


def _run(plan: AddPlan, lhs: Array, rhs: Array, *, traced: bool) -> Result:
    output = np.empty(plan.elements, plan.output_dtype)
    report = plan.run(lhs, rhs, output)._asdict()
    if plan.arithmetic.scheme is not None:
        report["scheme"] = plan.arithmetic.scheme
    outputs = {"output": TensorValue(plan.output_type, output)}
    if not traced:
        return Result(outputs, report)
    trace = trace_addition(plan, lhs, rhs, output)
    stages = {stage.name: TensorValue(stage.tensor, stage.elements) for stage in trace.stages}
    return Result(outputs, report, stages=stages, records=[asdict(each) for each in trace.multipliers])


def _stage(name: str, description: str = "") -> TensorOutput:
    return TensorOutput(name=name, description=description, elements=Elements.SUMS, optional=True)


ADD = Operation(
    name="add",
    title="Add",
    group="integer",
    summary="Add quantized tensors: rescale both to a common scale, add, and rescale the sum to the output.",
    request="Two quantized tensors to add element by element, with broadcasting.",
    source="LiteRT's and XNNPACK's ADD; StableHLO's passes stablehlo-legalize-quant-to-math and "
    "stablehlo-quant-legalize-to-tosa-rescale",
    inputs=(
        TensorInput(name="lhs", description="Quantized, with storage of 2 to 16 bits."),
        TensorInput(name="rhs", description="As lhs."),
    ),
    options=(
        output_type(
            "MLIR text: a quantized type. Its storage bounds act as a fused activation.",
            "!quant.uniform<i8:f32, 0.25:-1>",
        ),
        profile("litert", lambda name: PROFILES[name].addition is not None),
        PACKING,
        TRACE,
    ),
    reply=(TensorOutput(name="output", model_name="y"), REPORT),
    reply_title="AddReply",
    reply_description=TRACED_REPLY,
    trace=Trace(
        title="AddTrace",
        description="The intermediate values of an addition, as far as the profile's arithmetic has them.",
        records=used_multipliers(
            "Those of lhs and rhs, and of the sum if it has one; empty if real numbers are added."
        ),
        stages=(
            _stage("lhs_shifted", "(a - za) * 2^20, or 2^15 for 16 bits."),
            _stage("rhs_shifted", "The same of rhs."),
            _stage("lhs_scaled", "lhs at the scale of the sum."),
            _stage("rhs_scaled", "rhs at the scale of the sum."),
            _stage("sum"),
            _stage("scaled", "The sum at the scale of the output."),
            _stage("after_zero_point", "After adding the output's zero point."),
            _stage("lhs_real", "lhs as real numbers."),
            _stage("rhs_real", "rhs as real numbers."),
            _stage("real_sum"),
            TensorOutput(name="after_clamp", description="The output."),
        ),
    ),
    plan=_plan,
    example={
        "lhs": {"type": "tensor<4x!quant.uniform<i8:f32, 0.5:-1>>", "values": [3, -5, 127, 0]},
        "rhs": {"type": "tensor<4x!quant.uniform<i8:f32, 0.25:2>>", "values": [3, 1, 127, 5]},
        "output_type": "!quant.uniform<i8:f32, 0.5:3>",
        "trace": True,
    },
)
