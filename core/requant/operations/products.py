"""Matrix products and convolutions of quantized tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from requant.description import (
    Array,
    Choices,
    Chooses,
    Elements,
    Kind,
    Member,
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
    Trace,
)
from requant.integer.add import AddPlan
from requant.integer.conv2d import plan_conv2d
from requant.integer.matmul import plan_matmul
from requant.integer.product import ProductPlan
from requant.integer.trace import STAGES_OF_SUMS, trace_product
from requant.integer.window import Layout, Padding, WeightsLayout, Window
from requant.operations.options import (
    COUNTS,
    PACKING,
    TRACE,
    TRACED_REPLY,
    output_type,
    profile,
    used_multipliers,
)
from requant.profiles import PROFILES
from requant.profiles.rule import Accumulator, SumOverflow
from requant.schemes import SCHEMES, scheme_named

# Bytes for an element of the output: its sum, the steps from there, the stored integer, and base64 of that; and with
# every stage, of up to 8 bytes, and its base64.
BYTES_OF_SUM = 24
BYTES_TRACED_REPLY_SUM = 256


def operands_of(plan: ProductPlan | AddPlan, sides: Mapping[str, str]) -> dict[str, Stored]:
    """Return how a plan takes its operands. `sides`: what it calls each."""
    stored = {}
    for name, side in sides.items():
        type_, integers = plan.operand(side)
        stored[name] = Stored(type_, integers.dtype)
    return stored


def _plan_product(
    planner: Callable[..., ProductPlan], sides: Mapping[str, str], call: OperationCall, **more: Any
) -> PlannedWork:
    """Plan a product. `sides`: what the planner calls each input."""
    options, given = call.options, {name: side for name, side in sides.items() if name in call.types}
    scheme = options["scheme"]
    plan = planner(
        **{side: call.types[name] for name, side in given.items()},
        output=options["output_type"],
        profile=options["profile"],
        scheme=None if scheme is None else scheme.name,
        accumulator=options["accumulator"],
        overflow=options["overflow"],
        **more,
    )
    traced = options["trace"]

    def run(arrays: Mapping[str, Array]) -> Result:
        return _run(plan, *(arrays.get(name) for name in sides), traced=traced)

    return PlannedWork(
        operands=operands_of(plan, given),
        run=run,
        sums=plan.elements,
        products=plan.accumulation.cost * (1 + STAGES_OF_SUMS if traced else 1),
        byte_count=(BYTES_TRACED_REPLY_SUM if traced else BYTES_OF_SUM) * plan.elements,
        traced=traced,
        plan=plan,
    )


def _run(plan: ProductPlan, lhs: Array | None, rhs: Array | None, bias: Array | None, *, traced: bool) -> Result:
    assert lhs is not None
    assert rhs is not None
    output = np.empty(plan.elements, plan.output_dtype)
    report = plan.run(lhs, rhs, bias, output)._asdict()
    if plan.stage is not None and plan.stage.scheme is not None:
        report["scheme"] = plan.stage.scheme.name
    report |= {"accumulator": plan.accumulation.accumulator, "overflow": plan.accumulation.overflow}
    outputs = {"output": TensorValue(plan.output_type, output)}
    if not traced:
        return Result(outputs, report)
    trace = trace_product(plan, lhs, rhs, bias, output)
    stages = {stage.name: TensorValue(stage.tensor, stage.elements) for stage in trace.stages}
    return Result(outputs, report, stages=stages, records=[asdict(each) for each in trace.multipliers])


_BIAS = TensorInput(
    name="bias",
    description="One number per column, added to its sums: plain integers at the scale of the sums, or quantized with "
    "zero point 0 and rescaled if the scales differ.",
    optional=True,
    packable=False,
)
_OUTPUT_TYPE = output_type(
    "MLIR text: a quantized type, whose storage bounds act as a fused activation, or i32 or i64 for the unscaled sums. "
    "A bare element type takes its shape from the operation.",
    "!quant.uniform<i8:f32, 0.25:-1>",
    "i32",
)
_OPTIONS = (
    Option(
        name="scheme",
        description="Replaces the profile's scheme.",
        optional=True,
        choices=Choices("SchemeName", tuple(SCHEMES)),
        chooses=Chooses.RULES,
        read=scheme_named,
    ),
    Option(
        name="accumulator",
        description="The accumulator type of the products. Default: the type of a plain integer output; i64 with a "
        "plain 64-bit bias; without a bias, i64 for operands of more than 8 bits, except for a matmul without batch "
        "dimensions in litert_xnnpack; else i32.",
        optional=True,
        choices=Choices.of(Accumulator),
        chooses=Chooses.PART,
    ),
    Option(
        name="overflow",
        description="What to do if a sum, including the bias, overflows i32. Default: as in the profile's system.",
        optional=True,
        choices=Choices.of(SumOverflow),
        chooses=Chooses.PART,
    ),
    PACKING,
    TRACE,
)
_OUTPUT = TensorOutput(name="output", model_name="y")
_REPORT = Report(
    title="IntegerReport",
    description="Counts of special elements, and how the result was computed.",
    members=(
        *COUNTS,
        Member(name="accumulator", kind=Kind.TEXT, choices=Choices.of(Accumulator)),
        Member(name="overflow", kind=Kind.TEXT, choices=Choices.of(SumOverflow)),
    ),
)


def _stage(name: str, description: str, *, optional: bool = False) -> TensorOutput:
    return TensorOutput(name=name, description=description, elements=Elements.SUMS, optional=optional)


_TRACE = Trace(
    title="ProductTrace",
    description="The intermediate values of a product, each in the order of the output; sums as held in the "
    "accumulator.",
    records=used_multipliers("One, or one per channel, in the scheme's convention; empty for a plain output."),
    stages=(
        _stage("accumulator", "Sums of products of stored numbers."),
        _stage("lhs_zero_point_correction", "-za * sum b."),
        _stage("rhs_zero_point_correction", "-zb * sum a."),
        _stage("zero_points_correction", "K * za * zb, with K products per sum."),
        _stage("corrected", "The sum of these four: sum (a - za) * (b - zb)."),
        _stage("bias", "The bias at the scale of the sums.", optional=True),
        _stage("biased", "The sums plus the bias.", optional=True),
        _stage(
            "scaled",
            "Multiplied and shifted, as i32; an unrounded float if the scheme adds the zero point before rounding.",
            optional=True,
        ),
        _stage("after_zero_point", "Rounded, plus the output's zero point, clamped to i32.", optional=True),
        TensorOutput(name="after_clamp", description="The output."),
    ),
)

MATMUL = Operation(
    name="matmul",
    title="Matmul",
    group="integer",
    summary="Multiply quantized matrices: accumulate, correct for zero points, add a bias, scale, add a zero point, "
    "clamp.",
    request="A matrix product, [.., M, K] by [.., K, N]. Batch dimensions are broadcast.",
    source="ONNX MatMulInteger and QLinearMatMul; LiteRT FULLY_CONNECTED and BATCH_MATMUL",
    inputs=(
        TensorInput(name="lhs", description="Quantized, or plain integers (zero point 0); storage of 2 to 16 bits."),
        TensorInput(name="rhs", description="As lhs. Parameters may go along any dimension but K, such as N."),
        _BIAS,
    ),
    options=(_OUTPUT_TYPE, profile("litert", lambda name: "matmul" in PROFILES[name].products), *_OPTIONS),
    reply=(_OUTPUT, _REPORT),
    reply_title="ProductReply",
    reply_description=TRACED_REPLY,
    trace=_TRACE,
    plan=lambda call: _plan_product(plan_matmul, {"lhs": "lhs", "rhs": "rhs", "bias": "bias"}, call),
    example={
        "lhs": {"type": "tensor<2x3x!quant.uniform<i8:f32, 0.5:-1>>", "values": [1, 2, 3, -4, 5, -6]},
        "rhs": {
            "type": "tensor<3x2x!quant.uniform<i8<-127:127>:f32:1, {0.25, 0.125}>>",
            "values": [10, -20, 30, 40, -50, 60],
        },
        "bias": {"type": "tensor<2x!quant.uniform<i32:f32:0, {0.125, 0.0625}>>", "values": [100, -100]},
        "output_type": "!quant.uniform<i8:f32, 0.5:3>",
        "trace": True,
    },
)


def _plan_conv2d(call: OperationCall) -> PlannedWork:
    options = call.options
    layout = options["layout"]
    default = WeightsLayout.OHWI if layout is Layout.NHWC else WeightsLayout.OIHW
    window = Window(
        layout=layout,
        weights_layout=options["weights_layout"] or default,
        strides=options["strides"] or (1, 1),
        dilations=options["dilations"] or (1, 1),
        padding=options["padding"],
        pads=options["pads"] or (0, 0, 0, 0),
        groups=options["groups"],
    )
    sides = {"input": "lhs", "weights": "rhs", "bias": "bias"}
    return _plan_product(plan_conv2d, sides, call, window=window)


def _pair(name: str) -> Option:
    return Option(
        name=name,
        kind=Kind.INTEGERS,
        description="Vertical and horizontal. Default: 1, 1.",
        optional=True,
        lowest=1,
        highest=2**31 - 1,
        length=2,
    )


CONV2D = Operation(
    name="conv2d",
    title="Conv2d",
    group="integer",
    summary="Convolve a quantized input with quantized weights. The stages are those of matmul.",
    request="A 2-D convolution. Depthwise: as many groups as input channels.",
    source="ONNX ConvInteger and QLinearConv; LiteRT CONV_2D and DEPTHWISE_CONV_2D",
    inputs=(
        TensorInput(
            name="input",
            description="Quantized per tensor, or plain integers; storage of 2 to 16 bits.",
            side="lhs",
            model_name="x",
        ),
        TensorInput(name="weights", description="Like the input, or quantized along the output channels.", side="rhs"),
        _BIAS,
    ),
    options=(
        _OUTPUT_TYPE,
        Option(
            name="layout",
            description="The dimensions of input and output.",
            default=Layout.NHWC,
            choices=Choices.of(Layout),
        ),
        Option(
            name="weights_layout",
            description="The dimensions of the weights; I is the input channels of a group. Default: OHWI with NHWC, "
            "OIHW with NCHW.",
            optional=True,
            choices=Choices.of(WeightsLayout),
        ),
        _pair("strides"),
        _pair("dilations"),
        Option(
            name="padding",
            description="How the input is padded, with its zero point. same_upper is TensorFlow's SAME.",
            default=Padding.EXPLICIT,
            choices=Choices.of(Padding),
        ),
        Option(
            name="pads",
            kind=Kind.INTEGERS,
            description="Top, left, bottom, right, with explicit padding. Default: none.",
            optional=True,
            lowest=0,
            highest=2**31 - 1,
            length=4,
        ),
        Option(
            name="groups",
            kind=Kind.INTEGER,
            description="The number of groups.",
            default=1,
            lowest=1,
            highest=2**31 - 1,
        ),
        profile("litert", lambda name: "conv2d" in PROFILES[name].products),
        *_OPTIONS,
    ),
    reply=(_OUTPUT, _REPORT),
    reply_title="ProductReply",
    reply_description=TRACED_REPLY,
    trace=_TRACE,
    plan=_plan_conv2d,
    example={
        "input": {
            "type": "tensor<1x3x3x1x!quant.uniform<i8:f32, 0.5:-1>>",
            "values": [0, 1, 2, 3, 4, 5, 6, 7, 8],
        },
        "weights": {"type": "tensor<1x2x2x1x!quant.uniform<i8<-127:127>:f32, 0.25>>", "values": [1, 2, -3, 4]},
        "bias": {"type": "tensor<1xi32>", "values": [10]},
        "output_type": "!quant.uniform<i8:f32, 0.5:3>",
        "padding": "same_upper",
        "trace": True,
    },
)
