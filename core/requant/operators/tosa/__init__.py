"""TOSA's operators under the names of its specification."""

from __future__ import annotations

from requant.operators.description import Operator
from requant.operators.tosa.block_scaled import CAST_FROM_BLOCK_SCALED, CAST_TO_BLOCK_SCALED
from requant.operators.tosa.rescale import RESCALE

OPERATORS: tuple[Operator, ...] = (RESCALE, CAST_TO_BLOCK_SCALED, CAST_FROM_BLOCK_SCALED)
