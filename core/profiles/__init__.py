"""The named arithmetic contracts, as data. Plans turn them into kernels; a kernel never looks one up.

A profile's bits never change: a correction gets a new name. Each names its source.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import UnknownNameError, excerpt
from core.formats.rounding import Rounding
from core.profiles.litert import LITERT, LITERT_SINGLE_ROUNDING, LITERT_XNNPACK
from core.profiles.ml_dtypes import ML_DTYPES
from core.profiles.mlir import MLIR
from core.profiles.onednn import ONEDNN
from core.profiles.onnx import ONNX, ONNX_REFERENCE
from core.profiles.quantile import QUANTILE
from core.profiles.rule import Operation, OperationRule, Profile, ZeroPoint
from core.profiles.stablehlo import STABLEHLO
from core.profiles.torch import TORCH, TORCH_2_14, TORCH_DECOMPOSED
from core.profiles.tosa import TOSA, TOSA_DOUBLE_ROUND

__all__ = ["PROFILES", "Operation", "OperationRule", "Profile", "Rounding", "ZeroPoint", "profile_named"]

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        STABLEHLO,
        MLIR,
        ONNX,
        ONNX_REFERENCE,
        ONEDNN,
        LITERT,
        LITERT_SINGLE_ROUNDING,
        LITERT_XNNPACK,
        TORCH,
        TORCH_2_14,
        TORCH_DECOMPOSED,
        ML_DTYPES,
        QUANTILE,
        TOSA,
        TOSA_DOUBLE_ROUND,
    )
}


def profile_named(name: str) -> Profile:
    """Return the profile of that name, or raise UnknownNameError listing those that exist."""
    profile = PROFILES.get(name)
    if profile is None:
        raise UnknownNameError(f"no profile is named '{excerpt(name)}'; there are {', '.join(PROFILES)}")
    return profile
