"""add of the profile `torch_decomposed`: dequantize_per_tensor, torch's own add, quantize_per_tensor."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from requant.integer.add import plan_add
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.integer.quantized_tensors import Array, Quantized, per_tensor
from tests.interop.seed_of_the_day import generator

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.interop


def by_torch(sides: list[Quantized], a: Array, b: Array) -> Array:
    import_module("torch.ao.quantization.fx._decomposed")
    operators = torch.ops.quantized_decomposed
    limits = np.iinfo(a.dtype)
    dtype = torch.from_numpy(a).dtype
    parameters = [(float(side.scales[0]), int(side.zero_points[0]), limits.min, limits.max, dtype) for side in sides]
    reals = [
        operators.dequantize_per_tensor(torch.from_numpy(array), *given)
        for array, given in zip((a, b), parameters, strict=False)
    ]
    found: Array = operators.quantize_per_tensor(torch.add(*reals), *parameters[2]).numpy()
    return found


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
            comparison.add((scales, points), a, ours, by_torch(sides, a, b))
    comparison.finish(600_000)
