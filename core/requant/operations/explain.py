"""The conversions with every step of the arithmetic of each element, in exact numbers from the rules of the profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from math import prod
from typing import Any

from requant import profiles
from requant.convert.explain.explanation import (
    ElementExplanation,
    Explanation,
    Saturation,
    Step,
    StepKind,
)
from requant.convert.explain.working import float_text
from requant.description import (
    Array,
    Choices,
    Kind,
    Member,
    Operation,
    OperationCall,
    PlannedWork,
    Result,
    Stored,
)
from requant.errors import LimitError, error_side
from requant.formats.elements import FloatElement
from requant.mlir.types import ElementType
from requant.operations.conversions import CONVERSIONS, ConversionReply
from requant.operations.derived_scales import (
    CALIBRATION,
    check_no_calibration,
    leaves_scales_open,
    plan_with_derived_scales,
)
from requant.plan.operands import static_shape

BYTES_PER_EXPLAINED_ELEMENT = 16 << 10
"""About how much memory the steps of an element and their JSON take."""
CHARACTERS_PER_ELEMENT = 256
"""The cost of explaining an element, in characters of text that cost the same."""


def explanation_members(explanation: Explanation) -> dict[str, Any]:
    """Return the members of an explanation in the replies of all protocols."""
    element = explanation.plan.output_type.element
    elements = [element_members(each, element) for each in explanation.elements]
    return {"formula": list(explanation.formula), "elements": elements}


def element_members(explained: ElementExplanation, element: ElementType) -> dict[str, Any]:
    """Return the members of one element: its input, its steps and its result."""
    result = str(explained.result)
    if isinstance(explained.result, float) and isinstance(element, FloatElement):
        result = float_text(explained.result, element)
    members: dict[str, Any] = {
        "input": explained.input,
        "parameter": explained.parameter,
        "steps": [_step_members(each) for each in explained.steps],
        "result": result,
    }
    if explained.saturated is not None:
        members["saturated"] = str(explained.saturated)
    return members


def _step_members(step: Step) -> dict[str, Any]:
    """Return the members of a step, without those that do not apply."""
    members = {each.name: getattr(step, each.name) for each in fields(step)}
    return {name: value for name, value in members.items() if value is not None and value is not False}


STEPS = Member(
    name="steps",
    repeated=True,
    title="ExplainedStep",
    group_description="One operation of the arithmetic, `symbol` = `formula`.",
    members=(
        Member(name="step", kind=Kind.TEXT, description="What is done.", choices=Choices.of(StepKind)),
        Member(name="symbol", kind=Kind.TEXT, description="The name of the result in later formulas.", examples=("v",)),
        Member(name="formula", kind=Kind.TEXT, examples=("x / s",)),
        Member(
            name="inserted",
            kind=Kind.TEXT,
            description="The formula with the numbers of this element.",
            examples=("0.25 / 0.5",),
        ),
        Member(
            name="value",
            kind=Kind.TEXT,
            description="The result: an integer, or the shortest decimal number that reads back in `precision`, for "
            "bf16 and small floats in f32; all digits of a whole number.",
            examples=("0.5",),
        ),
        Member(
            name="precision",
            kind=Kind.TEXT,
            description="What the result is rounded to: f16, bf16, f32, f64 or a small float; i32 wraps; integer has "
            "any size.",
        ),
        Member(name="bits", kind=Kind.TEXT, description="The bits of a float, in hexadecimal.", optional=True),
        Member(
            name="unrounded",
            kind=Kind.TEXT,
            description="The exact result, if it was rounded or wrapped: all digits up to 30, else the first 20 and an "
            "ellipsis.",
            optional=True,
        ),
        Member(
            name="tie",
            kind=Kind.BOOLEAN,
            description="True if the exact result lies halfway between two numbers.",
            optional=True,
        ),
    ),
)
# Numbers are decimal texts, because they are integers in one step and floats in another, and may be NaN.
EXPLANATION = (
    Member(
        name="formula",
        kind=Kind.TEXTS,
        description="The steps of an ordinary element.",
        examples=(("s = f32(scale)",),),
    ),
    Member(
        name="elements",
        repeated=True,
        title="ExplainedElement",
        group_description="The steps from an element to its result.",
        members=(
            Member(name="input", kind=Kind.TEXT),
            Member(
                name="parameter",
                description="Index of the scale and zero point in the type, row-major for blocks.",
                bits=32,
            ),
            STEPS,
            Member(name="result", kind=Kind.TEXT, description="The element of `output`."),
            Member(
                name="saturated",
                kind=Kind.TEXT,
                description="Present if the element saturated.",
                optional=True,
                choices=Choices.of(Saturation),
            ),
        ),
    ),
)
"""What the reply of a conversion has besides, if it is explained."""


def _planned(conversion: profiles.Operation, call: OperationCall) -> PlannedWork:
    tensor = call.types["input"]
    if conversion is profiles.Operation.QUANTIZE:
        if leaves_scales_open(call.options["output_type"]):
            derived = plan_with_derived_scales(call, partial(_planned, conversion))
            return _of_steps(derived, prod(static_shape(tensor)), call)
        check_no_calibration(call.options[CALIBRATION.name])
    make = CONVERSIONS[conversion].explainer
    assert make is not None
    explainer = make(call)
    plan = explainer.plan
    reply = ConversionReply(conversion, call, plan)

    def run(arrays: Mapping[str, Array]) -> Result:
        explanation = explainer.run(arrays["input"])
        result = reply.result(arrays["input"], explanation.output, explanation.report)
        return replace(result, members=explanation_members(explanation))

    operands = {"input": Stored(plan.input_type, plan.input_dtype)}
    work = PlannedWork(operands=operands, run=run, byte_count=0, conversion=reply.conversion)
    return _of_steps(work, plan.elements, call)


def _of_steps(work: PlannedWork, elements: int, call: OperationCall) -> PlannedWork:
    """Return the work with what it costs to explain so many elements. Raise LimitError for too many."""
    limit = call.limits.explained
    if elements > limit:
        with error_side("input"):
            raise LimitError(f"the tensor has {elements} elements; at most {limit} are explained", limit=limit)
    byte_count = work.byte_count + BYTES_PER_EXPLAINED_ELEMENT * elements
    return replace(work, byte_count=byte_count, characters=CHARACTERS_PER_ELEMENT * elements)


def _explained(
    conversion: profiles.Operation, summary: str, route_summary: str, title: str, reply: str, example: dict[str, Any]
) -> Operation:
    described = CONVERSIONS[conversion]
    return replace(
        described,
        name=f"explain_{described.name}",
        path=f"explain/{described.name}",
        title=f"Explain: {described.name}",
        group="explain",
        summary=summary,
        route_summary=route_summary,
        request_title=f"{described.title}Request",
        reply=(*described.reply, *EXPLANATION),
        reply_title=title,
        reply_description=reply,
        plan=partial(_planned, conversion),
        example=example,
    )


EXPLANATIONS: Mapping[profiles.Operation, Operation] = {
    profiles.Operation.QUANTIZE: _explained(
        profiles.Operation.QUANTIZE,
        "Quantize a tensor, and return every arithmetic step of each element.",
        "Quantize up to 256 elements and return every arithmetic step of each.\n\n"
        "The steps are computed in exact arithmetic from the rules of the profile, and checked against the conversion "
        "itself.",
        "ExplainedQuantization",
        "The quantized tensor, a report, and the steps of each element.",
        {
            "input": {"type": "tensor<3xf32>", "values": [0.25, 1.25, 70]},
            "output_type": "!quant.uniform<i8:f32, 0.5:3>",
            "profile": "onnx",
        },
    ),
    profiles.Operation.DEQUANTIZE: _explained(
        profiles.Operation.DEQUANTIZE,
        "Dequantize a tensor, and return every arithmetic step of each element.",
        "Dequantize up to 256 elements and return every arithmetic step of each.",
        "ExplainedDequantization",
        "The dequantized tensor, a report, and the steps of each element.",
        {"input": {"type": "tensor<3x!quant.uniform<i8:f32, 0.1:3>>", "values": [3, 4, -128]}},
    ),
    profiles.Operation.REQUANTIZE: _explained(
        profiles.Operation.REQUANTIZE,
        "Requantize a tensor, and return every arithmetic step of each element.",
        "Requantize up to 256 elements and return every arithmetic step of each.\n\n"
        "The steps are those of the scheme: the factor, its multiplier and shift, and every intermediate value.",
        "ExplainedRequantization",
        "The requantized tensor, a report, the multipliers, and the steps of each element.",
        {
            "input": {"type": "tensor<3x!quant.uniform<i32:f32, 0.001>>", "values": [875, -875, 100000]},
            "output_type": "!quant.uniform<i8:f32, 0.25:-1>",
            "scheme": "arm_vector",
        },
    ),
}
