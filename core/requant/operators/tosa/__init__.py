"""TOSA's operators under the names of its specification."""

from __future__ import annotations

from requant.operators.description import Operator
from requant.operators.tosa.block_scaled import CAST_FROM_BLOCK_SCALED, CAST_TO_BLOCK_SCALED
from requant.operators.tosa.integer import AVG_POOL2D, MAX_POOL2D, MUL, TABLE
from requant.operators.tosa.rescale import RESCALE

OPERATORS: tuple[Operator, ...] = (
    RESCALE,
    MUL,
    TABLE,
    AVG_POOL2D,
    MAX_POOL2D,
    CAST_TO_BLOCK_SCALED,
    CAST_FROM_BLOCK_SCALED,
)
