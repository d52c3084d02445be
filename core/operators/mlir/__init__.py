"""The operators of MLIR's quant dialect."""

from __future__ import annotations

from core.operators.description import Operator
from core.operators.mlir.casts import DCAST, QCAST, SCAST

OPERATORS: tuple[Operator, ...] = (QCAST, DCAST, SCAST)
