"""MLIR modules: functions run on tensors.

xDSL takes a third of a second to import, so the first module does it, in the thread of modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import LimitError, LoweringError, PreconditionError, default_pointer
from requant.mlir.types import ElementType, TensorType, Type
from requant.operations.modules import read_text
from requant.plan.operands import static_shape
from requant_service.operations.described import limits_of
from requant_service.runtime.settings import Settings

Array = NDArray[Any]

_BOOL = np.dtype(np.bool_)
_BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class TypedElements:
    """The flat elements of a tensor. Those of i1 are bytes of 0 and 1, those of bf16 bit patterns in uint16."""

    type: TensorType
    elements: Array


ReadInputs = Callable[[Sequence[Type]], Sequence[TypedElements]]


def evaluate_module(text: str, function: str, read_inputs: ReadInputs, settings: Settings) -> list[TypedElements]:
    """Return the results of a function of the module in `text`, an empty name being `main` or the only one.

    `read_inputs` returns the inputs, given the types of the function's arguments. Errors point at `/module`, at
    `/function`, or at an input by its index: `/inputs/0`.
    """
    from requant.lowering.evaluate import Tensor, evaluate, function_named
    from requant.lowering.quantized import type_of

    module = read_text(text, limits_of(settings).module)
    with default_pointer("/function"):
        found = function_named(module, function or None)
    with default_pointer("/module"):
        arguments = [type_of(argument.type) for argument in found.body.block.args]
    inputs = []
    for given in read_inputs(arguments):
        dtype = _evaluated_dtype(given.type.element)
        elements = given.elements != 0 if dtype == _BOOL else given.elements.view(dtype)
        inputs.append(Tensor(given.type, elements.reshape(static_shape(given.type))))
    with default_pointer("/module", LoweringError, PreconditionError, LimitError):
        results = evaluate(module, found, inputs)
    return [TypedElements(each.type, _exchanged(np.ascontiguousarray(each.elements).reshape(-1))) for each in results]


def evaluation_bytes(settings: Settings) -> int:
    """Return how much memory an evaluation may take."""
    return 2 * settings.max_evaluation_bytes


def exchanged_dtype(element: ElementType) -> np.dtype[Any]:
    """Return the dtype of the elements that go into an evaluation. Raise UnsupportedError for a type without one."""
    dtype = _evaluated_dtype(element)
    return np.dtype(np.int8) if dtype == _BOOL else np.dtype(np.uint16) if dtype.name == _BFLOAT16 else dtype


def _evaluated_dtype(element: ElementType) -> np.dtype[Any]:
    from requant.lowering.evaluate.arrays import dtype_of

    return dtype_of(element)


def _exchanged(elements: Array) -> Array:
    if elements.dtype == _BOOL:
        return elements.view(np.int8)
    return elements.view(np.uint16) if elements.dtype.name == _BFLOAT16 else elements
