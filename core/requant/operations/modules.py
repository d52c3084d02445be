"""MLIR modules: passes that lower quantized operations, and functions run on tensors.

Modules need xDSL, the extra `mlir`. It takes a third of a second to import, so the first module does it.

An evaluation is no `Operation`: how many tensors it takes, of which types, and how many it gives is said by the module,
which is read when the tensors are there. Its options and its run are here, and each face has its own tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from requant.description import (
    Array,
    Kind,
    Member,
    ModuleLimits,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Result,
    Work,
)
from requant.errors import LimitError, LoweringError, PreconditionError, UnavailableError, default_pointer
from requant.mlir.types import ElementType, TensorType, Type
from requant.plan.operands import static_shape

if TYPE_CHECKING:
    from requant.lowering.module import Module

_QUANTIZED = "tensor<2x!quant.uniform<i8:f32, 0.5:3>>"
_LOWERED = (
    f"func.func @main(%x: tensor<2xf32>) -> {_QUANTIZED} {{\n"
    f"  %q = quant.qcast %x : tensor<2xf32> to {_QUANTIZED}\n  return %q : {_QUANTIZED}\n}}\n"
)
_PASSES = ("lower-quant-ops", "strip-func-quant-types")

MODULE = Option(
    name="module",
    description="MLIR text: functions, or one builtin.module of them, in the dialects builtin, func, arith, tensor, "
    "linalg, quant, shape, stablehlo, chlo and tosa.",
    examples=(_LOWERED,),
    document=True,
)
FUNCTION = Option(name="function", description="Default: main, or the only function with a body.", default="")


@contextmanager
def xdsl_needed() -> Iterator[None]:
    """Say what is to be installed where xDSL is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "xdsl":
            raise
        raise UnavailableError("MLIR modules need xDSL: run pip install '.[mlir]' in the repository") from error


def read_text(text: str, limits: ModuleLimits) -> Module:
    """Read a module. Raise what `requant.lowering.module.read_module` does, at `/module`."""
    with xdsl_needed():
        from requant.lowering.module import read_module

    limit = limits.characters
    with default_pointer("/module"):
        if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
            raise LimitError(f"the module has more than {limit} bytes", limit=limit)
        return read_module(text, limits)


def _plan(call: OperationCall) -> PlannedWork:
    text, passes, limits = call.options["module"], call.options["passes"], call.limits
    if len(passes) > limits.passes:
        detail = f"there are {len(passes)} passes; the limit is {limits.passes}"
        raise LimitError(detail, limit=limits.passes, pointer="/passes")

    def run(_: Mapping[str, Array]) -> Result:
        with xdsl_needed():
            from requant.lowering.passes import apply, parse_pass

        parsed = []
        for index, each in enumerate(passes):
            with default_pointer(f"/passes/{index}"):
                parsed.append(parse_pass(each))
        module = read_text(text, limits.module)
        with default_pointer("/module"):
            apply(module, parsed)
            return Result(report={"module": module.write()})

    return PlannedWork(operands={}, run=run, byte_count=0)


LOWER = Operation(
    name="lower",
    title="Lower a module",
    group="modules",
    summary="Run passes on a module and print the result.",
    request="A module and the passes to run.",
    source="MLIR, StableHLO",
    inputs=(),
    options=(
        MODULE,
        Option(
            name="passes",
            kind=Kind.TEXTS,
            description="Passes by their upstream names, in order, each `name` or `name{option=value}`. If empty, the "
            "module is verified and printed.",
            default=(),
            examples=(list(_PASSES),),
            model_description="Passes by their upstream names, in order, each `name` or `name{option=value}`: a JSON "
            "list as text. Without any, the module is verified and printed.",
        ),
    ),
    reply=(Member(name="module", kind=Kind.TEXT),),
    reply_title="LowerReply",
    reply_description="The module after the passes.",
    plan=_plan,
    example={"module": _LOWERED, "passes": list(_PASSES)},
    work=Work.MODULES,
    model_summary="Run passes on a module and return the result in the response parameter `module`.",
)

_BOOL = np.dtype(np.bool_)
_BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class TypedElements:
    """The flat elements of a tensor. Those of i1 are bytes of 0 and 1, those of bf16 bit patterns in uint16."""

    type: TensorType
    elements: Array


ReadInputs = Callable[[Sequence[Type]], Sequence[TypedElements]]


def evaluate_module(text: str, function: str, read_inputs: ReadInputs, limits: ModuleLimits) -> list[TypedElements]:
    """Return the results of a function of the module in `text`, an empty name being `main` or the only one.

    `read_inputs` returns the inputs, given the types of the function's arguments. Errors point at `/module`, at
    `/function`, or at an input by its index: `/inputs/0`.
    """
    with xdsl_needed():
        from requant.lowering.evaluate import Tensor, evaluate, function_named
        from requant.lowering.quantized import type_of

    module = read_text(text, limits)
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
    return [TypedElements(each.type, exchanged(np.ascontiguousarray(each.elements).reshape(-1))) for each in results]


def evaluation_bytes(limits: ModuleLimits) -> int:
    """Return how much memory an evaluation may take."""
    return 2 * limits.evaluation_bytes


def exchanged_dtype(element: ElementType) -> np.dtype[Any]:
    """Return the dtype of the elements that go into an evaluation. Raise UnsupportedError for a type without one."""
    dtype = _evaluated_dtype(element)
    return np.dtype(np.int8) if dtype == _BOOL else np.dtype(np.uint16) if dtype.name == _BFLOAT16 else dtype


def _evaluated_dtype(element: ElementType) -> np.dtype[Any]:
    from requant.lowering.evaluate.arrays import dtype_of

    return dtype_of(element)


def exchanged(elements: Array) -> Array:
    """Return elements that come out of an evaluation in their exchanged dtype."""
    if elements.dtype == _BOOL:
        return elements.view(np.int8)
    return elements.view(np.uint16) if elements.dtype.name == _BFLOAT16 else elements
