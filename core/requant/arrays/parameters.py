"""Scales and zero points from data, or from ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from requant.arrays.elements import Array, as_array, element_of, flat_bits
from requant.arrays.types import axis_of_rank, float_named
from requant.calibration.finished_type import Granularity, PerAxis, PerTensor, finish_type
from requant.calibration.methods.search import DEFAULT_METHOD, CalibrationRequest, plan_calibration
from requant.calibration.ranges import RangeOptions, RangeParameters, range_rule_named
from requant.errors import PreconditionError, TypeFitError
from requant.formats.elements import FloatElement
from requant.mlir import parse_storage, print_storage, print_type
from requant.mlir.types import TensorType, UniformQuantizedType


class RangeKeywords(TypedDict, total=False):
    """What a range rule can be told. Each has some of these (docs/parameters.md)."""

    symmetric: bool
    narrow: bool
    reduced: bool
    power_of_two: bool
    preserve_sparsity: bool
    minimum_real_range: float
    epsilon: float


class CalibrationKeywords(RangeKeywords, total=False):
    """What a range rule and a calibration method can be told. Each has some of these (docs/parameters.md)."""

    averaging_constant: float
    percentile: float
    magnitudes: bool
    bins: int
    quantized_bins: int
    first_bins: int
    candidates: int
    profile: str


@dataclass(frozen=True)
class Parameters:
    """Scales and zero points, 1-D: one, or one for each index of an axis or each block, in row-major order.

    scheme: the range rule. storage: with the bounds that they were made for. minimums, maximums: the ranges. left_out:
    the elements, NaN or infinite, that had no part in them.
    """

    scheme: str
    storage: str
    scales: NDArray[np.float64]
    zero_points: NDArray[np.int64]
    minimums: NDArray[np.float64]
    maximums: NDArray[np.float64]
    left_out: int
    _type: UniformQuantizedType | PreconditionError = field(repr=False, compare=False)

    @property
    def type(self) -> str:
        """The quantized type with these parameters. Raise PreconditionError where no type has one of the scales."""
        if isinstance(self._type, PreconditionError):
            raise self._type
        return print_type(self._type)


def parameters(
    x: ArrayLike | Sequence[Array],
    storage: str,
    *,
    method: str = DEFAULT_METHOD,
    scheme: str | None = None,
    axis: int | None = None,
    block_sizes: tuple[int, ...] | None = None,
    expressed: str | None = None,
    **options: Unpack[CalibrationKeywords],
) -> Parameters:
    """Find ranges in data, and derive scales and zero points from them.

    x: an array of floats; or several of one shape, such as the batches of a calibration.
    storage: such as `i8`, `u4` or `i8<-127:127>`.
    method: how ranges are found: `min_max`, `percentile`, `entropy`, `mse` and so on (docs/parameters.md).
    scheme: the rule that makes scales of ranges (docs/parameters.md). Default: that of the method's system.
    axis, block_sizes: a range for each index of an axis, or for each block. Default: one range for all. A negative axis
    counts from the last.
    expressed: the type of the real numbers. Default: that of the array.
    options: of the scheme and the method: symmetric, narrow, percentile, bins and so on.

    >>> found = parameters([-1.5, -0.25, 0.0, 0.5, 2.0], "i8", scheme="litert")
    >>> found.scales, found.zero_points
    (array([0.01372549]), array([-19]))
    >>> found.type
    '!quant.uniform<i8:f32, 0.013725490196078431:-19>'

    Raise UnknownNameError for an unknown method or scheme, UnsupportedError for an option that it has not, TypeFitError
    for an axis or blocks that the array has not, PreconditionError for data that have no range.
    """
    several = isinstance(x, list | tuple) and len(x) > 0 and all(isinstance(each, np.ndarray) for each in x)
    arrays = [as_array(each) for each in x] if several else [as_array(x)]  # type: ignore[union-attr]
    first = arrays[0]
    for index, each in enumerate(arrays):
        if (each.shape, each.dtype) != (first.shape, first.dtype):
            raise TypeFitError(
                f"the arrays must have one shape and dtype; array {index} is {each.dtype} of shape {each.shape}, and "
                f"array 0 {first.dtype} of shape {first.shape}"
            )
    tensor = TensorType(first.shape, element_of(first.dtype))
    if axis is not None:
        axis = axis_of_rank(axis, first.ndim)
    settings: dict[str, Any] = {"method": method, "scheme": scheme, "axis": axis, "block_sizes": block_sizes, **options}
    request = CalibrationRequest.of({name: value for name, value in settings.items() if value is not None})
    search = plan_calibration(
        request, tensor, parse_storage(storage), None if expressed is None else float_named(expressed)
    )
    dtype = search.element.tensor_dtype
    flat = tuple(flat_bits(each, dtype, tensor.element, "the input") for each in arrays)
    ranges, derived = search.run(flat, tuple(f"/{index}" for index in range(len(flat))))
    target = search.target
    return _parameters(
        target.rule.name,
        derived,
        (ranges.minimums, ranges.maximums),
        target.expressed,
        target.granularity,
        ranges.left_out,
    )


def parameters_from_range(
    minimum: ArrayLike,
    maximum: ArrayLike,
    storage: str,
    *,
    scheme: str,
    axis: int | None = None,
    expressed: str = "f32",
    **options: Unpack[RangeKeywords],
) -> Parameters:
    """Derive scales and zero points from ranges, by the rule `scheme` of a system (docs/parameters.md).

    minimum, maximum: numbers; or with `axis` one of each for each of its indices.

    >>> parameters_from_range(-1.0, 2.0, "i8", scheme="litert").type
    '!quant.uniform<i8:f32, 0.011764705882352941:-43>'

    Raise UnknownNameError for an unknown scheme, UnsupportedError for an option that it has not, ParameterError with
    the index of a range that is none.
    """
    minimums, maximums = (np.atleast_1d(np.asarray(end, np.float64)) for end in (minimum, maximum))
    rule = range_rule_named(scheme)
    rule.check_blocks(blocks=False)
    if axis is not None:
        axis = axis_of_rank(axis, None)
    if axis is None and minimums.size > 1:
        raise TypeFitError(f"there are {minimums.size} ranges; give their axis")
    granularity = PerTensor() if axis is None else PerAxis(axis, minimums.size)
    derived = rule.derive_all(minimums, maximums, parse_storage(storage), RangeOptions(**options))
    return _parameters(rule.name, derived, (minimums, maximums), float_named(expressed), granularity)


def _parameters(
    scheme: str,
    derived: RangeParameters,
    ranges: tuple[Array, Array],
    expressed: FloatElement,
    granularity: Granularity,
    left_out: int = 0,
) -> Parameters:
    type_: UniformQuantizedType | PreconditionError
    try:
        type_ = finish_type(derived.storage, expressed, derived.scales, derived.zero_points, granularity)
    except PreconditionError as error:
        type_ = error
    storage = print_storage(derived.storage)
    return Parameters(scheme, storage, derived.scales, derived.zero_points, *ranges, left_out, type_)
