"""Conversions as calls: what a protocol makes of a request, and the plan of it, kept for the calls that are the same.

Errors point at the field at fault by its name here: `/input_type`, `/output_type`, `/profile`, an option such as
`/rounding`, or `/multipliers/3/shift`. A protocol replaces that by the pointer that its requests have for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from requant.comparison.comparison import ErrorReport
from requant.convert.dequantize import plan_dequantize
from requant.convert.explain.explanation import Explainer
from requant.convert.quantize import plan_quantize
from requant.convert.requantize import plan_requantize
from requant.convert.scaling import ScalingPlan
from requant.errors import (
    LimitError,
    ParameterError,
    PreconditionError,
    UnsupportedError,
    default_pointer,
    pointers_for_sides,
)
from requant.mlir import print_type
from requant.mlir.types import AnyType, CalibratedType, ElementType, TensorType, Type
from requant.operations.conversions import CONVERSION_OPTIONS
from requant.operations.derived_scales import check_no_calibration
from requant.operations.explain import EXPLAINERS
from requant.operations.multipliers import CHARACTERS_PER_FACTOR
from requant.plan.operands import bind, element_name, static_shape
from requant.plan.plan import Array, Conversion, DeferredPlan, Packing, Plan, Report, dense_width
from requant.profiles import Operation
from requant.schemes import Multiplier
from requant_service.operations.described import MAX_EXPLAINED, kept_plan
from requant_service.operations.types import read_tensor_type, read_type
from requant_service.runtime.metrics import Metrics
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

Made = TypeVar("Made")
Value = str | int | float | bool

_PLANS: Mapping[Operation, Callable[..., Plan]] = {
    Operation.QUANTIZE: plan_quantize,
    Operation.DEQUANTIZE: plan_dequantize,
    Operation.REQUANTIZE: plan_requantize,
}
# A call with more numbers than that takes longer to compare with others than it is worth.
_MAX_KEPT_NUMBERS = 4096


class ConversionCall(NamedTuple):
    """All that a conversion depends on beside the elements. Calls that are equal have the same plan.

    Types are texts, or were parsed already. `shape` and `element` are what the array of a request is by itself; without
    them `input_type` has to be the type of a tensor. `options` are those that were sent (`given_options`).
    `packing` is that of input and output, in so far as they are stored numbers. `measured` asks for the error of the
    result against the input. `calibration` says how scales are found that `output_type` leaves open
    (`requant_service.operations.calibration.quantization`), by the names of a request.
    """

    operation: Operation
    profile: str
    input_type: Type | str | None = None
    output_type: Type | str | None = None
    shape: tuple[int, ...] | None = None
    element: ElementType | None = None
    options: tuple[tuple[str, Value], ...] = ()
    multipliers: tuple[Multiplier, ...] | None = None
    packing: Packing = Packing.UNPACKED
    measured: bool = False
    calibration: tuple[tuple[str, Any], ...] = ()

    @property
    def leaves_scales_open(self) -> bool:
        """Whether a quantized type without scales is asked for, so that the elements decide what they are."""
        output_type = self.output_type
        element = output_type.element if isinstance(output_type, TensorType) else output_type
        return self.operation is Operation.QUANTIZE and isinstance(element, (AnyType, CalibratedType))

    @property
    def input_place(self) -> str:
        """The pointer to what says the type of the input: its own, or the input, whose elements say it."""
        return "/input" if self.input_type is None else "/input_type"

    @property
    def is_kept(self) -> bool:
        """Whether it is worth the time to look whether such a call was planned before."""
        numbers = len(self.multipliers or ())
        for each in (self.input_type, self.output_type):
            if not isinstance(each, str):
                numbers += len(getattr(getattr(each, "element", each), "scales", ()))
        return not self.calibration and numbers <= _MAX_KEPT_NUMBERS


class PlannedConversion(Conversion):
    """The conversion that a call stands for, with what is the same in all of its results."""

    def __init__(self, call: ConversionCall, plan: Plan) -> None:
        dense = call.packing is Packing.DENSE
        self.packed_in = dense_width(plan.input_type) if dense and call.operation is not Operation.QUANTIZE else None
        packed_out = dense_width(plan.output_type) if dense and call.operation is not Operation.DEQUANTIZE else None
        super().__init__(plan, self.packed_in, packed_out)
        self.packed_out = packed_out
        self.operation = call.operation
        self.measured = call.measured
        self.output_type = print_type(plan.output_type)
        self.output_shape = static_shape(plan.output_type) if packed_out is None else (self.output_entries,)
        self.element = element_name(plan.output_type.element)
        self.scheme = {"scheme": plan.scheme.name} if isinstance(plan, ScalingPlan) else {}

    def result(self, counts: Array, metrics: Metrics) -> ConversionResult:
        """Return what the tally of all elements says, and count it. Raise PreconditionError for an undefined one."""
        report = self.plan.report(counts)
        saturated = report.saturated_low + report.saturated_high
        metrics.converted(self.operation, report.profile, self.element, report.elements, saturated)
        return ConversionResult(self, report, saturated)


class ConversionResult(NamedTuple):
    """What a conversion reports. `error` is there where it was asked for."""

    planned: PlannedConversion
    report: Report
    saturated: int
    error: ErrorReport | None = None


async def planned_conversion(call: ConversionCall, characters: int, running: Runtime) -> PlannedConversion:
    """Return the plan of a call, kept or new. The types have so many `characters` as texts: what planning costs."""
    weight = characters + CHARACTERS_PER_FACTOR * len(call.multipliers or ())

    return await kept_plan(
        call if call.is_kept else None,
        running,
        partial(plan_call, call, running.settings),
        lambda: weight,
        lambda planned: plan_bytes(planned.plan, weight),
    )


def plan_call(call: ConversionCall, settings: Settings) -> PlannedConversion:
    """Plan a call: work on texts. Raise what is wrong with it, pointing at the field."""
    return PlannedConversion(call, made_of_call(call, _PLANS[call.operation], settings))


def made_of_call(call: ConversionCall, make: Callable[..., Made], settings: Settings) -> Made:
    """Return what a function that takes the arguments of a plan's makes of a call. Errors point at the field."""
    check_no_calibration(dict(call.calibration))
    input_type = input_tensor_type(call, settings)
    output_type = _read(call.output_type, settings, "/output_type")
    arguments: dict[str, Any] = {}
    for option in CONVERSION_OPTIONS[call.operation]:
        for name, value in call.options:
            if name == option.name:
                with default_pointer(f"/{name}"):
                    arguments[name] = option.resolve(value)
    of_multipliers: AbstractContextManager[None] = nullcontext()
    if call.multipliers is not None:
        arguments["multipliers"] = call.multipliers
        of_multipliers = default_pointer("/multipliers", ParameterError, PreconditionError)
    types = pointers_for_sides(input=call.input_place, output="/output_type")
    with default_pointer("/profile", UnsupportedError), types, of_multipliers:
        return make(input_type, output_type, call.profile, **arguments)


def _read(type_: Type | str | None, settings: Settings, pointer: str) -> Type | None:
    return read_type(type_, settings.max_type_bytes, pointer) if isinstance(type_, str) else type_


def input_tensor_type(call: ConversionCall, settings: Settings) -> TensorType:
    """Return the type of the input. Raise TypeFitError if the array of the request cannot be of it."""
    if call.shape is None:
        assert isinstance(call.input_type, str)
        return read_tensor_type(call.input_type, settings, "/input_type")
    stated = _read(call.input_type, settings, "/input_type")
    with default_pointer(call.input_place):
        if stated is None:
            assert call.element is not None
            return TensorType(call.shape, call.element)
        packs = call.packing is Packing.DENSE and call.operation is not Operation.QUANTIZE
        if packs and isinstance(stated, TensorType) and dense_width(stated):
            # The array holds bytes; the shape of the tensor is the type's alone.
            return replace(stated, shape=static_shape(stated))
        return bind(stated, call.shape)


def given_options(operation: Operation, values: Mapping[str, Value | None]) -> tuple[tuple[str, Value], ...]:
    """Return the options of an operation that are there, with another value than their default, in one order."""
    options = []
    for option in CONVERSION_OPTIONS[operation]:
        value = values.get(option.name)
        if value is not None and value != option.default:
            options.append((option.name, value))
    return tuple(options)


# About what the objects around a kept plan take, and for each character of its types.
_BYTES_OF_OBJECTS = 4096
_BYTES_PER_CHARACTER = 32
_BYTES_PER_MULTIPLIER = 120


def plan_bytes(plan: Plan | None, characters: int) -> int:
    """Return about how many bytes a plan for types of so many characters takes, or the types alone."""
    return _BYTES_OF_OBJECTS + _BYTES_PER_CHARACTER * characters + _held(plan)


def _held(value: Any) -> int:
    """Return the bytes of the arrays and multipliers that a part of a plan holds, or will hold."""
    if isinstance(value, (np.ndarray, DeferredPlan)):
        return value.nbytes
    if isinstance(value, Plan):
        return sum(_held(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, tuple) and value:
        return _BYTES_PER_MULTIPLIER * len(value) if isinstance(value[0], Multiplier) else sum(map(_held, value))
    return 0


def explainer_of(call: ConversionCall, planned: PlannedConversion, settings: Settings) -> Explainer:
    """Return the explainer of a planned call. Raise LimitError for a tensor that is too large."""
    if planned.elements > MAX_EXPLAINED:
        raise LimitError(
            f"the tensor has {planned.elements} elements; at most {MAX_EXPLAINED} are explained",
            limit=MAX_EXPLAINED,
            pointer="/input_type",
        )
    # With the scales, if they were derived.
    finished = call._replace(output_type=planned.plan.output_type, calibration=())
    return made_of_call(finished, EXPLAINERS[call.operation], settings)


async def planned_explanation(
    call: ConversionCall, planned: PlannedConversion, characters: int, running: Runtime
) -> Explainer:
    """Return the explainer of a planned call, whose type texts have so many `characters`."""
    return await running.executor.run_text(characters, partial(explainer_of, call, planned, running.settings))
