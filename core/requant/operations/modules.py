"""MLIR modules: passes that lower quantized operations.

Modules need xDSL, the extra `mlir`. It takes a third of a second to import, so the first module does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
from requant.errors import LimitError, UnavailableError, default_pointer

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
