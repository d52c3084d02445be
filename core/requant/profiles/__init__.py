"""The named arithmetic contracts, as data. Plans turn them into kernels; a kernel never looks one up.

A profile's bits never change: a correction gets a new name. Each names its source.
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.errors.names import entry_named
from requant.formats.rounding import Rounding
from requant.profiles import floats, litert, ml_dtypes, mlir, onednn, onnx, quantile, stablehlo, torch, tosa
from requant.profiles.rule import Operation, OperationRule, Profile, ZeroPoint

__all__ = [
    "DEFAULT_PROFILES",
    "PROFILES",
    "Operation",
    "OperationRule",
    "Profile",
    "Rounding",
    "ZeroPoint",
    "profile_named",
]

_FAMILIES = (stablehlo, mlir, onnx, onednn, litert, torch, ml_dtypes, quantile, tosa, floats)

PROFILES: Mapping[str, Profile] = {profile.name: profile for family in _FAMILIES for profile in family.PROFILES}

DEFAULT_PROFILES: Mapping[Operation, str] = {
    Operation.QUANTIZE: "stablehlo",
    Operation.DEQUANTIZE: "stablehlo",
    Operation.REQUANTIZE: "litert",
}
"""What is meant where a conversion names none."""


def profile_named(name: str) -> Profile:
    """Return the profile of that name, or raise UnknownNameError listing those that exist."""
    return entry_named(PROFILES, name, "profile")
