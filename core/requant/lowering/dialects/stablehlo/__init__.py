"""The StableHLO dialect, as far as quantized programs and their lowerings use it."""

from __future__ import annotations

from xdsl.ir import Dialect

from requant.lowering.dialects.stablehlo.attributes import ATTRIBUTES
from requant.lowering.dialects.stablehlo.operations import OPERATIONS

StableHlo = Dialect("stablehlo", list(OPERATIONS.values()), ATTRIBUTES)
