"""Conversions as calls: what a protocol makes of a request, and the plan of it, kept for the calls that are the same.

Errors point at the field at fault by its name here: `/input_type`, `/output_type`, `/profile`, an option such as
`/rounding`, or `/multipliers/3/shift`. A protocol replaces that by the pointer that its requests have for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from requant.convert.scaling import ScalingPlan
from requant.description import OperationCall, PlannedWork, Result
from requant.errors import RequantError, default_pointer
from requant.formats.elements import BYTE
from requant.mlir import print_type
from requant.mlir.types import AnyType, CalibratedType, ElementType, TensorType, Type
from requant.operations.conversions import CONVERSION_OPTIONS, CONVERSIONS, ERROR
from requant.operations.derived_scales import CALIBRATION, check_no_calibration
from requant.operations.explain import EXPLANATIONS
from requant.operations.multipliers import CHARACTERS_PER_FACTOR
from requant.plan.operands import bind, element_name, static_shape
from requant.plan.plan import Array, Conversion, DeferredPlan, Packing, Plan, Report, dense_width, pack, unpack
from requant.profiles import Operation
from requant.schemes import Multiplier
from requant_service.operations.described import cached_plan, limits_of, plan_operation, weight
from requant_service.operations.types import read_tensor_type, read_type
from requant_service.runtime.metrics import Metrics
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

Made = TypeVar("Made")
Value = str | int | float | bool

# A call with more numbers than that takes longer to compare with others than it is worth.
_MAX_KEPT_NUMBERS = 4096


class ConversionCall(NamedTuple):
    """All that a conversion depends on beside the elements. Calls that are equal have the same plan.

    Types are texts, or were parsed already. `shape` and `element` are what the array of a request is by itself; without
    them `input_type` has to be the type of a tensor. `options` are those that were sent (`given_options`).
    `packing` is that of input and output, in so far as they are stored numbers. `measured` asks for the error of the
    result against the input. `calibration` says how scales are found that `output_type` leaves open
    (`requant.operations.derived_scales`), by the names of a request.
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

    def packed_input(self, input_type: TensorType) -> int | None:
        """Return the bits of the numbers of the input if they are packed."""
        packs = self.packing is Packing.DENSE and self.operation is not Operation.QUANTIZE
        return dense_width(input_type) if packs else None

    def point(self, error: RequantError) -> None:
        """Point at where the call has the type of the input, which is not in the input itself."""
        if error.pointer == "/input/type":
            error.pointer = self.input_place

    @property
    def is_kept(self) -> bool:
        """Whether it is worth the time to look whether such a call was planned before."""
        numbers = len(self.multipliers or ())
        for each in (self.input_type, self.output_type):
            if not isinstance(each, str):
                numbers += len(getattr(getattr(each, "element", each), "scales", ()))
        return not self.calibration and numbers <= _MAX_KEPT_NUMBERS


class PlannedConversion(Conversion):
    """The conversion that a call stands for, with what is the same in all of its results.

    `text`: of the output type, where it is known.
    """

    def __init__(self, call: ConversionCall, plan: Plan, text: str = "") -> None:
        dense = call.packing is Packing.DENSE
        self.packed_in = call.packed_input(plan.input_type)
        packed_out = dense_width(plan.output_type) if dense and call.operation is not Operation.DEQUANTIZE else None
        super().__init__(plan, self.packed_in, packed_out)
        self.packed_out = packed_out
        self.operation = call.operation
        self.input_type = plan.input_type
        self.output_type = text or print_type(plan.output_type)
        self.output_shape = static_shape(plan.output_type) if packed_out is None else (self.output_entries,)
        self.element = element_name(plan.output_type.element)
        self.scheme = {"scheme": plan.scheme.name} if isinstance(plan, ScalingPlan) else {}
        self.held: Plan | None = plan

    def result(self, counts: Array, metrics: Metrics) -> ConversionResult:
        """Return what the tally of all elements says, and count it. Raise PreconditionError for an undefined one."""
        return self.reported(self.plan.report(counts), metrics)

    def reported(
        self, report: Report, metrics: Metrics, error: tuple[tuple[str, float], ...] | None = None
    ) -> ConversionResult:
        """Return a report as a result, and count it."""
        saturated = report.saturated_low + report.saturated_high
        metrics.converted(self.operation, report.profile, self.element, report.elements, saturated)
        return ConversionResult(self, report, saturated, error)


class ConversionResult(NamedTuple):
    """What a conversion reports. `error`: its measures, where they were requested."""

    planned: PlannedConversion
    report: Report
    saturated: int
    error: tuple[tuple[str, float], ...] | None = None


class WholeResult(NamedTuple):
    """What comes of a call that took its input whole. `output`: as it travels."""

    converted: ConversionResult
    output: Array
    result: Result


class WholeConversion:
    """A call whose work takes its input whole: it finds scales, measures the error, or explains each element."""

    def __init__(self, call: ConversionCall, work: PlannedWork) -> None:
        stored = work.operands["input"]
        self.call = call
        self.work = work
        self.elements = stored.elements
        self.input_type = stored.type
        self.packed_in = call.packed_input(stored.type)
        self.input_dtype = stored.dtype if self.packed_in is None else BYTE
        self.held = None if work.conversion is None else work.conversion.plan
        self._planned = None if self.held is None else PlannedConversion(call, self.held)

    async def run(self, source: Array, running: Runtime, finish: Callable[[WholeResult], Made]) -> Made:
        """Do the work on an input as it travels, and return what `finish` makes of its result, in the same thread."""
        settings, work = running.settings, self.work

        def convert() -> Made:
            return finish(self._convert(source, running.metrics))

        if work.characters:
            return await running.executor.run_text(work.characters, convert)
        return await running.executor.run_array(weight(work, source.nbytes, settings), convert)

    def _convert(self, source: Array, metrics: Metrics) -> WholeResult:
        width = self.packed_in
        if width is not None:
            source = unpack(source, width, self.elements, self.work.operands["input"].dtype)
        try:
            result = self.work.run({"input": source if source.flags.aligned else source.copy()})
        except RequantError as error:
            self.call.point(error)
            raise
        assert result.conversion is not None
        output, members, planned = result.outputs["output"], result.report, self._planned
        if planned is None:
            # With the scales that were found.
            planned = PlannedConversion(self.call, result.conversion.plan, output.text)
        measures = tuple(members[ERROR.name].items()) if ERROR.name in members else None
        report = Report(*(members[name] for name in Report._fields))
        data = output.data if planned.packed_out is None else pack(output.data, planned.packed_out)
        return WholeResult(planned.reported(report, metrics, measures), data, result)


async def planned_conversion(
    call: ConversionCall, characters: int, running: Runtime, *, explained: bool = False
) -> PlannedConversion | WholeConversion:
    """Return the plan of a call, kept or new. The types have so many `characters` as texts: what planning costs.

    `explained`: with the steps of each element.
    """
    cost = characters + CHARACTERS_PER_FACTOR * len(call.multipliers or ())
    return await cached_plan(
        (call, explained) if call.is_kept else None,
        running,
        partial(plan_call, call, running.settings, explained=explained),
        lambda: cost,
        lambda planned: plan_bytes(planned.held, cost),
    )


def plan_call(
    call: ConversionCall, settings: Settings, *, explained: bool = False
) -> PlannedConversion | WholeConversion:
    """Plan a call: work on texts. Raise what is wrong with it, pointing at the field."""
    calibration = dict(call.calibration)
    if not call.leaves_scales_open:
        check_no_calibration(calibration)
    described = (EXPLANATIONS if explained else CONVERSIONS)[call.operation]
    types = {"input": input_tensor_type(call, settings)}
    options = {
        **described.defaults,
        "output_type": _read(call.output_type, settings, "/output_type"),
        "profile": call.profile,
        CALIBRATION.name: calibration or None,
        ERROR.name: call.measured,
    }
    for option in CONVERSION_OPTIONS[call.operation]:
        for name, value in call.options:
            if name == option.name:
                with default_pointer(f"/{name}"):
                    options[name] = option.resolve(value)
    numbers: dict[str, Array] = {}
    if call.multipliers is not None:
        numbers["multipliers"] = np.array([each.multiplier for each in call.multipliers], object)
        numbers["shifts"] = np.array([each.shift for each in call.multipliers], object)
    places = {"input": call.input_place, "output": "/output_type"}
    operation_call = OperationCall(types, options, numbers, limits=limits_of(settings))
    try:
        work = plan_operation(described, operation_call, places, settings)
    except RequantError as error:
        call.point(error)
        raise
    if work.conversion is None or not work.in_pieces:
        return WholeConversion(call, work)
    return PlannedConversion(call, work.conversion.plan)


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
