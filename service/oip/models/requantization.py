"""Requantize as a model: stored numbers in and out, and the multipliers that it is done with."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from core.convert.requantize import plan_requantize
from core.errors import LimitError, ParameterError, PreconditionError, TypeFitError
from core.profiles import Operation
from core.schemes import SCHEMES, Multiplier, scheme_named
from service.http.problems import at
from service.oip.call import Call
from service.oip.datatypes import STORED
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
from service.oip.parameters import Kind, Parameter, pointer_to
from service.runtime.settings import MOST_ENTRIES

_HIGHEST_AXIS = 255
_STORED = (*STORED, "INT64")


def _given_multipliers(call: Call) -> list[Multiplier] | None:
    given = [call.inputs[name] for name in ("multiplier", "shift") if name in call.inputs]
    if not given:
        return None
    if len(given) == 1 or given[0].shape != given[1].shape or len(given[0].shape) != 1:
        raise TypeFitError("multiplier and shift come together, of one dimension and one length")
    if given[0].data.size > MOST_ENTRIES:
        raise LimitError(f"there are more than {MOST_ENTRIES} multipliers", limit=MOST_ENTRIES)
    return [Multiplier(*pair) for pair in zip(*(each.data.tolist() for each in given), strict=True)]


def _requantization(call: Call) -> Planned:
    x_type, packed_in = stored_type(call) if call.has("input_type") else (call.tensor_type("x", "input_type"), None)
    output_type = call.type("output_type")
    multipliers = _given_multipliers(call)
    with at(pointer_to("scheme")):
        scheme = scheme_named(call.text("scheme")).name if call.has("scheme") else None
    axis = call.integer("axis") if call.has("axis") else None
    of_multipliers = nullcontext() if multipliers is None else at("/multipliers", ParameterError, PreconditionError)
    with pointed(call), of_multipliers:
        plan = plan_requantize(x_type, output_type, call.text("profile"), multipliers, scheme=scheme, axis=axis)
    return Planned(plan, packed_in, dense_bits(call, plan.output_type))


def _plan(call: Call) -> Job:
    return job_of(call, _requantization)


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
        Slot(name="x", description="Stored numbers, or accumulators.", datatypes=_STORED),
        replace(_MULTIPLIER, datatypes=("INT64", "INT32"), optional=True),
        replace(_SHIFT, datatypes=("INT32", "INT64"), optional=True),
    ),
    outputs=(Slot(name="y", description="The quantized tensor.", datatypes=_STORED), _MULTIPLIER, _SHIFT),
    parameters=(
        replace(
            INPUT_TYPE,
            description=f"MLIR text: what x is. {BARE} Default: integers without a scale, which need multipliers.",
        ),
        OUTPUT_TYPE,
        profile_parameter(Operation.REQUANTIZE, "litert"),
        Parameter(
            name="scheme",
            description="Replaces the profile's scheme; accepts all integer types.",
            optional=True,
            choices=tuple(SCHEMES),
        ),
        Parameter(
            name="axis",
            kind=Kind.INTEGER,
            description="The dimension of several multipliers, if no type states it.",
            optional=True,
            highest=_HIGHEST_AXIS,
        ),
        PACKING,
    ),
    plan=_plan,
)
