"""Quantize, dequantize and requantize as models: one tensor in, one out, and the multipliers of a requantization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from core.errors import FieldFault, InvalidRequestError, LimitError, RequantError, TypeFitError, at
from core.formats.elements import FloatElement, IntegerElement
from core.mlir.types import StorageType, TensorType
from core.plan.operands import float_element
from core.plan.packing import Packing, check_dense_bytes, dense_width
from core.profiles import PROFILES, Operation
from core.schemes import Multiplier
from service.oip.call import Call
from service.oip.datatypes import DATATYPES, NARROW_FLOATS, REALS, STORED, datatype_of
from service.oip.models.model import Model, Slot
from service.oip.models.parameter_tensors import (
    AXIS,
    SCALE,
    STORAGE_TYPE,
    ZERO_POINT,
    check_one_source,
    type_of_tensors,
)
from service.oip.parameters import Kind, Parameter, Value, pointer_to
from service.oip.tensors import Array, InputTensor, OutputTensor
from service.operations.conversion_call import ConversionCall, ConversionResult, PlannedConversion
from service.operations.conversion_options import DEFAULT_PROFILES, OPTIONS, Option, given_options
from service.operations.error_measures import error_measures
from service.runtime.settings import MOST_ENTRIES

_BARE = "A bare element type takes its shape from the tensor."
_INPUT_TYPE = Parameter(
    name="input_type",
    description=f"MLIR text: what x is. {_BARE} Default: what its datatype says.",
    optional=True,
)
_OUTPUT_TYPE = Parameter(name="output_type", description=f"MLIR text: what y is to be. {_BARE}")
_PACKING = Parameter(
    name="packing",
    description="How stored numbers of other widths than 8, 16 or 32 bits, such as i4 or i12, are kept. Dense ones are "
    "UINT8 of one dimension.",
    default=str(Packing.UNPACKED),
    choices=tuple(Packing),
)
_KINDS = {str: Kind.STRING, int: Kind.INTEGER, bool: Kind.BOOLEAN}
_BYTES = DATATYPES["UINT8"]
_INT32 = DATATYPES["INT32"]
_INT64 = DATATYPES["INT64"]


def _profile(operation: Operation) -> Parameter:
    """Return the parameter that names a profile which defines an operation, or the casts that it is for floats."""
    casts = operation is not Operation.REQUANTIZE
    defining = tuple(
        name
        for name, profile in PROFILES.items()
        if operation in profile.operations or (casts and profile.casts is not None)
    )
    default = DEFAULT_PROFILES[operation]
    return Parameter(name="profile", description="The arithmetic contract.", default=default, choices=defining)


def _options(operation: Operation) -> list[Parameter]:
    return [_option(each) for each in OPTIONS[operation]]


def _option(option: Option) -> Parameter:
    return Parameter(
        name=option.name,
        description=option.description,
        kind=_KINDS[option.kind],
        default=option.default,
        optional=option.default is None,
        choices=option.choices,
        highest=option.highest,
    )


def _conversion(call: Call, operation: Operation, **members: Any) -> ConversionCall:
    """Return a call of the model of an operation as a conversion. `members` are those that not every model has."""
    x = call.inputs["x"]
    for option in OPTIONS[operation]:
        value = call.parameters[option.name]
        if value is not None and (fault := option.fault(value)) is not None:
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
    if check_one_source(call, "output_type"):
        expressed = float_element(call.tensor_type("x", "input_type"), "input")
        members["output_type"] = type_of_tensors(call, expressed)
    return _conversion(call, Operation.QUANTIZE, **members)


_STORED = (*STORED, *NARROW_FLOATS)
_STORED_NUMBERS = "Stored numbers, or floats of at most 16 bits."

QUANTIZE = Model(
    name="quantize",
    versions=("1",),
    description="Quantize, or cast to a narrower float.",
    inputs=(Slot(name="x", description="The real tensor.", datatypes=REALS), SCALE, ZERO_POINT),
    outputs=(Slot(name="y", description=_STORED_NUMBERS, datatypes=_STORED),),
    parameters=(
        replace(
            _OUTPUT_TYPE,
            description=f"{_OUTPUT_TYPE.description} Required unless the input scale is given.",
            optional=True,
        ),
        _INPUT_TYPE,
        STORAGE_TYPE,
        AXIS,
        _profile(Operation.QUANTIZE),
        *_options(Operation.QUANTIZE),
        Parameter(
            name="error",
            kind=Kind.BOOLEAN,
            description="Whether to report the error against the input.",
            default=False,
        ),
        _PACKING,
    ),
    conversion=_quantization,
)


def _dequantization(call: Call) -> ConversionCall:
    if not check_one_source(call, "input_type"):
        return _conversion(call, Operation.DEQUANTIZE)
    return _conversion(call, Operation.DEQUANTIZE, input_type=_type_of_x(call))


def _type_of_x(call: Call) -> TensorType:
    """Return what the stored numbers x are by the inputs scale and zero_point."""
    x = call.inputs["x"]
    expressed, kept = call.inputs["scale"].datatype.element, x.datatype.element
    assert isinstance(expressed, FloatElement)
    if not isinstance(kept, IntegerElement):
        detail = f"with the input scale, x is {', '.join(STORED)}; not {x.datatype.name}"
        raise InvalidRequestError(detail, (FieldFault(f"{x.pointer}/datatype", "enum", detail),))
    storage = StorageType.unbounded(IntegerElement(kept.width), signed=kept.signed)
    found = TensorType(x.shape, type_of_tensors(call, expressed, storage))
    if call.choice("packing", Packing) is Packing.DENSE and dense_width(found) is not None:
        raise TypeFitError("packed numbers need a tensor type in input_type; bytes do not tell its shape")
    return found


DEQUANTIZE = Model(
    name="dequantize",
    versions=("1",),
    description="Stored numbers, or small floats, to real numbers.",
    inputs=(Slot(name="x", description=_STORED_NUMBERS, datatypes=_STORED), SCALE, ZERO_POINT),
    outputs=(Slot(name="y", description="The real tensor.", datatypes=REALS),),
    parameters=(
        replace(_INPUT_TYPE, description=f"MLIR text: what x is. {_BARE} Required unless the input scale is given."),
        replace(_OUTPUT_TYPE, description=f"{_OUTPUT_TYPE.description} Default: the expressed type.", optional=True),
        STORAGE_TYPE,
        AXIS,
        _profile(Operation.DEQUANTIZE),
        *_options(Operation.DEQUANTIZE),
        _PACKING,
    ),
    conversion=_dequantization,
)


def _requantization(call: Call) -> ConversionCall:
    return _conversion(call, Operation.REQUANTIZE, multipliers=_given_multipliers(call))


def _given_multipliers(call: Call) -> tuple[Multiplier, ...] | None:
    given = [call.inputs[name] for name in ("multiplier", "shift") if name in call.inputs]
    if not given:
        return None
    if len(given) == 1 or given[0].shape != given[1].shape or len(given[0].shape) != 1:
        raise TypeFitError("multiplier and shift come together, of one dimension and one length")
    if given[0].data.size > MOST_ENTRIES:
        raise LimitError(f"there are more than {MOST_ENTRIES} multipliers", limit=MOST_ENTRIES)
    return tuple(Multiplier(*pair) for pair in zip(*(each.data.tolist() for each in given), strict=True))


_STORED_INTEGERS = (*STORED, "INT64")
_MULTIPLIER = Slot(
    name="multiplier",
    description="In the scheme's convention: one, or one a channel.",
    datatypes=("INT64",),
)
_SHIFT = Slot(name="shift", description="In the scheme's convention: as many.", datatypes=("INT32",))

REQUANTIZE = Model(
    name="requantize",
    versions=("1",),
    description="Stored numbers, or accumulators, to another scale.",
    inputs=(
        Slot(name="x", description="Stored numbers, or accumulators.", datatypes=_STORED_INTEGERS),
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
def named_in_model(inputs: Mapping[str, InputTensor]) -> Iterator[None]:
    """Point at the parameter or the input that has what the error of a conversion is about."""
    try:
        yield
    except RequantError as error:
        field = error.pointer
        if field is not None and field.startswith("/multipliers"):
            error.pointer = inputs["shift" if field.endswith("/shift") else "multiplier"].pointer
        elif field is not None:
            error.pointer = f"/parameters{field}"
        raise


def check_input(x: InputTensor, planned: PlannedConversion) -> None:
    """Raise TensorDataError unless x is kept as the input of a conversion is, and has as many bytes if it is packed."""
    if planned.packed_in is None:
        x.check_kept(planned.plan.input_type.element, planned.input_dtype)
        return
    x.check_kept(_BYTES.element, _BYTES.dtype)
    with at(x.pointer):
        check_dense_bytes(prod(x.shape), planned.elements, planned.packed_in)


def report_of(result: ConversionResult) -> dict[str, Value]:
    """Return what a conversion did as the parameters of a reply."""
    planned = result.planned
    report: dict[str, Value] = {"output_type": planned.output_type, **result.report._asdict()}
    report["saturated"] = result.saturated
    report |= planned.scheme
    return report if result.error is None else report | error_measures(result.error)


def outputs_of(planned: PlannedConversion, data: Array | None, *, multipliers: bool) -> list[OutputTensor]:
    """Return y, whose data may be made later, and perhaps the multipliers and shifts of a requantization."""
    plan = planned.plan
    datatype = _BYTES if planned.packed_out else datatype_of(plan.output_type.element, plan.output_dtype)
    y = OutputTensor("y", datatype, planned.output_shape, data, planned.element)
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
