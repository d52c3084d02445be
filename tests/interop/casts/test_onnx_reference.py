"""Casts of the profile `onnx_reference` against the ReferenceEvaluator's Cast, run live."""

from __future__ import annotations

import pytest

from requant.profiles.cast import F8_ONNX, FINITE, SCALE
from tests.interop.casts.cast_data import (
    WIDE,
    is_nan,
    narrowed,
    onnx_choices,
    real_data,
    stored_data,
    widened,
)
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile

pytest.importorskip("onnx.reference")

from tests.interop.casts.onnx_reference_cast import run

pytestmark = pytest.mark.interop

FORMATS = ("f16", "bf16", *F8_ONNX, *FINITE, SCALE)


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("target", FORMATS)
def test_narrow(target: str, source: str) -> None:
    if source == target:
        return
    comparison = Comparison(
        f"onnx reference cast {source} to {target}", systems.ONNX_REFERENCE, profile("onnx_reference", "cast")
    )
    for data in real_data(source, target):
        for saturate, rounding in onnx_choices(target):
            theirs = run(data, source, target, saturate, rounding)
            ours = narrowed(data, source, target, "onnx_reference", saturate, rounding)
            comparison.add((target, saturate, rounding), data, ours, theirs.view(ours.dtype))
    comparison.finish(65_536 if source in ("f16", "bf16") else 1_000_000)


@pytest.mark.parametrize("target", WIDE)
@pytest.mark.parametrize("source", FORMATS)
def test_widen(source: str, target: str) -> None:
    """Every code."""
    if source == target:
        return
    comparison = Comparison(
        f"onnx reference cast {source} to {target}", systems.ONNX_REFERENCE, profile("onnx_reference", "cast")
    )
    codes = stored_data(source)
    theirs, ours = run(codes, source, target), widened(codes, source, target, "onnx_reference")
    nan = is_nan(theirs)
    assert (is_nan(ours) == nan).all()
    comparison.add(source, codes, ours, theirs, {"nan_bits": nan})
    comparison.finish(codes.size - 2100)
