"""add of the profile `torch_decomposed`: dequantize_per_tensor, torch's own add, quantize_per_tensor."""

from __future__ import annotations

import numpy as np
import pytest

from requant.integer.add import plan_add
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.integer.quantized_tensors import per_tensor
from tests.interop.seed_of_the_day import generator

pytest.importorskip("torch")

from tests.interop.torch_quantized import added

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("storage", ["i8", "u8"])
def test_add(storage: str) -> None:
    """Every pair of bytes."""
    rng = generator(331)
    comparison = Comparison(f"torch decomposed add {storage}", systems.TORCH, profile("torch_decomposed", "add"))
    limits = np.iinfo(np.int8 if storage == "i8" else np.uint8)
    numbers = np.arange(limits.min, limits.max + 1).astype(limits.dtype)
    a, b = np.repeat(numbers, 256), np.tile(numbers, 256)
    drawn = tuple(rng.uniform(0.01, 2, 3).tolist())
    for scales in ((0.5, 0.5, 0.5), (0.5, 0.25, 1.0), (0.1, 0.3, 0.2), (0.02, 0.9, 0.9), drawn):
        for points in rng.integers(limits.min, limits.max + 1, (2, 3)).tolist():
            sides = [per_tensor(storage, float(np.float32(s)), z) for s, z in zip(scales, points, strict=True)]
            plan = plan_add(sides[0].tensor(a.size), sides[1].tensor(a.size), sides[2].element, "torch_decomposed")
            ours = np.empty(a.size, plan.output_dtype)
            plan.run(a, b, ours)
            comparison.add((scales, points), a, ours, added(sides, a, b))
    comparison.finish(600_000)
