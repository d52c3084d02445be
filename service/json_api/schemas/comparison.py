"""The comparison of two tensors in JSON. Its objects are flat, for clients whose language has no unions.

Elements are decimal texts, because they are integers in one comparison and floats in another, and may be NaN.
"""

from __future__ import annotations

from pydantic import Field

from core.compare.comparison import MOST_REPORTED
from core.compare.histogram import DifferenceUnit
from service.http.models import Int32, Int64, ReplyModel, RequestModel
from service.json_api.schemas.tensors import Tensor


class CompareRequest(RequestModel):
    """Two tensors of one shape, to be compared."""

    a: Tensor = Field(description="The reference.")
    b: Tensor
    max_reported: Int32 = Field(
        default=10, ge=0, le=MOST_REPORTED, description="How many of the mismatches are listed in first."
    )


class ReportedMismatch(ReplyModel):
    """An element that differs. Its values are texts; floats that are not finite are NaN, Infinity and -Infinity."""

    index: Int64 = Field(description="Flat row-major index.")
    position: list[Int64] = Field(description="Index along each dimension.")
    a: str = Field(description="The element of a: the stored integer, or the value of a float.")
    b: str
    real_a: str = Field(
        default="", description="The real number that a quantized element stands for. Absent of others."
    )
    real_b: str = Field(default="", description="The same for b.")


class DifferenceBucket(ReplyModel):
    """How many elements differ by low to high, both included."""

    low: Int64
    high: Int64
    count: Int64


class DifferenceHistogram(ReplyModel):
    """The differences b - a of all elements."""

    unit: DifferenceUnit = Field(
        description="ulps: neighbouring values of the float type, of f32 or f64 if there are two types. steps: of "
        "integers, 1; of quantized elements, stored integers if both types have the same parameters, else the real "
        "difference over the scale of a (of b if a is float), to the nearest, ties to even."
    )
    buckets: list[DifferenceBucket] = Field(
        description="Ascending, without gaps, from the lowest to the highest that is not empty: -16 to 16 one by one, "
        "and beyond by powers of two."
    )
    undefined: Int64 = Field(description="Elements in no bucket: one of them is NaN, the other is not.")


class ErrorMeasures(ReplyModel):
    """How large the error is, as real numbers in binary64. What is not a finite number is absent."""

    left_out: Int64 = Field(description="Elements that are NaN or infinite on one side; they are not measured.")
    max_absolute_error: float = Field(default=0.0, description="Largest |b - a|.")
    mean_absolute_error: float = Field(default=0.0, description="Mean of |b - a|.")
    sqnr_db: float = Field(
        default=0.0,
        description="10 log10(sum a^2 / sum (b - a)^2). Absent where there is no error, or nothing but error.",
    )


class ComparisonReply(ErrorMeasures):
    """How two tensors differ. Elements match when they are equal as numbers, so -0 matches 0, or are both NaN."""

    equal: bool = Field(description="Whether every element matches.")
    elements: Int64
    mismatches: Int64
    bit_mismatches: Int64 = Field(
        default=0,
        description="Elements whose bits differ, the sign of zero and the payload of NaN too. Absent for two types.",
    )
    first: list[ReportedMismatch] = Field(description="The first mismatches, in order of index.")
    histogram: DifferenceHistogram
