"""Multipliers and shifts from real factors, or from the scales that a factor is made of, as a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np

from requant.description import Work
from requant.errors import InvalidRequestError, RequantError, TypeFitError
from requant.schemes import SCHEMES
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.parameters import Parameter
from requant_service.oip.tensors import InputTensor, OutputTensor, integers_output, real_numbers, reals_output
from requant_service.operations.parameters.multipliers import (
    Scales,
    derivation_characters,
    derive_from_each_scales,
    derive_from_factors,
    scheme_for,
)

_INT32 = DATATYPES["INT32"]
_NUMBERS = ("FP64", "FP32", "FP16", "BF16")
# What the numbers of a multiplier and their texts take while they are derived.
_BYTES_OF_MULTIPLIER = 4096


_SIDES = ("input", "weight", "output")


def _texts(tensor: InputTensor) -> list[str]:
    """Return the numbers of a tensor as texts that read back to them."""
    return [repr(number) for number in real_numbers(tensor).tolist()]


def _check_one_source(call: Call) -> None:
    """Raise InvalidRequestError unless there are factors, or scales of an input and an output."""
    given = {side for side in _SIDES if f"{side}_scale" in call.inputs}
    if ("factor" in call.inputs) == bool(given) or (given and not {"input", "output"} <= given):
        detail = "exactly one of factor and the scales is required, which are input_scale, output_scale, weight_scale"
        raise InvalidRequestError.of_field("/inputs", "factors_form", detail)


def _scales(call: Call, count: int) -> list[Scales]:
    """Return the scales of each factor: those at its index, or the one that an input has for all."""
    found: dict[str, list[str] | list[None]] = {}
    for side in _SIDES:
        tensor = call.inputs.get(f"{side}_scale")
        texts = [None] if tensor is None else _texts(tensor)
        if len(texts) not in (1, count):
            detail = f"there are {len(texts)} scales, and {count} of another input; expected one, or as many"
            raise TypeFitError(detail, pointer=None if tensor is None else tensor.pointer)
        found[side] = texts * count if len(texts) == 1 else texts
    return [
        (str(given), weight, str(output))
        for given, weight, output in zip(found["input"], found["weight"], found["output"], strict=True)
    ]


@contextmanager
def _pointing_at_numbers(call: Call) -> Iterator[None]:
    """Point at the input that has the factor or the scale at fault."""
    try:
        with pointing_into(call, factors="factor"):
            yield
    except RequantError as error:
        _, scales, *rest = (error.pointer or "/").split("/")
        if scales == "scales":
            error.pointer = call.inputs[f"{rest[-1] if len(rest) > 1 else 'input'}_scale"].pointer
        raise


def _plan(call: Call) -> Job:
    _check_one_source(call)
    by_factor = "factor" in call.inputs
    numbers = [tensor for tensor in call.inputs.values() if tensor.data.size > 1] or [*call.inputs.values()]
    longest = max(numbers, key=lambda tensor: tensor.data.size)
    count, shape = longest.data.size, longest.shape
    with _pointing_at_numbers(call):
        scheme = scheme_for(call.text("scheme"), count, "factors" if by_factor else "scales", call.settings)
        scales = [] if by_factor else _scales(call, count)

    def run() -> Answer:
        with _pointing_at_numbers(call):
            if by_factor:
                found = derive_from_factors(_texts(call.inputs["factor"]), scheme)
            else:
                found = derive_from_each_scales(scales, scheme)
        shifts = np.array([each.shift for each in found], _INT32.dtype)
        outputs = (
            integers_output("multiplier", shape, np.array([each.multiplier for each in found], np.int64)),
            OutputTensor("shift", _INT32, shape, shifts, "i32"),
            reals_output("represented", shape, np.array([_nearest(each.fraction) for each in found])),
            reals_output("factor", shape, np.array([float(each.factor) for each in found])),
            reals_output("relative_error", shape, np.array([each.relative_error for each in found])),
        )
        return Answer(outputs, {"scheme": scheme})

    return Job(run, _BYTES_OF_MULTIPLIER * count, derivation_characters(count), Work.TEXTS)


def _nearest(fraction: str) -> float:
    """Return the double nearest to a number, which may be beyond the largest."""
    try:
        return float(Fraction(fraction))
    except OverflowError:
        return math.inf


def _scale(side: str, *, said: str = "One, or one a factor.") -> Slot:
    return Slot(name=f"{side}_scale", description=said, datatypes=_NUMBERS, optional=True)


DERIVE_MULTIPLIER = Model(
    name="derive_multiplier",
    versions=("1",),
    description="Derive the integer multiplier and shift for each factor, and the value that they represent.",
    inputs=(
        Slot(
            name="factor",
            description="Real factors. Give either these or scales.",
            datatypes=_NUMBERS,
            optional=True,
        ),
        _scale("input", said="Scales, from which the scheme computes factors in its own precision: one, or one each."),
        _scale("weight", said="Of the second operand of a product. Default: none."),
        _scale("output"),
    ),
    outputs=(
        Slot(name="multiplier", description="One per factor.", datatypes=("INT64",)),
        Slot(name="shift", description="In the scheme's own sign convention.", datatypes=("INT32",)),
        Slot(
            name="represented",
            description="The value that multiplier and shift represent, as the nearest binary64.",
            datatypes=("FP64",),
        ),
        Slot(name="factor", description="The factor that they were derived from.", datatypes=("FP64",)),
        Slot(name="relative_error", description="represented / factor - 1, of the exact value.", datatypes=("FP64",)),
    ),
    parameters=(Parameter(name="scheme", description="The scheme to derive them by.", choices=tuple(SCHEMES)),),
    plan=_plan,
)
