"""matmul and conv2d of the profiles `torch` and `torch_2_14` against the quantized linear and convolution, by FBGEMM.

Activations have 7 bits: without VNNI, FBGEMM's sums of pairs saturate with 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from requant.integer.conv2d import Layout, WeightsLayout, Window, plan_conv2d
from requant.integer.matmul import plan_matmul
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile, scheme
from tests.interop.integer.quantized_tensors import Quantized, per_axis, per_tensor, run_product
from tests.interop.seed_of_the_day import generator
from tests.interop.torch_version import EAGER_PROFILE

torch: Any = pytest.importorskip("torch")

from tests.interop.torch_quantized import convolution, linear  # noqa: E402

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="torch has no FBGEMM here"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

CASES = 40


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    yield
    torch.backends.quantized.engine = before


def sides(rng: np.random.Generator, outputs: int, axis: int, *, each: bool) -> tuple[Quantized, Quantized, Quantized]:
    """Activations, weights and output, with scales of powers of two, whose products have ties, or of any size."""
    exact = rng.random() < 0.5
    lhs_scale = float(np.float32(2.0**-6 if exact else rng.uniform(0.01, 0.1)))
    scales = 2.0 ** rng.integers(-8, -3, outputs) if exact else rng.uniform(0.002, 0.05, outputs)
    lhs = per_tensor("u8", lhs_scale, int(rng.integers(0, 128)))
    weight = per_axis("i8", scales, axis) if each else per_tensor("i8", float(np.float32(scales[0])))
    out_scale = float(np.float32(2.0 ** rng.integers(-5, 0) if exact else rng.uniform(0.02, 0.5)))
    return lhs, weight, per_tensor("u8", out_scale, int(rng.choice([0, 3, 128, 255])))


@pytest.mark.parametrize("each", [False, True], ids=["per_tensor", "per_axis"])
def test_linear(each: bool) -> None:
    rng = generator(161)
    comparison = Comparison("torch quantized linear", systems.TORCH, profile(EAGER_PROFILE, "matmul"), scheme("fbgemm"))
    for index in range(CASES):
        rows, depth, columns = (int(size) for size in rng.integers(2, 70, 3))
        lhs, rhs, out = sides(rng, columns, 1, each=each)
        x = rng.integers(0, 128, (rows, depth)).astype(np.uint8)
        w = rng.integers(-128, 128, (columns, depth)).astype(np.int8)
        theirs = linear((lhs, x), (rhs, w), out)
        plan = plan_matmul(lhs.tensor(rows, depth), rhs.tensor(depth, columns), out.element, EAGER_PROFILE)
        comparison.add(index, theirs, run_product(plan, x, w.T), theirs)
    comparison.finish(10_000)


@pytest.mark.parametrize("each", [False, True], ids=["per_tensor", "per_axis"])
def test_conv2d(each: bool) -> None:
    rng = generator(162)
    comparison = Comparison("torch quantized conv2d", systems.TORCH, profile(EAGER_PROFILE, "conv2d"), scheme("fbgemm"))
    for index in range(CASES):
        depth, outputs = int(rng.integers(1, 9)), int(rng.integers(2, 17))
        height, width = (int(size) for size in rng.integers(6, 14, 2))
        pad, stride = int(rng.integers(0, 2)), int(rng.integers(1, 3))
        lhs, rhs, out = sides(rng, outputs, 0, each=each)
        x = rng.integers(0, 128, (2, depth, height, width)).astype(np.uint8)
        w = rng.integers(-128, 128, (outputs, depth, 3, 2)).astype(np.int8)
        window = Window(
            layout=Layout.NCHW, weights_layout=WeightsLayout.OIHW, strides=(stride, stride), pads=(pad, pad, pad, pad)
        )
        theirs = convolution((lhs, x), (rhs, w), out, window)
        plan = plan_conv2d(lhs.tensor(*x.shape), rhs.tensor(*w.shape), out.element, EAGER_PROFILE, window=window)
        comparison.add(index, theirs, run_product(plan, x, w), theirs)
    comparison.finish(10_000)
