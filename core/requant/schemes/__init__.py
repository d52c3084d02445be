"""The named schemes: how each system finds multiplier and shift for a real factor, and how it multiplies by them.

Finding is arithmetic on one number, in Python's exact integers and fractions; multiplying is the kernels'
(`requant.kernels.convert.requantize.rules`).
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.errors.names import entry_named
from requant.schemes import cmsis_nn, ethos_u, fbgemm, gemmlowp, litert, onnx, riscv, stablehlo, tosa, xnnpack
from requant.schemes.scheme import Factor, FixedPoint, Float, Multiplier, Prepared, Scheme, Sum

__all__ = ["SCHEMES", "Factor", "FixedPoint", "Float", "Multiplier", "Prepared", "Scheme", "Sum", "scheme_named"]

_FAMILIES = (litert, gemmlowp, cmsis_nn, ethos_u, xnnpack, fbgemm, onnx, stablehlo, tosa, riscv)

SCHEMES: Mapping[str, Scheme] = {scheme.name: scheme for family in _FAMILIES for scheme in family.SCHEMES}


def scheme_named(name: str) -> Scheme:
    """Return the scheme of that name, or raise UnknownNameError listing those that exist."""
    return entry_named(SCHEMES, name, "scheme")
