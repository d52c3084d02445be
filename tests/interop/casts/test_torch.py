"""Casts of the profiles `torch` and `torch_2_14` against Tensor.to, run live."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.profiles.cast import F8_ONNX, SCALE
from tests.interop.casts.cast_data import RESULTS, WIDE, is_nan, narrowed, real_data, stored_data, widened
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.torch_version import EAGER_PROFILE

torch: Any = pytest.importorskip("torch")

from tests.interop.casts.torch_cast import run  # noqa: E402

pytestmark = pytest.mark.interop
# Each thread's share of a large tensor has a tail of its own.
torch.set_num_threads(1)

FORMATS = ("f16", "bf16", *F8_ONNX, SCALE)


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("target", FORMATS)
def test_narrow(target: str, source: str) -> None:
    """The NaN of bf16 is 0xFFFF where the processor has AVX-512, and else another."""
    if source == target:
        return
    comparison = Comparison(f"torch cast {source} to {target}", systems.TORCH, profile(EAGER_PROFILE, "cast"))
    for data in real_data(source, target):
        left = {}
        if target == "bf16" and torch.backends.cpu.get_cpu_capability() != "AVX512":
            left = {"torch_bf16_nan_without_avx512": np.isnan(data)}
        ours, theirs = narrowed(data, source, target, EAGER_PROFILE), run(data, source, target)
        comparison.add(target, data, ours, theirs, left)
    comparison.finish(60_000 if source in ("f16", "bf16") else 990_000)


@pytest.mark.parametrize("target", WIDE)
@pytest.mark.parametrize("source", FORMATS)
def test_widen(source: str, target: str) -> None:
    """Every code."""
    if source == target:
        return
    comparison = Comparison(f"torch cast {source} to {target}", systems.TORCH, profile(EAGER_PROFILE, "cast"))
    codes = stored_data(source)
    theirs, ours = run(codes, source, target).view(RESULTS[target]), widened(codes, source, target, EAGER_PROFILE)
    nan = is_nan(theirs)
    assert (is_nan(ours) == nan).all()
    comparison.add(source, codes, ours, theirs, {"nan_bits": nan})
    comparison.finish(codes.size - 2100)
