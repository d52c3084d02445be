"""The cases of `tests/vectors`, made by the real systems, in one form that core and every HTTP face are tested with.

What a file holds beyond the operations that exist here (other element types, other systems' rules) is skipped by name,
so that nothing is skipped by accident.
"""

from __future__ import annotations

from tests.vector_cases.calibration import CalibrationCase, calibration_cases
from tests.vector_cases.conversion import Array, Conversion, Derivation, load
from tests.vector_cases.fake_quant import FakeQuantCase, fake_quant_cases
from tests.vector_cases.fixed_point import fixed_point_conversions, fixed_point_derivations, tosa_conversions
from tests.vector_cases.float8 import float8_conversions
from tests.vector_cases.litert import litert_conversions
from tests.vector_cases.mlir import mlir_conversions, stablehlo_conversions
from tests.vector_cases.onednn import onednn_conversions
from tests.vector_cases.onnx import onnx_conversions
from tests.vector_cases.ranges import RangeCase, range_cases
from tests.vector_cases.rescaling_passes import rescaling_conversions, rescaling_derivations
from tests.vector_cases.schemes import scheme_conversions, scheme_derivations
from tests.vector_cases.torch import torch_conversions

__all__ = [
    "Array",
    "CalibrationCase",
    "Conversion",
    "Derivation",
    "FakeQuantCase",
    "RangeCase",
    "calibration_cases",
    "conversions",
    "derivations",
    "fake_quant_cases",
    "load",
    "range_cases",
]


def conversions() -> list[Conversion]:
    """All conversions of the vectors."""
    return [
        *onnx_conversions(),
        *litert_conversions(),
        *fixed_point_conversions(),
        *tosa_conversions(),
        *onednn_conversions(),
        *torch_conversions(),
        *mlir_conversions(),
        *stablehlo_conversions(),
        *float8_conversions(),
        *scheme_conversions(),
        *rescaling_conversions(),
    ]


def derivations() -> list[Derivation]:
    """All multiplier derivations of the vectors."""
    return [*fixed_point_derivations(), *scheme_derivations(), *rescaling_derivations()]
