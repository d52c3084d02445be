"""Casts of the profile `onnx` against onnxruntime's Cast, run live. f4 and f6 it does not have."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.profiles import Rounding
from requant.profiles.cast import F8_ONNX, SCALE
from tests.interop.casts.cast_data import (
    RESULTS,
    ROUND_MODES,
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
ort: Any = pytest.importorskip("onnxruntime")

from tests.interop.onnx_nodes import ELEMENT_TYPES, cast_node  # noqa: E402

pytestmark = pytest.mark.interop

Array = NDArray[Any]

FORMATS = ("f16", "bf16", *F8_ONNX, SCALE)


@cache
def session(source: str, target: str, saturate: bool | None, round_mode: str | None) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    model = cast_node(source, target, saturate, round_mode).SerializeToString()
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(data: Array, source: str, target: str, saturate: bool | None = None, rounding: Rounding | None = None) -> Array:
    """Cast by address, because numpy has no such types."""
    started = session(source, target, saturate, None if rounding is None else ROUND_MODES[rounding])
    binding = started.io_binding()
    binding.bind_input("x", "cpu", 0, ELEMENT_TYPES[source], [data.size], data.ctypes.data)
    width = np.dtype(RESULTS[target]).itemsize if target in WIDE else 1
    found = np.empty(data.size, f"u{width}")
    binding.bind_output("y", "cpu", 0, ELEMENT_TYPES[target], [data.size], found.ctypes.data)
    started.run_with_iobinding(binding)
    return found


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
