"""Two arrays compared: where they differ, by how many steps or ulps, and how large the error is."""

from __future__ import annotations

from numpy.typing import ArrayLike

from requant.arrays.elements import Array, as_array, as_stored, element_of, flat_bits
from requant.arrays.types import read_type
from requant.comparison.comparison import ComparisonReport, plan_comparison
from requant.mlir.types import TensorType, Type
from requant.plan.operands import bind


def compare(
    a: ArrayLike,
    b: ArrayLike,
    a_type: str | Type | None = None,
    b_type: str | Type | None = None,
    *,
    max_reported: int = 10,
) -> ComparisonReport:
    """Return how `b` differs from `a`, the reference. Both have one shape.

    a_type, b_type: the quantized types of stored numbers. Default: plain integers or floats, as the arrays are; for
    `b_type` that of `a`, if `b` has the dtype of `a`.
    max_reported: how many mismatches `first` lists, 0 to 1000.

    The report has `equal`, `elements`, `mismatches`, `bit_mismatches` (None for two types), `first` (index, position
    and both elements), `histogram` (of the differences, in steps or ulps) and `error` (largest and mean absolute
    error, signal-to-noise ratio).

    >>> found = compare([3, 4, 0, 127], [3, 5, 0, 100], "!quant.uniform<i8:f32, 0.5:3>")
    >>> found.mismatches, found.error.max_absolute_error
    (2, 13.5)
    >>> [(each.index, each.a, each.b) for each in found.first]
    [(1, '4', '5'), (3, '127', '100')]

    Raise TypeTextError for a text that is no type, TypeFitError for shapes or types that do not fit, UnsupportedError
    for two kinds of numbers that have no common steps, TensorDataError for a number that its type does not hold.
    """
    first = as_array(a) if a_type is None else as_stored(a, typed=True)
    second = as_array(b) if b_type is None and a_type is None else as_stored(b, typed=True)
    if b_type is None and first.dtype == second.dtype:
        b_type = a_type
    planned = plan_comparison(_bound(first, a_type), _bound(second, b_type))
    return planned.run(
        flat_bits(first, planned.a.dtype, planned.a.tensor.element, "a"),
        flat_bits(second, planned.b.dtype, planned.b.tensor.element, "b"),
        max_reported,
    )


def _bound(array: Array, type_: str | Type | None) -> TensorType:
    if type_ is None:
        return TensorType(array.shape, element_of(array.dtype))
    return bind(read_type(type_), array.shape)
