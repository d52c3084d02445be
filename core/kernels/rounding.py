"""Rounding of a float to an integral float, one primitive for each rule, as LLVM's own instructions.

Each maps to one instruction, or a short branch-free sequence, of every vector unit; numpy's and Python's roundings do
not vectorize inside numba (spec/perf.md 2.2). NaN and infinities pass through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from numba import types
from numba.core.base import BaseContext
from numba.extending import intrinsic


def _unary(name: str) -> Callable[[Any], Any]:
    @intrinsic
    def rounding(typing_context: Any, value: types.Type) -> tuple[Any, Callable[..., Any]]:
        def generate(context: BaseContext, builder: Any, signature: Any, arguments: Any) -> Any:
            (argument,) = arguments
            return builder.call(builder.module.declare_intrinsic(name, [argument.type]), [argument])

        return value(value), generate

    return cast(Callable[[Any], Any], rounding)


round_half_even = _unary("llvm.roundeven")
"""RNE: the nearest integer, ties to the even one. IEEE 754 roundToIntegralTiesToEven."""

round_half_away = _unary("llvm.round")
"""RNA: the nearest integer, ties away from zero. C's `round`."""
