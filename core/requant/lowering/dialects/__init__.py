"""The dialects that a module may use. A context holds them all, is made once, and is never changed."""

from __future__ import annotations

from functools import cache

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.dialects.linalg import Linalg

from requant.lowering.dialects.stablehlo import StableHlo
from requant.lowering.dialects.stablehlo.operations import Chlo
from requant.lowering.dialects.tosa import Tosa
from requant.lowering.dialects.upstream import Arith, Quant, Shape, Tensor


@cache
def context() -> Context:
    """Return the context with every dialect loaded."""
    loaded = Context()
    for dialect in (Builtin, Func, Arith, Tensor, Linalg, Quant, Shape, StableHlo, Chlo, Tosa):
        loaded.load_dialect(dialect)
    return loaded
