"""Scales that the output type of a quantization leaves open: they are found first, then the call is planned with them.

`!quant.any<i8:f32>` states storage and expressed type; the ranges are found in the data, as `derive_from_tensor` finds
them. `!quant.calibrated<f32<-1.0:1.0>>` states a range: nothing is measured, and the call names the storage and the
rule, as for `derive_from_range`. What follows is the plan of the finished type: the bits are those of the two calls one
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import numpy as np

from requant.calibration.finished_type import Granularity, PerTensor, finish_type
from requant.calibration.methods.search import Calibration, CalibrationRequest, plan_calibration
from requant.calibration.ranges import RangeOptions, RangeParameters, RangeRule, range_rule_named
from requant.description import (
    Array,
    Group,
    Kind,
    Member,
    NumbersOutput,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Stored,
)
from requant.errors import (
    InvalidRequestError,
    ParameterError,
    PreconditionError,
    RequantError,
    UnsupportedError,
    default_pointer,
    error_side,
    pointers_for_sides,
)
from requant.formats.elements import FloatElement, integer_dtype
from requant.mlir import parse_storage
from requant.mlir.types import AnyType, CalibratedType, StorageType, TensorType, Type, UniformQuantizedType
from requant.operations import parameters
from requant.plan.operands import bind, float_element, static_shape

_OF_RANGES = ("storage", "scheme", *(field.name for field in fields(RangeOptions)))
_wrong = InvalidRequestError.of_field

CALIBRATION = Option(
    name="calibration",
    kind=Kind.GROUP,
    description="How to derive the scales that output_type leaves open. Default: method min_max.",
    optional=True,
    group=Group(
        title="QuantizeCalibration",
        description="How to derive the scales that `output_type` leaves open. `!quant.any` states the storage.\n\n"
        "`!quant.calibrated` states a range, so nothing is measured: it needs `storage` and `scheme`, and takes the "
        "options\nof the scheme.",
        options=(
            *parameters.RANGE_OPTIONS,
            parameters.METHOD,
            parameters.METHOD_SCHEME,
            replace(parameters.GRANULARITY, read=None),
            parameters.AXIS,
            parameters.BLOCK_SIZES,
            *parameters.METHOD_OPTIONS,
            replace(
                parameters.STORAGE,
                description="For a calibrated type: the storage type, such as i8 or u4.",
                examples=(),
                optional=True,
                read=None,
            ),
        ),
        bounded=False,
    ),
)
"""Names of methods, schemes and profiles are checked where they are looked up."""

# Nothing is found in data if the output type stated a range.
_FOUND = {
    "method": "The calibration method; absent if the output type stated a range.",
    "minimums": "The ranges found in the data, one per scale.",
    "maximums": "",
    "left_out": None,
}


def _member(part: Member | NumbersOutput) -> Member:
    """Return a part of the reply of `derive_from_tensor` as a member of a group."""
    description = _FOUND.get(part.name)
    said = part.description if description is None else description
    optional = part.optional or part.name in _FOUND
    if isinstance(part, Member):
        return replace(part, description=said, optional=optional)
    kind = Kind.INTEGERS if part.kind is Kind.INTEGER else Kind.NUMBERS
    return Member(name=part.name, kind=kind, description=said, optional=optional)


PARAMETERS = Member(
    name="parameters",
    title="DerivedParameters",
    group_description="The scales and zero points derived for the output, its type without the shape, and the method.",
    description="Present if output_type left the scales to be derived.",
    members=tuple(
        _member(part) for part in parameters.DERIVE_FROM_TENSOR.reply if isinstance(part, Member | NumbersOutput)
    ),
    optional=True,
)


def leaves_scales_open(output_type: Type | None) -> bool:
    """Return whether a type is a quantized one without scales, so that the elements decide what they are."""
    element = output_type.element if isinstance(output_type, TensorType) else output_type
    return isinstance(element, (AnyType, CalibratedType))


def check_no_calibration(calibration: Mapping[str, Any] | None) -> None:
    """Raise InvalidRequestError if it is said how scales are found that a type does not leave open."""
    for name in calibration or ():
        detail = "calibration is for an output_type that leaves its scales open, such as !quant.any<i8:f32>"
        raise _wrong(f"/calibration/{name}", "extra_forbidden", detail)


@dataclass(frozen=True, slots=True)
class DerivedScales:
    """Scales and zero points that were found, and how. `method`, `minimums`, `maximums` and `left_out`: of a search."""

    rule: RangeRule
    expressed: FloatElement
    granularity: Granularity
    derived: RangeParameters
    type: UniformQuantizedType
    method: str = ""
    minimums: Array | None = None
    maximums: Array | None = None
    left_out: int | None = None

    @property
    def scale(self) -> Array:
        """The scales of the type: a scalar, one dimension, or the shape of the blocks.

        f32, in which most rules compute, where that holds all of them exactly and the expressed type is no f64; else
        f64.
        """
        scales = np.array(self.type.scales).reshape(self.granularity.scale_shape)
        as_f32 = scales.astype(np.float32)
        return as_f32 if self.expressed.name != "f64" and np.array_equal(as_f32, scales) else scales

    def zero_point(self, dtype: np.dtype[Any]) -> Array:
        """The zero points, as `scale`, in the dtype of the stored numbers."""
        return np.array(self.type.zero_points, np.int64).astype(dtype).reshape(self.granularity.scale_shape)

    def members(self) -> dict[str, Any]:
        """Return what was found by the names that replies of `derive_from_tensor` and `derive_from_range` have."""
        members: dict[str, Any] = {
            **parameters.finished_members(self.rule, self.expressed, self.derived, self.granularity)
        }
        for name, numbers in parameters.derived_numbers(self.derived, self.granularity).items():
            members[name] = numbers.reshape(-1).tolist()
        if self.minimums is not None and self.maximums is not None:
            members["method"] = self.method
            members["minimums"] = self.minimums.tolist()
            members["maximums"] = self.maximums.tolist()
            members["left_out"] = self.left_out
        return members


@dataclass(frozen=True, slots=True)
class Derivation:
    """What is to be found for a call, before any element is read. `tensor`: the type of the input, static."""

    output_type: Type
    tensor: TensorType
    storage: StorageType
    search: Calibration | None = None
    known: DerivedScales | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the input."""
        return float_element(self.tensor, "input").tensor_dtype

    def find(self, source: Array) -> DerivedScales:
        """Find the scales of the flat input: work on arrays."""
        if self.known is not None:
            return self.known
        assert self.search is not None
        target = self.search.target
        with _in_calibration():
            ranges, derived = self.search.run((source,), ("/input",))
        with default_pointer("/output_type", PreconditionError, ParameterError):
            type_ = target.type_of(derived)
        return DerivedScales(
            target.rule,
            target.expressed,
            target.granularity,
            derived,
            type_,
            self.search.method.name,
            ranges.minimums,
            ranges.maximums,
            ranges.left_out,
        )

    def finished(self, scales: DerivedScales) -> Type:
        """Return the output type with these scales."""
        stated = self.output_type
        return replace(stated, element=scales.type) if isinstance(stated, TensorType) else scales.type


def plan_derivation(tensor: TensorType, output_type: Type, calibration: Mapping[str, Any] | None) -> Derivation:
    """Return what is to be found for a tensor of this type.

    Raise what is wrong with the types, pointing at `/output_type`, and with the calibration, at `/calibration/bins` and
    its like. An error about the type of the input points at `/input/type`, or has that side.
    """
    with error_side("input"):
        shape = static_shape(tensor)
        float_element(tensor, "input")
    with default_pointer("/output_type"):
        element = bind(output_type, shape).element
    options = dict(calibration or {})
    if isinstance(element, CalibratedType):
        known = _of_range(element, options)
        return Derivation(output_type, tensor, known.type.storage, known=known)
    assert isinstance(element, AnyType)
    if "storage" in options:
        detail = "the output type states the storage; this is for calibrated types"
        raise _wrong("/calibration/storage", "extra_forbidden", detail)
    with _in_calibration():
        search = plan_calibration(CalibrationRequest.of(options), tensor, element.storage, element.expressed)
    return Derivation(output_type, tensor, element.storage, search)


def plan_with_derived_scales(call: OperationCall, plan: Callable[[OperationCall], PlannedWork]) -> PlannedWork:
    """Return the work of a call that leaves scales open: to find them, and then what is planned with them."""
    derivation = plan_derivation(call.types["input"], call.options["output_type"], call.options["calibration"])
    search, elements = derivation.search, prod(static_shape(derivation.tensor))
    itemsize = integer_dtype(derivation.storage.width, signed=True).itemsize

    def run(arrays: Mapping[str, Array]) -> Result:
        scales = derivation.find(arrays["input"])
        options = {**call.options, "output_type": derivation.finished(scales), "calibration": None}
        sides = pointers_for_sides(input="/input/type", output="/output_type")
        with default_pointer("/profile", UnsupportedError), sides:
            work = plan(replace(call, options=options))
        result = work.run(arrays)
        assert result.conversion is not None
        numbers = {"scale": scales.scale, "zero_point": scales.zero_point(result.conversion.output_dtype)}
        return replace(result, members={**result.members, PARAMETERS.name: scales.members()}, numbers=numbers)

    return PlannedWork(
        operands={"input": Stored(derivation.tensor, derivation.dtype)},
        run=run,
        byte_count=elements * itemsize + (0 if search is None else search.byte_count(elements)),
        searches=search is not None and not search.method.one_pass,
    )


def _of_range(element: CalibratedType, calibration: dict[str, Any]) -> DerivedScales:
    """Return the scale and zero point of a range that a type states."""
    for name in calibration:
        if name not in _OF_RANGES:
            detail = f"a calibrated type states the range, so nothing is measured; there are {', '.join(_OF_RANGES)}"
            raise _wrong(f"/calibration/{name}", "extra_forbidden", detail)
    for name, example in (("storage", "i8"), ("scheme", "litert")):
        if name not in calibration:
            raise _wrong(f"/calibration/{name}", "missing", f"a calibrated type needs {name}, such as {example}")
    with default_pointer("/calibration/storage"):
        storage = parse_storage(calibration["storage"])
    with default_pointer("/calibration/scheme"):
        rule = range_rule_named(calibration["scheme"])
        rule.check_blocks(blocks=False)
    options = CalibrationRequest.of(calibration).range_options
    ends = np.array([element.minimum]), np.array([element.maximum])
    with (
        default_pointer("/output_type", ParameterError, PreconditionError),
        default_pointer("/calibration/storage", UnsupportedError),
    ):
        with _in_calibration():
            derived = rule.derive_all(*ends, storage, options)
        type_ = finish_type(derived.storage, element.expressed, derived.scales, derived.zero_points, PerTensor())
    return DerivedScales(rule, element.expressed, PerTensor(), derived, type_)


@contextmanager
def _in_calibration() -> Iterator[None]:
    """Point at the fields of the group instead of those of `derive_from_tensor`."""
    try:
        yield
    except RequantError as error:
        error.pointer = _pointer(error.pointer)
        if isinstance(error, InvalidRequestError):
            error.faults = tuple(replace(fault, pointer=_pointer(fault.pointer) or "") for fault in error.faults)
        raise


def _pointer(pointer: str | None) -> str | None:
    known = {"/input/type": "/input/type", "/input": "/input", "/storage": "/output_type"}
    return None if pointer is None else known.get(pointer, f"/calibration{pointer}")
