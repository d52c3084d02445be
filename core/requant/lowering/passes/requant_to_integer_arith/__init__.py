"""`requant-to-integer-arith`, a pass of ours: quantized operations as integer `arith` in loops of `linalg`.

Sums of products, corrected for zero points; a bias; a multiplier and a shift with rounding; the output's zero point; a
clamp: in the fixed point of a profile or a scheme, whose plans say which numbers (`requant.convert.requantize`,
`requant.integer`).
"""

from __future__ import annotations

from requant.lowering.module import Module
from requant.lowering.passes.requant_to_integer_arith.lowering import Lowering
from requant.lowering.passes.requant_to_integer_arith.profile import OPTIONS, Choice
from requant.lowering.passes.rewriting import Options, Pass

__all__ = ["REQUANT_TO_INTEGER_ARITH"]


def _lower(module: Module, options: Options) -> None:
    Lowering(module, Choice.of(options)).run()


REQUANT_TO_INTEGER_ARITH = Pass(
    "requant-to-integer-arith",
    "quantized operations and tosa.rescale as integer arithmetic of arith and linalg, in the fixed point of a profile",
    _lower,
    OPTIONS,
)
