"""Quantize to a type that leaves its scales open: they are found first, then the tensor is quantized to that type.

`!quant.any<i8:f32>` states storage and expressed type; the ranges are found in the data, as `/v1/parameters/tensor`
finds them. `!quant.calibrated<f32<-1.0:1.0>>` states a range: nothing is measured, and the request names the storage
and the rule, as for `/v1/parameters/range`. What follows is the plan of the finished type: the bits are those of the
two calls one after the other.

Errors point at the fields of `requant_service.operations.conversion_call`, at `/calibration/bins` and its like, and at
`/input`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, PerTensor, finish_type
from requant.calibration.methods.search import Calibration, CalibrationRequest, plan_calibration
from requant.calibration.ranges import RangeOptions, RangeParameters, RangeRule, range_rule_named
from requant.errors import (
    InvalidRequestError,
    ParameterError,
    PreconditionError,
    RequantError,
    UnsupportedError,
    default_pointer,
)
from requant.formats.elements import FloatElement
from requant.mlir import parse_storage
from requant.mlir.types import AnyType, CalibratedType, TensorType, Type, UniformQuantizedType
from requant.operations.parameters import derived_numbers, finished_members
from requant.plan.operands import bind, float_element, static_shape
from requant_service.operations.conversion_call import ConversionCall, PlannedConversion, input_tensor_type, plan_call
from requant_service.operations.types import CHARACTERS_PER_SCALE, read_type
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

Array = NDArray[Any]

PLACE = "/input"
"""What errors call the input."""

_OF_RANGES = ("storage", "scheme", *(field.name for field in fields(RangeOptions)))
_wrong = InvalidRequestError.of_field


def may_leave_scales_open(output_type: object) -> bool:
    """Return whether a type text may be of a type that leaves its scales open. Most others are told at a glance."""
    return isinstance(output_type, str) and ("any" in output_type or "calibrated" in output_type)


def open_type(output_type: Type | str | None, settings: Settings) -> Type | str | None:
    """Return the output type of a quantization, read if it may leave its scales open, else as it is."""
    if isinstance(output_type, str) and may_leave_scales_open(output_type):
        return read_type(output_type, settings.max_type_bytes, "/output_type")
    return output_type


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
        """Return what was found by the names that replies of `/v1/parameters/tensor` and `range` have for it."""
        members: dict[str, Any] = {**finished_members(self.rule, self.expressed, self.derived, self.granularity)}
        for name, numbers in derived_numbers(self.derived, self.granularity).items():
            members[name] = numbers.reshape(-1).tolist()
        if self.minimums is not None and self.maximums is not None:
            members["method"] = self.method
            members["minimums"] = self.minimums.tolist()
            members["maximums"] = self.maximums.tolist()
            members["left_out"] = self.left_out
        return members


class DerivedQuantization(NamedTuple):
    """The plan of a call with the finished type, and the scales of that."""

    planned: PlannedConversion
    scales: DerivedScales


@dataclass(frozen=True, slots=True)
class Derivation:
    """What is to be found for a call, before any element is read. `tensor`: the type of the input, static."""

    call: ConversionCall
    output_type: Type
    tensor: TensorType
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
        with _named(self.call.input_place):
            ranges, derived = self.search.run((source,), (PLACE,))
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

    def planned(self, scales: DerivedScales, settings: Settings) -> PlannedConversion:
        """Plan the call with the finished type: work on texts."""
        stated, finished = self.output_type, scales.type
        output_type = replace(stated, element=finished) if isinstance(stated, TensorType) else finished
        return plan_call(self.call._replace(output_type=output_type, calibration=()), settings)


async def plan_derivation(call: ConversionCall, characters: int, running: Runtime) -> Derivation:
    """Return what is to be found for a call that leaves scales open. `characters`: of its types as texts.

    Raise what is wrong with the types of the call and with its calibration.
    """
    return await running.executor.run_text(characters, partial(_plan_derivation, call, running.settings))


async def derive_quantization(
    derivation: Derivation, source: Array, running: Runtime, reserve: Callable[[int], Awaitable[None]]
) -> DerivedQuantization:
    """Find the scales for the flat input `source`, and plan the call with the finished type.

    `reserve` reserves so many bytes of memory. Raise what `Calibration.run`, `finish_type` and `plan_call` raise.
    """
    executor, settings, search = running.executor, running.settings, derivation.search
    weight = source.nbytes
    if search is not None:
        await reserve(search.byte_count(source.size))
        weight = search.weight(source.nbytes, settings.inline_bytes)
    scales = await executor.run_array(weight, partial(derivation.find, source))
    planning = partial(derivation.planned, scales, settings)
    planned = await executor.run_text(len(scales.type.scales) * CHARACTERS_PER_SCALE, planning)
    return DerivedQuantization(planned, scales)


def _plan_derivation(call: ConversionCall, settings: Settings) -> Derivation:
    output_type = call.output_type
    assert output_type is not None
    assert not isinstance(output_type, str)
    tensor = input_tensor_type(call, settings)
    with default_pointer(call.input_place):
        shape = static_shape(tensor)
        float_element(tensor, "input")
    with default_pointer("/output_type"):
        element = bind(output_type, shape).element
    calibration = dict(call.calibration)
    if isinstance(element, CalibratedType):
        return Derivation(call, output_type, tensor, known=_of_range(element, calibration))
    assert isinstance(element, AnyType)
    if "storage" in calibration:
        detail = "the output type states the storage; this is for calibrated types"
        raise _wrong("/calibration/storage", "extra_forbidden", detail)
    with _named(call.input_place):
        search = plan_calibration(CalibrationRequest.of(calibration), tensor, element.storage, element.expressed)
    return Derivation(call, output_type, tensor, search)


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
        with _named("/input"):
            derived = rule.derive_all(*ends, storage, options)
        type_ = finish_type(derived.storage, element.expressed, derived.scales, derived.zero_points, PerTensor())
    return DerivedScales(rule, element.expressed, PerTensor(), derived, type_)


@contextmanager
def _named(input_place: str) -> Iterator[None]:
    """Point at the fields of the call instead of those of a calibration. `input_place`: where the input's type is."""
    try:
        yield
    except RequantError as error:
        error.pointer = _pointer(error.pointer, input_place)
        if isinstance(error, InvalidRequestError):
            error.faults = tuple(
                replace(fault, pointer=_pointer(fault.pointer, input_place) or "") for fault in error.faults
            )
        raise


def _pointer(pointer: str | None, input_place: str) -> str | None:
    known = {f"{PLACE}/type": input_place, PLACE: PLACE, "/storage": "/output_type"}
    return None if pointer is None else known.get(pointer, f"/calibration{pointer}")
