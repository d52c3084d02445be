"""Casts of the profiles `torch` and `torch_2_14` against Tensor.to, run live."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.profiles.cast import F8_ONNX, SCALE
from tests.interop.casts.cast_data import RESULTS, WIDE, is_nan, narrowed, real_data, stored_data, widened
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.torch_version import EAGER_PROFILE

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.interop
# Each thread's share of a large tensor has a tail of its own.
torch.set_num_threads(1)

Array = NDArray[Any]

FORMATS = ("f16", "bf16", *F8_ONNX, SCALE)
NAMES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2": "float8_e5m2",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f32": "float32",
    "f64": "float64",
}


def run(data: Array, source: str, target: str) -> Array:
    """Cast; in and out as the integers of the same width, because numpy has no such types."""
    given = torch.from_numpy(np.ascontiguousarray(data).view(f"i{data.itemsize}")).view(getattr(torch, NAMES[source]))
    found = given.to(getattr(torch, NAMES[target]))
    width = found.element_size()
    return np.asarray(found.view(getattr(torch, f"int{8 * width}")).numpy().view(f"u{width}"))


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
