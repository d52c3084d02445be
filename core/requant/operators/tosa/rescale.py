"""TOSA RESCALE with all of its operands as tensors, as TOSA 1.0 has it.

`requant.operators.tosa.rescale_plan` has the arithmetic and the conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from requant.description import Choices, Kind, TensorValue
from requant.errors import LimitError, RequantError, TypeFitError
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Outputs, Run, only_implementation
from requant.operators.tosa.rescale_plan import RescaleRounding, plan_rescale

_MAX_MULTIPLIERS = 1 << 16
_OPERANDS = ("input", "multiplier", "shift", "input_zp", "output_zp")
_SIDES = {"input": "/inputs/input", "output": "/inputs/output_zp"}


def _numbers(call: OperatorCall, name: str) -> list[int]:
    """Return the numbers of an operand of one dimension, or raise TypeFitError or LimitError."""
    operand = call.inputs[name]
    if len(operand.shape) != 1:
        raise TypeFitError(f"{name} has one dimension; this has {len(operand.shape)}", pointer=f"/inputs/{name}")
    if operand.data.size > _MAX_MULTIPLIERS:
        limit = _MAX_MULTIPLIERS
        raise LimitError(f"{name} has more than {limit} elements", limit=limit, pointer=f"/inputs/{name}")
    numbers: list[int] = operand.data.tolist()
    return numbers


def _zero_point(call: OperatorCall, name: str, of: str) -> int:
    """Return a zero point, which has the type of its side."""
    numbers = _numbers(call, name)
    if len(numbers) != 1:
        raise TypeFitError(f"{name} has 1 element; this has {len(numbers)}", pointer=f"/inputs/{name}")
    if name == "input_zp" and call.inputs[name].type.element != call.inputs[of].type.element:
        raise TypeFitError(f"{name} has the element type of {of}", pointer=f"/inputs/{name}")
    return numbers[0]


@contextmanager
def _placed() -> Iterator[None]:
    """Turn the pointers of the plan, to an operand's or attribute's name, into those of an operator's call."""
    try:
        yield
    except RequantError as error:
        if error.pointer is None:
            error.pointer = _SIDES.get(error.side or "input")
        elif not error.pointer.startswith("/inputs/"):
            # The place in a list is in the detail: operands are tensors here.
            name = error.pointer.split("/")[1]
            error.pointer = f"/{'inputs' if name in _OPERANDS else 'attributes'}/{name}"
        raise


def _check_widths(call: OperatorCall) -> None:
    """Raise TypeFitError unless multipliers have the element type that scale32 requires."""
    taken = "i32" if call.boolean("scale32") else "i16"
    element = call.inputs["multiplier"].type.element
    if getattr(element, "name", "") != taken:
        raise TypeFitError(
            f"with scale32 {str(call.boolean('scale32')).lower()} multipliers are {taken}", pointer="/inputs/multiplier"
        )


def _plan(call: OperatorCall) -> Run:
    source = call.inputs["input"]
    _check_widths(call)
    numbers = _numbers(call, "multiplier"), _numbers(call, "shift")
    named: dict[str, Any] = {
        **call.attributes,
        "rounding_mode": RescaleRounding(call.text("rounding_mode")),
        "input_zp": _zero_point(call, "input_zp", "input"),
        "output_zp": _zero_point(call, "output_zp", "output"),
    }
    with _placed():
        plan = plan_rescale(source.type, call.inputs["output_zp"].type.element, *numbers, **named)

    def run() -> Outputs:
        target = np.empty(plan.elements, plan.output_dtype)
        with _placed():
            plan.run(source.data, target)
        return {"output": TensorValue(plan.output_type, target)}

    return run


def _flag(name: str, description: str, *, default: bool = False) -> Attribute:
    return Attribute(name=name, kind=Kind.BOOLEAN, description=description, default=default)


SCALE32 = _flag("scale32", "Whether multipliers have 32 bits; else 16.", default=True)
_ONE = "One element, of the type of the {side}; of an unsigned one the signed bit pattern."

RESCALE = Operator(
    system="tosa",
    name="RESCALE",
    operation="rescaleTensors",
    summary="Rescale integers: subtract the zero point, multiply by multiplier * 2^-shift, add the zero point, clamp.",
    source="TOSA 1.0; 1.1 draft, which is the same; reference model of tosa-tools 2026.8.0",
    inputs=(
        Operand(
            name="input",
            description="Integers; unsigned values as their signed bit patterns.",
            types=dict.fromkeys(("i8", "i16", "i32", "i48"), 1),
        ),
        Operand(
            name="multiplier",
            description="Rank 1: one, or with per_channel one per index of the last dimension. i32 with scale32, "
            "else i16.",
            types={"i32": 1, "i16": 1},
        ),
        Operand(name="shift", description="One right shift per multiplier, 2 to 62.", types={"i8": 1}),
        Operand(
            name="input_zp",
            description=_ONE.format(side="input"),
            types=dict.fromkeys(("i8", "i16", "i32", "i48"), 1),
        ),
        Operand(
            name="output_zp",
            description=f"{_ONE.format(side='output')} Its type is that of the output.",
            types=dict.fromkeys(("i8", "i16", "i32"), 1),
        ),
    ),
    outputs=(
        Operand(
            name="output",
            description="Integers; unsigned values as their signed bit patterns.",
            types=dict.fromkeys(("i8", "i16", "i32"), 1),
        ),
    ),
    attributes=(
        SCALE32,
        Attribute(
            name="rounding_mode",
            kind=Kind.TEXT,
            description="INEXACT_ROUND is computed in f32, as TOSA's reference model does.",
            default=RescaleRounding.SINGLE_ROUND.value,
            choices=Choices("RescaleRounding", tuple(RescaleRounding), "TOSA's rounding_mode."),
        ),
        _flag("per_channel", "Whether each index of the last dimension has its own multiplier."),
        _flag("input_unsigned", "Whether the bits of the input are unsigned numbers."),
        _flag("output_unsigned", "Whether the bits of the output are unsigned numbers."),
    ),
    deviations=(
        "TOSA's attributes have no defaults; these are the values that compilers most often write.",
        "Results that TOSA calls unpredictable are errors, including in INEXACT_ROUND, where the reference model "
        "does not check.",
    ),
    implementations=only_implementation("tosa"),
    plan=_plan,
    example={
        "inputs": {
            "input": {"type": "tensor<2x2xi32>", "values": [1000, -2000, 3000, 70000]},
            "multiplier": {"type": "tensor<2xi32>", "values": [1073741824, 1431655765]},
            "shift": {"type": "tensor<2xi8>", "values": [38, 39]},
            "input_zp": {"type": "tensor<1xi32>", "values": [0]},
            "output_zp": {"type": "tensor<1xi8>", "values": [-1]},
        },
        "attributes": {"per_channel": True},
    },
)
