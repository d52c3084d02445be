"""The comparison of two tensors as a model: what can be listed as tensors, the rest as parameters of the reply."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from requant.comparison.comparison import MAX_REPORTED, ComparisonReport, plan_comparison
from requant.errors import pointers_for_sides
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.parameters import Kind, Parameter, Value
from requant_service.oip.tensors import OutputTensor
from requant_service.operations.error_measures import error_measures

_INT64 = DATATYPES["INT64"]
# Elements are compared as real numbers.
_LANE_BYTES = 8
_ANY = ("FP32", *(name for name in DATATYPES if name != "FP32"))


def _parameters(report: ComparisonReport) -> dict[str, Value]:
    bits = {} if report.bit_mismatches is None else {"bit_mismatches": report.bit_mismatches}
    return {
        "equal": report.equal,
        "elements": report.elements,
        "mismatches": report.mismatches,
        **bits,
        "unit": str(report.histogram.unit),
        "undefined": report.histogram.undefined,
        **error_measures(report.error),
    }


def _plan(call: Call) -> Job:
    a, b = call.inputs["a"], call.inputs["b"]
    a_type, b_type = call.tensor_type("a", "a_type"), call.tensor_type("b", "b_type")
    with pointers_for_sides(a=a.pointer, b=b.pointer):
        planned = plan_comparison(a_type, b_type)
    kept_a, kept_b = a.kept_as(a_type.element, planned.a.dtype), b.kept_as(b_type.element, planned.b.dtype)
    most = call.integer("max_reported")

    def run() -> Answer:
        report = planned.run(kept_a, kept_b, most)
        first = np.array([mismatch.index for mismatch in report.first], _INT64.dtype)
        buckets = [tuple(asdict(bucket).values()) for bucket in report.histogram.buckets]
        histogram = np.array(buckets, _INT64.dtype).reshape(-1)
        outputs = (
            OutputTensor("first", _INT64, first.shape, first, "i64"),
            OutputTensor("histogram", _INT64, (len(buckets), 3), histogram, "i64"),
        )
        return Answer(outputs, _parameters(report))

    return Job(run, _LANE_BYTES * (kept_a.size + kept_b.size))


COMPARE = Model(
    name="compare",
    versions=("1",),
    description="Compare two tensors of the same shape. Elements match if they are equal as numbers or both NaN.",
    inputs=(
        Slot(name="a", description="The reference.", datatypes=_ANY),
        Slot(name="b", description="The tensor to compare with it.", datatypes=_ANY),
    ),
    outputs=(
        Slot(name="first", description="Flat row-major indices of the first mismatches.", datatypes=("INT64",)),
        Slot(
            name="histogram",
            description="Rows of low, high and count: the number of elements whose difference is between low and "
            "high, inclusive.",
            datatypes=("INT64",),
        ),
    ),
    parameters=(
        Parameter(name="a_type", description="MLIR text: the type of a. Default: its datatype.", optional=True),
        Parameter(name="b_type", description="MLIR text: the type of b. Default: its datatype.", optional=True),
        Parameter(
            name="max_reported",
            kind=Kind.INTEGER,
            description="The maximum number of mismatches listed in `first`.",
            default=10,
            highest=MAX_REPORTED,
        ),
    ),
    plan=_plan,
)
