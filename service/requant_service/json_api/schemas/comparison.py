"""The comparison of two tensors in JSON. Its objects are flat, for clients whose language has no unions.

Elements are decimal texts, because they are integers in one comparison and floats in another, and may be NaN.
"""

from __future__ import annotations

from pydantic import Field

from requant.comparison.comparison import MAX_REPORTED, DifferenceUnit
from requant_service.http.models import Int32, Int64, ReplyModel, RequestModel
from requant_service.json_api.schemas.tensors import Tensor


class CompareRequest(RequestModel):
    """Two tensors of the same shape to compare."""

    a: Tensor = Field(description="The reference.")
    b: Tensor
    max_reported: Int32 = Field(
        default=10, ge=0, le=MAX_REPORTED, description="The maximum number of mismatches listed in `first`."
    )


class ReportedMismatch(ReplyModel):
    """A mismatch. Values are strings; non-finite floats are NaN, Infinity and -Infinity."""

    index: Int64 = Field(description="Flat row-major index.")
    position: list[Int64] = Field(description="Index along each dimension.")
    a: str = Field(description="The element of a: the stored integer or the float.")
    b: str
    real_a: str = Field(default="", description="The real value of a quantized element. Absent for others.")
    real_b: str = Field(default="", description="The same for b.")


class DifferenceBucket(ReplyModel):
    """The number of elements whose difference is between low and high, inclusive."""

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
        description="Ascending and contiguous, from the lowest to the highest non-empty bucket: single differences "
        "from -16 to 16, powers of two beyond."
    )
    undefined: Int64 = Field(description="Elements in no bucket because exactly one side is NaN.")


class ErrorMeasures(ReplyModel):
    """Error measures of the real values, in binary64. Values that are not finite are absent."""

    left_out: Int64 = Field(
        description="Elements that are NaN or infinite on either side, excluded from the error measures."
    )
    max_absolute_error: float = Field(default=0.0, description="Largest |b - a|.")
    mean_absolute_error: float = Field(default=0.0, description="Mean of |b - a|.")
    sqnr_db: float = Field(
        default=0.0,
        description="10 log10(sum a^2 / sum (b - a)^2). Absent if either sum is 0.",
    )


class ComparisonReply(ErrorMeasures):
    """How two tensors differ. Elements match if they are equal as numbers (so -0 matches 0) or both NaN."""

    equal: bool = Field(description="Whether every element matches.")
    elements: Int64
    mismatches: Int64
    bit_mismatches: Int64 = Field(
        default=0,
        description="Elements whose bits differ, including the sign of zero and the payload of NaN. Absent if the "
        "types differ.",
    )
    first: list[ReportedMismatch] = Field(description="The first mismatches, in order of index.")
    histogram: DifferenceHistogram
