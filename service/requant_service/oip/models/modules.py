"""MLIR modules as models: functions run on tensors.

A module is a text and so a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.description import Work
from requant.errors import RequantError, TensorDataError, excerpt
from requant.formats.elements import IntegerElement
from requant.mlir import print_type
from requant.mlir.types import ElementType, Type
from requant.operations.modules import (
    FUNCTION,
    MODULE,
    TypedElements,
    evaluate_module,
    evaluation_bytes,
    exchanged_dtype,
)
from requant.plan.operands import bind, element_name, static_shape
from requant_service.oip.call import Call
from requant_service.oip.datatypes import BOOL, DATATYPES, Datatype, datatype_of
from requant_service.oip.models.described import parameter_of
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.tensors import InputTensor, OutputTensor
from requant_service.operations.described import limits_of

_ANY = ("FP32", *(name for name in DATATYPES if name != "FP32"))


def _datatype(element: ElementType, dtype: np.dtype[Any]) -> Datatype:
    """Return what elements travel as that an evaluation takes, or gives, as `dtype`."""
    is_bit = isinstance(element, IntegerElement) and element.width == 1
    return BOOL if is_bit else datatype_of(element, dtype)


def _read(tensor: InputTensor, argument: Type) -> TypedElements:
    """Return an input as the type of its argument says, or raise TypeFitError or TensorDataError."""
    bound = bind(argument, tensor.shape)
    expected = _datatype(bound.element, exchanged_dtype(bound.element))
    if tensor.datatype.dtype != expected.dtype or (expected is BOOL and tensor.datatype is not BOOL):
        raise TensorDataError(
            f"input {tensor.name} is {tensor.datatype.name}; elements of {excerpt(print_type(bound.element))} "
            f"travel as {expected.name}"
        )
    return TypedElements(bound, tensor.data.view(np.int8) if expected is BOOL else tensor.data)


def _output(name: str, result: TypedElements) -> OutputTensor:
    element, elements = result.type.element, result.elements
    datatype = _datatype(element, elements.dtype)
    return OutputTensor(name, datatype, static_shape(result.type), elements.view(datatype.dtype), element_name(element))


def _plan_evaluate(call: Call) -> Job:
    tensors, limits = call.several("input"), limits_of(call.settings).module

    def read_inputs(arguments: Sequence[Type]) -> list[TypedElements]:
        found = []
        for index, tensor in enumerate(tensors):
            try:
                # How many there have to be is the evaluation's to say.
                found.append(_read(tensor, arguments[index] if index < len(arguments) else tensor.datatype.element))
            except RequantError as error:
                error.pointer = f"/inputs/{index}"
                raise
        return found

    def run() -> Answer:
        with pointing_into(call, inputs="input"):
            results = evaluate_module(call.text("module"), call.text("function"), read_inputs, limits)
        return Answer(tuple(_output(f"output_{index}", result) for index, result in enumerate(results)), {})

    return Job(run, evaluation_bytes(limits), work=Work.MODULES)


EVALUATE = Model(
    name="evaluate",
    versions=("1",),
    description="Evaluate a function of a module, quantized or lowered, on tensors.",
    inputs=(
        Slot(
            name="input",
            description="One tensor per argument, with the argument's element type. Scalars are tensors of rank 0; "
            "i1 values are BOOL.",
            datatypes=_ANY,
            optional=True,
            variadic=True,
        ),
    ),
    outputs=(Slot(name="output", description="One tensor per result.", datatypes=_ANY, variadic=True),),
    parameters=(
        parameter_of(MODULE),
        parameter_of(FUNCTION),
    ),
    plan=_plan_evaluate,
)
