"""Quantize and dequantize as models: one tensor in, one out."""

from __future__ import annotations

from dataclasses import replace

from core.convert.dequantize import plan_dequantize
from core.convert.quantize import ROUNDINGS, NanPolicy, plan_quantize, rounding_named
from core.errors import FieldFault, InvalidRequestError, TypeFitError
from core.formats.elements import FloatElement, IntegerElement
from core.mlir.types import StorageType, TensorType, Type
from core.plan.operands import float_element
from core.profiles import Operation
from service.http.problems import at
from service.json_api.schemas.conversions import SATURATE
from service.oip.call import Call
from service.oip.datatypes import NARROW_FLOATS, REALS, STORED
from service.oip.models.conversion_job import (
    BARE,
    INPUT_TYPE,
    OUTPUT_TYPE,
    PACKING,
    Planned,
    dense_bits,
    job_of,
    pointed,
    profile_parameter,
    stored_type,
)
from service.oip.models.model import Job, Model, Slot
from service.oip.models.parameter_tensors import (
    AXIS,
    SCALE,
    STORAGE_TYPE,
    ZERO_POINT,
    check_one_source,
    type_of_tensors,
)
from service.oip.parameters import Kind, Parameter, pointer_to

_STORED = (*STORED, *NARROW_FLOATS)
_STORED_NUMBERS = "Stored numbers, or floats of at most 16 bits."


def _quantization(call: Call) -> Planned:
    x_type = call.tensor_type("x", "input_type")
    output_type: Type
    if check_one_source(call, "output_type"):
        output_type = type_of_tensors(call, float_element(x_type, "input"))
    else:
        output_type = call.type("output_type")
    with at(pointer_to("rounding")):
        rounding = rounding_named(call.text("rounding")) if call.has("rounding") else None
    with pointed(call):
        plan = plan_quantize(
            x_type,
            output_type,
            call.text("profile"),
            rounding=rounding,
            nan=call.choice("nan", NanPolicy),
            seed=call.integer("seed"),
            saturate=call.boolean("saturate"),
        )
    return Planned(plan, packed_out=dense_bits(call, plan.output_type))


def _plan_quantize(call: Call) -> Job:
    return job_of(call, _quantization, measured=call.boolean("error") is True)


QUANTIZE = Model(
    name="quantize",
    versions=("1",),
    description="Quantize, or cast to a narrower float.",
    inputs=(Slot(name="x", description="The real tensor.", datatypes=REALS), SCALE, ZERO_POINT),
    outputs=(Slot(name="y", description=_STORED_NUMBERS, datatypes=_STORED),),
    parameters=(
        replace(
            OUTPUT_TYPE,
            description=f"{OUTPUT_TYPE.description} Required unless the input scale is given.",
            optional=True,
        ),
        INPUT_TYPE,
        STORAGE_TYPE,
        AXIS,
        profile_parameter(Operation.QUANTIZE, "stablehlo"),
        Parameter(
            name="rounding", description="Replaces the profile's rounding.", optional=True, choices=tuple(ROUNDINGS)
        ),
        Parameter(
            name="nan",
            description="The result of NaN.",
            default=str(NanPolicy.PROFILE),
            choices=tuple(NanPolicy),
        ),
        Parameter(name="seed", kind=Kind.INTEGER, description="Seed of stochastic rounding.", default=0),
        Parameter(name="saturate", kind=Kind.BOOLEAN, description=SATURATE, optional=True),
        Parameter(
            name="error",
            kind=Kind.BOOLEAN,
            description="Whether to report the error against the input.",
            default=False,
        ),
        PACKING,
    ),
    plan=_plan_quantize,
)


def _type_of_x(call: Call) -> tuple[TensorType, int | None]:
    """Return what the stored numbers x are, and the bits of one if they are packed."""
    x = call.inputs["x"]
    if not check_one_source(call, "input_type"):
        return stored_type(call)
    expressed, kept = call.inputs["scale"].datatype.element, x.datatype.element
    assert isinstance(expressed, FloatElement)
    if not isinstance(kept, IntegerElement):
        detail = f"with the input scale, x is {', '.join(STORED)}; not {x.datatype.name}"
        raise InvalidRequestError(detail, (FieldFault(f"{x.pointer}/datatype", "enum", detail),))
    storage = StorageType.unbounded(IntegerElement(kept.width), signed=kept.signed)
    found = TensorType(x.shape, type_of_tensors(call, expressed, storage))
    if dense_bits(call, found) is not None:
        raise TypeFitError("packed numbers need a tensor type in input_type; bytes do not tell its shape")
    return found, None


def _dequantization(call: Call) -> Planned:
    x_type, packed_in = _type_of_x(call)
    output_type = call.type("output_type") if call.has("output_type") else None
    with pointed(call):
        plan = plan_dequantize(x_type, output_type, call.text("profile"))
    return Planned(plan, packed_in)


def _plan_dequantize(call: Call) -> Job:
    return job_of(call, _dequantization)


DEQUANTIZE = Model(
    name="dequantize",
    versions=("1",),
    description="Stored numbers, or small floats, to real numbers.",
    inputs=(Slot(name="x", description=_STORED_NUMBERS, datatypes=_STORED), SCALE, ZERO_POINT),
    outputs=(Slot(name="y", description="The real tensor.", datatypes=REALS),),
    parameters=(
        replace(INPUT_TYPE, description=f"MLIR text: what x is. {BARE} Required unless the input scale is given."),
        replace(OUTPUT_TYPE, description=f"{OUTPUT_TYPE.description} Default: the expressed type.", optional=True),
        STORAGE_TYPE,
        AXIS,
        profile_parameter(Operation.DEQUANTIZE, "stablehlo"),
        PACKING,
    ),
    plan=_plan_dequantize,
)
