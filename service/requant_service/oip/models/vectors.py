"""Test vectors as a model: inputs and expected results as tensors, everything else as JSON text."""

from __future__ import annotations

from typing import Any

import numpy as np

from requant.convert.quantize import NanPolicy
from requant.convert.quantize_plans import ROUNDINGS
from requant.convert.vectors.export import Table
from requant.convert.vectors.subject import Element
from requant.convert.vectors.vectors import DEFAULT_COUNT, MAX_VECTORS, MIN_PER_SET
from requant.description import Work
from requant.errors import InvalidRequestError, LimitError
from requant.operations.conversions import NAN, ROUNDING, SATURATE, SCHEME
from requant.operators.tosa.rescale_plan import RescaleRounding
from requant.operators.vectors import OPERATIONS
from requant.profiles import PROFILES
from requant.schemes import SCHEMES, Multiplier
from requant_service.http.responses import json_text
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES, datatype_of
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.parameter_tensors import parameter_tensor
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.parameters import Kind, Parameter, pointer_to
from requant_service.oip.tensors import Array, OutputTensor
from requant_service.operations.parameters.tensors import multipliers_of_tensors
from requant_service.operations.vectors import (
    BYTES_PER_VECTOR,
    CHARACTERS_PER_VECTOR,
    MAX_GIVEN,
    Format,
    VectorsCall,
    column_array,
    make_vectors,
    vectors_file,
    vectors_members,
)

_INT32 = DATATYPES["INT32"]
_PAIR = ("multiplier", "shift")
_FORMATS = (Format.JSON, Format.C_HEADER, Format.READMEMH)
_ANY = tuple(name for name in DATATYPES if name != "BOOL")


def _multipliers(call: Call) -> tuple[Multiplier, ...]:
    given = multipliers_of_tensors(*(parameter_tensor(call, name) if name in call.inputs else None for name in _PAIR))
    if given is not None and len(given) > MAX_GIVEN:
        raise LimitError(f"there are more than {MAX_GIVEN} multipliers", limit=MAX_GIVEN, pointer="/inputs")
    return given or ()


def _optional(call: Call, name: str) -> Any:
    return call.parameters[name]


def _optional_text(call: Call, name: str) -> str:
    return call.text(name) if call.has(name) else ""


def _plan(call: Call) -> Job:
    form = call.choice("format", Format)
    if form not in _FORMATS:
        detail = "this model returns the arrays as outputs; the formats are json, c_header and readmemh"
        raise InvalidRequestError.of_field(pointer_to("format"), "enum", detail)
    asked = VectorsCall(
        operation=call.text("operation"),
        input_type=call.text("input_type"),
        output_type=_optional_text(call, "output_type"),
        profile=_optional_text(call, "profile"),
        scheme=_optional_text(call, "scheme"),
        rounding=_optional_text(call, "rounding"),
        nan=call.choice("nan", NanPolicy) if call.has("nan") else None,
        saturate=call.boolean("saturate"),
        multipliers=_multipliers(call),
        input_zp=_optional(call, "input_zp"),
        output_zp=_optional(call, "output_zp"),
        scale32=call.boolean("scale32"),
        rounding_mode=call.choice("rounding_mode", RescaleRounding) if call.has("rounding_mode") else None,
        seed=call.integer("seed"),
        count=call.integer("count"),
    )

    def run() -> Answer:
        with pointing_into(call, multipliers="multiplier"):
            made = make_vectors(asked, call.settings)
        table = Table.of(made.found)
        places = np.array(table.places, _INT32.dtype)
        outputs = (
            _output("input", made.found.input, column_array(table.input)),
            _output("expected", made.found.output, column_array(table.expected)),
            OutputTensor("parameter_set", _INT32, places.shape, places, "i32"),
        )
        if form is not Format.JSON:
            return Answer(outputs, {"profile": made.profile, "text": vectors_file(made, form).decode()})
        said = {
            name: member if isinstance(member, str) else json_text(member).decode()
            for name, member in vectors_members(made).items()
        }
        return Answer(outputs, said)

    return Job(run, BYTES_PER_VECTOR * asked.count, CHARACTERS_PER_VECTOR * asked.count, Work.TEXTS)


def _output(name: str, element: Element, array: Array) -> OutputTensor:
    return OutputTensor(name, datatype_of(element, array.dtype), array.shape, array, element.name)


def _text(name: str, description: str, choices: tuple[str, ...] = ()) -> Parameter:
    return Parameter(name=name, description=description, optional=True, choices=choices)


def _zero_point(name: str) -> Parameter:
    return Parameter(
        name=name,
        description="tosa.RESCALE.",
        kind=Kind.INTEGER,
        optional=True,
        lowest=-(1 << 31),
        highest=(1 << 31) - 1,
    )


VECTORS = Model(
    name="vectors",
    versions=("1",),
    description="Inputs worth testing, each with the expected bits, the intermediate steps and the reasons for its "
    "selection.",
    inputs=(
        Slot(
            name="multiplier",
            description="requantize and tosa.RESCALE: one per parameter set.",
            datatypes=("INT64", "INT32"),
            optional=True,
        ),
        Slot(name="shift", description="One per multiplier.", datatypes=("INT32", "INT64"), optional=True),
    ),
    outputs=(
        Slot(name="input", description="The inputs, in storage form.", datatypes=_ANY),
        Slot(name="expected", description="The expected result of each input.", datatypes=_ANY),
        Slot(name="parameter_set", description="The index of each input's parameter set.", datatypes=("INT32",)),
    ),
    parameters=(
        Parameter(
            name="operation",
            description="quantize, dequantize, requantize, or an operator by its full name.",
            choices=tuple(OPERATIONS),
        ),
        Parameter(name="input_type", description="MLIR text of the element type."),
        _text("output_type", "MLIR text of the element type of the result. Required unless the operation dequantizes."),
        _text("profile", "Default: that of the operation.", tuple(PROFILES)),
        _text("scheme", f"requantize: {SCHEME.description}", tuple(SCHEMES)),
        _text("rounding", f"quantize: {ROUNDING.description} Not stochastic.", tuple(ROUNDINGS)),
        Parameter(name="nan", description=f"quantize: {NAN.description}", optional=True, choices=tuple(NanPolicy)),
        Parameter(name="saturate", description=f"quantize: {SATURATE.description}", kind=Kind.BOOLEAN, optional=True),
        _zero_point("input_zp"),
        _zero_point("output_zp"),
        Parameter(
            name="scale32",
            description="tosa.RESCALE: whether multipliers have 32 bits. Default: true.",
            kind=Kind.BOOLEAN,
            optional=True,
        ),
        Parameter(name="rounding_mode", description="tosa.RESCALE.", optional=True, choices=tuple(RescaleRounding)),
        Parameter(name="seed", description="Seed of the random vectors and parameters.", kind=Kind.INTEGER, default=0),
        Parameter(
            name="count",
            description="Maximum number of vectors.",
            kind=Kind.INTEGER,
            default=DEFAULT_COUNT,
            lowest=MIN_PER_SET,
            highest=MAX_VECTORS,
        ),
        Parameter(
            name="format",
            description="json: the response parameters formula, parameter_sets and vectors are JSON. c_header and "
            "readmemh: the response parameter text is the file.",
            default=str(Format.JSON),
            choices=_FORMATS,
        ),
    ),
    plan=_plan,
)
