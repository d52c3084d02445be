"""Casts of the profile `onnx` against onnxruntime's Cast, run live. f4 and f6 it does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.profiles.cast import F8_ONNX, SCALE
from tests.interop.casts.cast_data import (
    RESULTS,
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
from tests.interop.onnxruntime_version import PROFILE

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.interop.casts.onnxruntime_cast import run

pytestmark = pytest.mark.interop

Array = NDArray[Any]

FORMATS = ("f16", "bf16", *F8_ONNX, SCALE)


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("target", FORMATS)
def test_narrow(target: str, source: str) -> None:
    """From f32 to f16 a NaN keeps its payload or not by its place among eight; from bf16 to 8 bits it loses its sign
    with saturate=0. There, only that it is one is compared.
    """
    if source == target:
        return
    comparison = Comparison(f"onnxruntime cast {source} to {target}", systems.ONNXRUNTIME, profile(PROFILE, "cast"))
    for data in real_data(source, target):
        data = np.ascontiguousarray(data)
        for saturate, rounding in onnx_choices(target):
            theirs = run(data, source, target, saturate, rounding)
            ours = narrowed(data, source, target, PROFILE, saturate, rounding)
            left = {}
            if (source, target) == ("f32", "f16"):
                left = {"onnxruntime_f16_nan_by_place": np.isnan(data)}
                assert (is_nan(theirs.view(np.float16)) == np.isnan(data)).all()
            if source == "bf16" and saturate is False and target in ("f8E4M3FN", "f8E5M2"):
                nan = is_nan(data.view(RESULTS["bf16"]))
                assert (theirs[nan] == 0x7F).all()
                left = {"onnxruntime_bf16_nan_sign": nan}
            comparison.add((target, saturate, rounding), data, ours, theirs, left)
    comparison.finish(65_000 if source in ("f16", "bf16") else 990_000)


@pytest.mark.parametrize("target", WIDE)
@pytest.mark.parametrize("source", FORMATS)
def test_widen(source: str, target: str) -> None:
    """Every code."""
    if source == target:
        return
    comparison = Comparison(f"onnxruntime cast {source} to {target}", systems.ONNXRUNTIME, profile(PROFILE, "cast"))
    codes = stored_data(source)
    theirs, ours = run(codes, source, target).view(RESULTS[target]), widened(codes, source, target, PROFILE)
    nan = is_nan(theirs)
    assert (is_nan(ours) == nan).all()
    comparison.add(source, codes, ours, theirs, {"nan_bits": nan})
    comparison.finish(codes.size - 2100)
