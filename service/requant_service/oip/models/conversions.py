"""Quantize, dequantize and requantize as models: one tensor in, one out, and the multipliers of a requantization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from requant.errors import FieldFault, InvalidRequestError, RequantError, default_pointer
from requant.mlir import print_type
from requant.mlir.types import Type
from requant.operations.conversions import CONVERSION_OPTIONS, CONVERSIONS, ERROR
from requant.operations.derived_scales import PARAMETERS
from requant.operations.explain import EXPLANATION
from requant.operations.parameters import MAX_AXIS
from requant.plan.operands import float_element, static_shape
from requant.plan.plan import Packing, check_dense_bytes
from requant.profiles import Operation
from requant_service.http.responses import json_text
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES, NARROW_FLOATS, REALS, STORED, datatype_of
from requant_service.oip.models.described import parameter_of
from requant_service.oip.models.model import Model, Slot
from requant_service.oip.models.parameter_tensors import (
    AXIS,
    BLOCK_SIZES,
    SCALE,
    STORAGE_TYPE,
    ZERO_POINT,
    check_one_source,
    check_unused,
    parameter_tensor,
    parameter_tensors,
)
from requant_service.oip.parameters import Parameter, Value, pointer_to
from requant_service.oip.tensors import Array, InputTensor, OutputTensor
from requant_service.operations.calibration.options import (
    CALIBRATION_OPTIONS,
    OF_SCALES,
    check_scales_are_given,
    flat_pointers,
    given_calibration,
)
from requant_service.operations.conversion_call import (
    ConversionCall,
    ConversionResult,
    PlannedConversion,
    WholeConversion,
    given_options,
)
from requant_service.operations.parameters.tensors import multipliers_of_tensors
from requant_service.operations.types import read_type

_NOTHING: Mapping[str, Any] = {}
_BARE = "A bare element type takes its shape from the tensor."
_INPUT_TYPE = Parameter(
    name="input_type",
    description=f"MLIR text: the type of x. {_BARE} Default: its datatype.",
    optional=True,
)
_OUTPUT_TYPE = Parameter(name="output_type", description=f"MLIR text: what y is to be. {_BARE}")
_PACKING = Parameter(
    name="packing",
    description="How elements of widths other than 8, 16 or 32 bits, such as i4 or i12, are stored. Dense elements "
    "are a UINT8 tensor of rank 1.",
    default=str(Packing.UNPACKED),
    choices=tuple(Packing),
)
_BYTES = DATATYPES["UINT8"]
_INT32 = DATATYPES["INT32"]
_INT64 = DATATYPES["INT64"]


def _profile(operation: Operation) -> Parameter:
    return parameter_of(CONVERSIONS[operation].option("profile"))


def _options(operation: Operation) -> list[Parameter]:
    return [parameter_of(each) for each in CONVERSION_OPTIONS[operation]]


def _conversion(call: Call, operation: Operation, **members: Any) -> ConversionCall:
    """Return a call of the model of an operation as a conversion. `members` are those that not every model has."""
    x = call.inputs["x"]
    for option in CONVERSION_OPTIONS[operation]:
        value = call.parameters[option.name]
        if value is not None and (fault := option.choice_fault(value)) is not None:
            raise InvalidRequestError(
                f"parameter {option.name}: {fault}", (FieldFault(pointer_to(option.name), "enum", fault),)
            )
    described: dict[str, Any] = {
        "input_type": call.type_or_text("input_type"),
        "output_type": call.type_or_text("output_type"),
        **members,
    }
    return ConversionCall(
        operation=operation,
        profile=call.text("profile"),
        shape=x.shape,
        element=x.datatype.element,
        options=given_options(operation, call.parameters),
        packing=call.choice("packing", Packing),
        **described,
    )


def _quantization(call: Call) -> ConversionCall:
    members: dict[str, Any] = {"measured": call.boolean("error") is True}
    with named_in_model(call):
        if check_one_source(call, "output_type"):
            check_scales_are_given(name for name, value in call.parameters.items() if value is not None)
            tensor = call.tensor_type("x", "input_type")
            members["output_type"] = parameter_tensors(call).type(float_element(tensor, "input"), static_shape(tensor))
        else:
            members["calibration"] = given_calibration(call.parameters)
            members["output_type"] = _output_type(call)
    return _conversion(call, Operation.QUANTIZE, **members)


def _output_type(call: Call) -> Type | str | None:
    """Return the output type of a quantization, read if it may leave its scales open, else as it is."""
    output_type = call.type_or_text("output_type")
    if isinstance(output_type, str) and _may_leave_scales_open(output_type):
        return read_type(output_type, call.settings.max_type_bytes, "/output_type")
    return output_type


def _may_leave_scales_open(output_type: object) -> bool:
    """Return whether a type text may be of a type that leaves its scales open. Most others are told at a glance."""
    return isinstance(output_type, str) and ("any" in output_type or "calibrated" in output_type)


def _needs_input(parameters: Mapping[str, Value | None]) -> bool:
    """Return whether a quantization needs its whole input: to measure the error, or to find scales."""
    return bool(parameters.get("error")) or _may_leave_scales_open(parameters.get("output_type"))


_STORED = (*STORED, *NARROW_FLOATS)
_STORED_NUMBERS = CONVERSIONS[Operation.DEQUANTIZE].inputs[0].description
_GIVEN_OR_DERIVED = "With scale, or if the output type leaves the scales to be derived"
_DERIVED = "If the output type leaves the scales to be derived"

QUANTIZE = Model(
    name="quantize",
    versions=("1",),
    description="Quantize, or cast to a narrower float.",
    inputs=(Slot(name="x", description="The real tensor.", datatypes=REALS), SCALE, ZERO_POINT),
    outputs=(
        Slot(name="y", description=_STORED_NUMBERS, datatypes=_STORED),
        replace(SCALE, description=f"{_DERIVED}: one, one a channel, or one a block.", datatypes=("FP32", "FP64")),
        replace(ZERO_POINT, description=f"{_DERIVED}: as many zero points, in the datatype of y.", datatypes=STORED),
    ),
    parameters=(
        replace(
            _OUTPUT_TYPE,
            description=f"{_OUTPUT_TYPE.description} !quant.any and !quant.calibrated leave the scales to be derived. "
            "Required unless the input scale is given.",
            optional=True,
        ),
        _INPUT_TYPE,
        replace(STORAGE_TYPE, description=f"{STORAGE_TYPE.description} Also for a calibrated type."),
        replace(AXIS, description="The axis of the channels, with scale or if scales are derived.", highest=MAX_AXIS),
        replace(
            BLOCK_SIZES, description="The size of a block along each dimension, with scale or if scales are derived."
        ),
        *(parameter_of(each) for each in CALIBRATION_OPTIONS if each.name not in OF_SCALES),
        _profile(Operation.QUANTIZE),
        *_options(Operation.QUANTIZE),
        parameter_of(ERROR),
        _PACKING,
    ),
    conversion=_quantization,
    needs_input=_needs_input,
)


def _dequantization(call: Call) -> ConversionCall:
    if not check_one_source(call, "input_type"):
        check_unused(call, *(parameter.name for parameter in (STORAGE_TYPE, AXIS, BLOCK_SIZES)))
        return _conversion(call, Operation.DEQUANTIZE)
    x = call.inputs["x"]
    with named_in_model(call):
        packing = call.choice("packing", Packing)
        stored = parameter_tensors(call).type_of_stored(x.shape, x.datatype.element, packing)
    return _conversion(call, Operation.DEQUANTIZE, input_type=stored)


DEQUANTIZE = Model(
    name="dequantize",
    versions=("1",),
    description=CONVERSIONS[Operation.DEQUANTIZE].summary,
    inputs=(Slot(name="x", description=_STORED_NUMBERS, datatypes=_STORED), SCALE, ZERO_POINT),
    outputs=(Slot(name="y", description="The real tensor.", datatypes=REALS),),
    parameters=(
        replace(_INPUT_TYPE, description=f"MLIR text: what x is. {_BARE} Required unless the input scale is given."),
        replace(_OUTPUT_TYPE, description=f"{_OUTPUT_TYPE.description} Default: the expressed type.", optional=True),
        STORAGE_TYPE,
        AXIS,
        BLOCK_SIZES,
        _profile(Operation.DEQUANTIZE),
        *_options(Operation.DEQUANTIZE),
        _PACKING,
    ),
    conversion=_dequantization,
)


def _requantization(call: Call) -> ConversionCall:
    given = (parameter_tensor(call, name) if name in call.inputs else None for name in ("multiplier", "shift"))
    return _conversion(call, Operation.REQUANTIZE, multipliers=multipliers_of_tensors(*given))


_STORED_INTEGERS = (*STORED, "INT64")
_MULTIPLIER = Slot(
    name="multiplier",
    description=CONVERSIONS[Operation.REQUANTIZE].numbers[0].description,
    datatypes=("INT64",),
)
_SHIFT = Slot(name="shift", description="In the scheme's convention: one per multiplier.", datatypes=("INT32",))

REQUANTIZE = Model(
    name="requantize",
    versions=("1",),
    description="Requantize quantized values or accumulators to another scale.",
    inputs=(
        Slot(name="x", description="Quantized values or accumulators.", datatypes=_STORED_INTEGERS),
        replace(_MULTIPLIER, datatypes=("INT64", "INT32"), optional=True),
        replace(_SHIFT, datatypes=("INT32", "INT64"), optional=True),
    ),
    outputs=(Slot(name="y", description="The quantized tensor.", datatypes=_STORED_INTEGERS), _MULTIPLIER, _SHIFT),
    parameters=(
        replace(
            _INPUT_TYPE,
            description=f"MLIR text: what x is. {_BARE} Default: integers without a scale, which need multipliers.",
        ),
        _OUTPUT_TYPE,
        _profile(Operation.REQUANTIZE),
        *_options(Operation.REQUANTIZE),
        _PACKING,
    ),
    conversion=_requantization,
)


@contextmanager
def named_in_model(call: Call) -> Iterator[None]:
    """Point at the parameter or the input that has what the error of a conversion is about."""
    try:
        with flat_pointers("/x"):
            yield
    except RequantError as error:
        error.pointer = _pointer_in_model(error.pointer, call)
        if isinstance(error, InvalidRequestError):
            faults = (replace(fault, pointer=_pointer_in_model(fault.pointer, call)) for fault in error.faults)
            error.faults = tuple(faults)
        raise


def _pointer_in_model(field: str | None, call: Call) -> Any:
    inputs = call.inputs
    if field is None or field.startswith(("/inputs", "/parameters")):
        return field
    if field.startswith("/multipliers"):
        return inputs["shift" if field.endswith("/shift") else "multiplier"].pointer
    if field == "/x" or field.startswith("/x/"):
        return inputs["x"].pointer + field.removeprefix("/x")
    if field in ("/input_type", "/output_type") and "scale" in inputs and not call.has(field[1:]):
        # The type that the scale makes.
        return inputs["scale"].pointer
    return f"/parameters{field}"


def check_input(x: InputTensor, planned: PlannedConversion | WholeConversion) -> None:
    """Raise TensorDataError unless x is kept as the input of a conversion is, and has as many bytes if it is packed."""
    if planned.packed_in is None:
        x.check_kept(planned.input_type.element, planned.input_dtype)
        return
    x.check_kept(_BYTES.element, _BYTES.dtype)
    with default_pointer(x.pointer):
        check_dense_bytes(prod(x.shape), planned.elements, planned.packed_in)


def report_of(result: ConversionResult, members: Mapping[str, Any] = _NOTHING) -> dict[str, Value]:
    """Return what a conversion did as the parameters of a reply. `members`: of one that took its input whole."""
    planned, derived = result.planned, members.get(PARAMETERS.name)
    report: dict[str, Value] = {"output_type": planned.output_type, **result.report._asdict()}
    report["saturated"] = result.saturated
    report |= planned.scheme
    if derived is not None:
        report |= {name: derived[name] for name in ("scheme", "method", "left_out") if name in derived}
    report |= dict(result.error or ())
    if EXPLANATION[0].name in members:
        # `elements` is how many there are.
        explanation = {"formula": members["formula"], "explained": members["elements"]}
        report |= {name: json_text(value).decode() for name, value in explanation.items()}
    return report


def y_is_alone(planned: PlannedConversion, wanted: Mapping[str, bool]) -> bool:
    """Return whether a reply is y alone, in binary."""
    return wanted.get("y", False) and (len(wanted) == 1 or not planned.plan.multipliers)


def outputs_of(
    planned: PlannedConversion, data: Array | None, *, multipliers: bool, numbers: Mapping[str, Array] = _NOTHING
) -> list[OutputTensor]:
    """Return y, whose data may be made later, and perhaps the multipliers and shifts of a requantization, or the
    scales and zero points of a quantization that has found them (`numbers`).
    """
    plan = planned.plan
    datatype = _BYTES if planned.packed_out else datatype_of(plan.output_type.element, plan.output_dtype)
    y = OutputTensor("y", datatype, planned.output_shape, data, planned.element)
    if numbers:
        return [y, *(_derived(name, array) for name, array in numbers.items())]
    if not (multipliers and plan.multipliers):
        return [y]
    count = (len(plan.multipliers),)
    values = np.array([each.multiplier for each in plan.multipliers], _INT64.dtype)
    shifts = np.array([each.shift for each in plan.multipliers], _INT32.dtype)
    return [
        y,
        OutputTensor("multiplier", _INT64, count, values, "i64"),
        OutputTensor("shift", _INT32, count, shifts, "i32"),
    ]


def _derived(name: str, array: Array) -> OutputTensor:
    # Few clients know a tensor without dimensions.
    flat = np.ascontiguousarray(array.reshape(-1))
    datatype = next(each for each in DATATYPES.values() if each.dtype == flat.dtype and each.name != "BOOL")
    return OutputTensor(name, datatype, array.shape or (1,), flat, print_type(datatype.element))
