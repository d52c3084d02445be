"""Test vectors as a model: inputs and expected results as tensors, everything else as JSON text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from requant.convert.vectors.export import Table, column_array
from requant.convert.vectors.subject import Element
from requant.description import Option, Work
from requant.errors import InvalidRequestError, LimitError
from requant.operations.vectors import (
    BYTES_PER_VECTOR,
    CHARACTERS_PER_VECTOR,
    MAX_GIVEN,
    VECTORS,
    Format,
    VectorsCall,
    make_vectors,
    vectors_file,
    vectors_members,
)
from requant.operators.vectors import OPERATIONS
from requant.schemes import Multiplier
from requant_service.http.responses import json_text
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES, datatype_of
from requant_service.oip.models.described import option_value, parameter_of
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.parameter_tensors import parameter_tensor
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.parameters import Parameter, pointer_to
from requant_service.oip.tensors import Array, OutputTensor
from requant_service.operations.parameters.tensors import multipliers_of_tensors
from requant_service.operations.types import read_type

_INT32 = DATATYPES["INT32"]
_PAIR = ("multiplier", "shift")
_FORMATS = (Format.JSON, Format.C_HEADER, Format.READMEMH)
_ANY = tuple(name for name in DATATYPES if name != "BOOL")


def _multipliers(call: Call) -> tuple[Multiplier, ...]:
    given = multipliers_of_tensors(*(parameter_tensor(call, name) if name in call.inputs else None for name in _PAIR))
    if given is not None and len(given) > MAX_GIVEN:
        raise LimitError(f"there are more than {MAX_GIVEN} multipliers", limit=MAX_GIVEN, pointer="/inputs")
    return given or ()


def _plan(call: Call) -> Job:
    options = {each.name: option_value(call, each) for each in VECTORS.options}
    form = options.pop("format")
    if form not in _FORMATS:
        detail = "this model returns the arrays as outputs; the formats are json, c_header and readmemh"
        raise InvalidRequestError.of_field(pointer_to("format"), "enum", detail)
    stated = {name: value for name, value in options.items() if value is not None}
    asked = VectorsCall(**stated, multipliers=_multipliers(call))
    limit = call.settings.max_type_bytes

    def run() -> Answer:
        with pointing_into(call, multipliers="multiplier"):
            made = make_vectors(asked, lambda text, place: read_type(text, limit, place))
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


def _parameter(option: Option) -> Parameter:
    """Return an option as a parameter. Arrays are outputs, so there is no archive of them."""
    choices = {"operation": tuple(OPERATIONS), "format": _FORMATS}
    found = parameter_of(option)
    return replace(found, choices=choices.get(option.name, found.choices))


VECTORS_MODEL = Model(
    name=VECTORS.name,
    versions=("1",),
    description=VECTORS.summary,
    inputs=tuple(
        Slot(name=each.model_name, description=each.description, datatypes=datatypes, optional=True)
        for each, datatypes in zip(VECTORS.numbers, (("INT64", "INT32"), ("INT32", "INT64")), strict=True)
    ),
    outputs=(
        Slot(name="input", description="The inputs, in storage form.", datatypes=_ANY),
        Slot(name="expected", description="The expected result of each input.", datatypes=_ANY),
        Slot(name="parameter_set", description="The index of each input's parameter set.", datatypes=("INT32",)),
    ),
    parameters=tuple(_parameter(each) for each in VECTORS.options),
    plan=_plan,
)
