"""Scales and zero points from data: the options of a request, checked against the type of the tensors, and the search.

Errors point at the field at fault by its name in a request to `/v1/parameters/tensor`, such as `/axis` or `/bins`, or
at a tensor by its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor
from requant.calibration.methods import (
    CalibratedRanges,
    CalibrationMethod,
    CalibrationOptions,
    Observed,
    Target,
    blocks_of,
    calibration_method_named,
)
from requant.calibration.ranges import RangeOptions, RangeParameters, range_rule_named
from requant.errors import (
    InvalidRequestError,
    LimitError,
    ParameterError,
    PreconditionError,
    TypeFitError,
    UnknownNameError,
    UnsupportedError,
    default_pointer,
    pointers_for_sides,
)
from requant.formats.elements import FloatElement
from requant.mlir.lexer import MAXIMUM_LIST_LENGTH
from requant.mlir.types import StorageType, TensorType
from requant.mlir.verifier import block_fault
from requant.plan.float_arrays import widen
from requant.plan.operands import float_element, static_shape

Array = NDArray[Any]

DEFAULT_METHOD = "min_max"

_RANGE_OPTIONS = frozenset(field.name for field in fields(RangeOptions))
_METHOD_OPTIONS = frozenset(field.name for field in fields(CalibrationOptions))
_wrong = InvalidRequestError.of_field


class GranularityName(StrEnum):
    """The granularity of the ranges."""

    PER_TENSOR = "per_tensor"
    PER_AXIS = "per_axis"
    SUB_CHANNEL = "sub_channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """The options of a calibration.

    Without `scheme` it is that of the method's system; without `granularity`, `axis` and `block_sizes` say what it is.
    """

    method: str = DEFAULT_METHOD
    scheme: str | None = None
    granularity: GranularityName | None = None
    axis: int | None = None
    block_sizes: tuple[int, ...] | None = None
    range_options: RangeOptions = field(default_factory=RangeOptions)
    options: CalibrationOptions = field(default_factory=CalibrationOptions)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> CalibrationRequest:
        """Return the request with these fields, by their names."""
        own = {name: arguments[name] for name in ("method", "scheme", "granularity", "axis") if name in arguments}
        if "block_sizes" in arguments:
            own["block_sizes"] = tuple(arguments["block_sizes"])
        return cls(
            **own,
            range_options=RangeOptions(**{name: arguments[name] for name in _RANGE_OPTIONS & arguments.keys()}),
            options=CalibrationOptions(**{name: arguments[name] for name in _METHOD_OPTIONS & arguments.keys()}),
        )


class Calibrated(NamedTuple):
    """The calibrated ranges, and their scales and zero points."""

    ranges: CalibratedRanges
    parameters: RangeParameters


@dataclass(frozen=True, slots=True)
class Calibration:
    """A calibration of tensors of one type, resolved before any element is read."""

    method: CalibrationMethod
    options: CalibrationOptions
    target: Target
    tensor: TensorType

    @property
    def element(self) -> FloatElement:
        """The element type of the tensors."""
        return float_element(self.tensor, "input")

    def byte_count(self, elements: int) -> int:
        """Return about how much memory the search takes beside `elements` elements."""
        if self.method.one_pass:
            return 0
        # Copies in the compute dtype, one of them in the order of the parameters, and one mask.
        itemsize = widen(np.empty(0, self.element.tensor_dtype), self.element).itemsize
        return elements * (2 * itemsize + 1)

    def weight(self, byte_count: int, inline_bytes: int) -> int:
        """Return the bytes of work for tensors of so many bytes: a search is never done on the event loop."""
        return byte_count if self.method.one_pass else max(byte_count, inline_bytes + 1)

    def run(self, arrays: tuple[Array, ...], places: tuple[str, ...]) -> Calibrated:
        """Search the flat arrays, which are at the JSON pointers `places`. Errors as of `CalibrationMethod`."""
        shape, target = static_shape(self.tensor), self.target
        observed = Observed(self.element, shape, blocks_of(target.granularity, shape), arrays, places)
        with (
            default_pointer("/storage", UnsupportedError),
            pointers_for_sides(input=f"{places[0]}/type", output="/storage"),
        ):
            with default_pointer("/profile", UnknownNameError):
                ranges = self.method.find_ranges(observed, self.options, target)
            with default_pointer("/scheme", ParameterError, PreconditionError):
                return Calibrated(ranges, self.method.parameters(ranges, target))


def plan_calibration(
    request: CalibrationRequest, tensor: TensorType, storage: StorageType, expressed: FloatElement | None
) -> Calibration:
    """Return the calibration of tensors of a static type of floats. `expressed`: theirs, if None.

    Raise InvalidRequestError, TypeFitError or LimitError for a granularity that is none of the tensor,
    UnknownNameError, and UnsupportedError for a scheme that is not for blocks, or for blocks only.
    """
    granularity = _granularity(request, static_shape(tensor))
    with default_pointer("/method"):
        method = calibration_method_named(request.method)
    in_blocks = isinstance(granularity, PerBlock)
    with default_pointer("/scheme"):
        named = method.scheme_for(blocks=in_blocks) if request.scheme is None else request.scheme
        rule = range_rule_named(named)
        rule.check_blocks(blocks=in_blocks)
    expressed = expressed or float_element(tensor, "input")
    return Calibration(
        method, request.options, Target(rule, request.range_options, storage, expressed, granularity), tensor
    )


def _kind(request: CalibrationRequest) -> GranularityName:
    """Return the requested granularity. Raise InvalidRequestError if other options contradict it."""
    kind = request.granularity
    sources = {GranularityName.PER_AXIS: "axis", GranularityName.SUB_CHANNEL: "block_sizes"}
    owners = [owner for owner, name in sources.items() if getattr(request, name) is not None]
    if kind is None:
        if len(owners) > 1:
            raise _wrong("/axis", "extra_forbidden", "axis is for one range per index; blocks have block_sizes")
        return owners[0] if owners else GranularityName.PER_TENSOR
    for owner in owners:
        if kind is not owner:
            name = sources[owner]
            raise _wrong(f"/{name}", "extra_forbidden", f"{name} is for granularity {owner}; this is {kind}")
    if kind in sources and not owners:
        raise _wrong(f"/{sources[kind]}", "missing", f"granularity {kind} needs {sources[kind]}")
    return kind


def _granularity(request: CalibrationRequest, shape: tuple[int, ...]) -> Granularity:
    """Return what has a range of its own in a tensor of this shape."""
    kind = _kind(request)
    granularity: Granularity = PerTensor()
    if kind is GranularityName.PER_AXIS:
        assert request.axis is not None
        if not 0 <= request.axis < len(shape):
            raise TypeFitError(f"axis {request.axis} is not below the rank {len(shape)} of the tensor", pointer="/axis")
        granularity = PerAxis(request.axis, shape[request.axis])
    if kind is GranularityName.SUB_CHANNEL:
        assert request.block_sizes is not None
        if len(request.block_sizes) != len(shape) or not shape:
            raise TypeFitError(
                f"there are {len(request.block_sizes)} block_sizes for a tensor of rank {len(shape)}; expected one "
                "per dimension, and at least one",
                pointer="/block_sizes",
            )
        for size in request.block_sizes:
            if wrong := block_fault(size):
                raise TypeFitError(wrong, pointer="/block_sizes")
        granularity = PerBlock(shape, request.block_sizes)
    if granularity.count > MAXIMUM_LIST_LENGTH:
        raise LimitError(
            f"there would be {granularity.count} scales; a type has at most {MAXIMUM_LIST_LENGTH}",
            limit=MAXIMUM_LIST_LENGTH,
            pointer="/granularity",
        )
    return granularity
