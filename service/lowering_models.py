"""What the routes of modules read and answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field

from service.schemas import ReplyModel, RequestModel
from service.settings import MOST_ENTRIES

_MODULE = """func.func @main(%x: tensor<2xf32>) -> tensor<2x!quant.uniform<i8:f32, 0.5:3>> {
  %q = quant.qcast %x : tensor<2xf32> to tensor<2x!quant.uniform<i8:f32, 0.5:3>>
  return %q : tensor<2x!quant.uniform<i8:f32, 0.5:3>>
}
"""


class LowerRequest(RequestModel):
    """A module and the passes to run on it."""

    module: str = Field(
        description="MLIR text: functions, or one builtin.module of them, in the dialects builtin, func, arith, "
        "tensor, linalg, quant, shape, stablehlo, chlo and tosa.",
        examples=[_MODULE],
    )
    passes: Annotated[list[str], FailFast()] = Field(
        default=[],
        max_length=MOST_ENTRIES,
        description="Passes by their upstream names, in order, each `name` or `name{option=value}`. Without any the "
        "module is checked and printed.",
        examples=[["lower-quant-ops", "strip-func-quant-types"]],
    )


class LowerReply(ReplyModel):
    """The module after the passes."""

    module: str
