"""Two tensors compared: where they differ, by how many steps or ulps, and how large the error is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from requant.comparison.comparison import MAX_REPORTED, DifferenceUnit, plan_comparison
from requant.description import (
    Array,
    Choices,
    Elements,
    Kind,
    Member,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Stored,
    TensorInput,
)
from requant.operations.options import ERROR_MEASURES

# Elements are compared as real numbers.
_BYTES_PER_ELEMENT = 8


def _stated(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in members if value is not None}


def _plan(call: OperationCall) -> PlannedWork:
    comparison = plan_comparison(call.types["a"], call.types["b"])

    def run(arrays: Mapping[str, Array]) -> Result:
        report = comparison.run(arrays["a"], arrays["b"], call.options["max_reported"])
        members = asdict(report, dict_factory=_stated)
        return Result(report={"equal": report.equal, **members.pop("error"), **members})

    sides = {"a": comparison.a, "b": comparison.b}
    return PlannedWork(
        operands={name: Stored(side.tensor, side.dtype) for name, side in sides.items()},
        run=run,
        byte_count=2 * _BYTES_PER_ELEMENT * comparison.elements,
    )


_MISMATCHES = Member(
    name="first",
    description="The first mismatches, in order of index.",
    repeated=True,
    columns=("index",),
    title="ReportedMismatch",
    group_description="A mismatch. Values are strings; non-finite floats are NaN, Infinity and -Infinity.",
    members=(
        Member(name="index", description="Flat row-major index."),
        Member(name="position", kind=Kind.INTEGERS, description="Index along each dimension."),
        Member(name="a", kind=Kind.TEXT, description="The element of a: the stored integer or the float."),
        Member(name="b", kind=Kind.TEXT),
        Member(
            name="real_a",
            kind=Kind.TEXT,
            description="The real value of a quantized element. Absent for others.",
            optional=True,
        ),
        Member(name="real_b", kind=Kind.TEXT, description="The same for b.", optional=True),
    ),
)
_HISTOGRAM = Member(
    name="histogram",
    title="DifferenceHistogram",
    group_description="The differences b - a of all elements.",
    members=(
        Member(
            name="unit",
            kind=Kind.TEXT,
            description="ulps: neighbouring values of the float type, of f32 or f64 if there are two types. steps: of "
            "integers, 1; of quantized elements, stored integers if both types have the same parameters, else the real "
            "difference over the scale of a (of b if a is float), to the nearest, ties to even.",
            choices=Choices.of(DifferenceUnit),
        ),
        Member(
            name="buckets",
            description="Ascending and contiguous, from the lowest to the highest non-empty bucket: single differences "
            "from -16 to 16, powers of two beyond.",
            repeated=True,
            columns=("low", "high", "count"),
            model_name="histogram",
            title="DifferenceBucket",
            group_description="The number of elements whose difference is between low and high, inclusive.",
            members=(Member(name="low"), Member(name="high"), Member(name="count")),
        ),
        Member(name="undefined", description="Elements in no bucket because exactly one side is NaN."),
    ),
)

COMPARE = Operation(
    name="compare",
    title="Compare two tensors",
    group="ops",
    summary="Compare two tensors of the same shape.",
    request="Two tensors of the same shape to compare.",
    source="Requant",
    inputs=(
        TensorInput(name="a", description="The reference.", elements=Elements.ANY),
        TensorInput(name="b", description="The tensor to compare with it.", elements=Elements.ANY),
    ),
    options=(
        Option(
            name="max_reported",
            kind=Kind.INTEGER,
            description="The maximum number of mismatches listed in `first`.",
            default=10,
            lowest=0,
            highest=MAX_REPORTED,
        ),
    ),
    reply=(
        *ERROR_MEASURES,
        Member(name="equal", kind=Kind.BOOLEAN, description="Whether every element matches.", verdict=True),
        Member(name="elements"),
        Member(name="mismatches"),
        Member(
            name="bit_mismatches",
            description="Elements whose bits differ, including the sign of zero and the payload of NaN. Absent if the "
            "types differ.",
            optional=True,
        ),
        _MISMATCHES,
        _HISTOGRAM,
    ),
    reply_title="ComparisonReply",
    reply_description="How two tensors differ. Elements match if they are equal as numbers (so -0 matches 0) or both "
    "NaN.",
    plan=_plan,
    example={
        "a": {"type": "tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>", "values": [3, 4, 0, 127]},
        "b": {"type": "tensor<2x2x!quant.uniform<i8:f32, 0.5:3>>", "values": [3, 5, 0, 100]},
    },
)
