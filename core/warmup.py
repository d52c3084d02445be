"""Make every kernel ready, so that no request waits for a compiler."""

from __future__ import annotations

# Imported for their kernels, which register themselves.
import core.kernels.dequantize
import core.kernels.quantize
import core.kernels.requantize  # noqa: F401
from core.kernels._jit import compile_kernels

__all__ = ["compile_kernels"]
