"""Fake quantization against LiteRT's FAKE_QUANT, and against TensorFlow where it is installed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from requant.calibration.fake_quantize import plan_fake_quantize
from requant.errors import RequantError
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import fake_quantize
from tests.interop.conformance.subject import ranges as ranges_of
from tests.interop.range_cases import Array, elements_of_range, ranges

pytestmark = pytest.mark.interop

BITS = (2, 3, 4, 7, 8, 12, 16)


def ours(
    x: Array, lows: Any, highs: Any, scheme: str, bits: int, narrow: bool, axis: int | None = None
) -> Array | None:
    """Our result, or None where the range is refused."""
    type_ = parse_type(f"tensor<{''.join(f'{size}x' for size in x.shape)}f32>")
    assert isinstance(type_, TensorType)
    ends = np.atleast_1d(np.array(lows, np.float64)), np.atleast_1d(np.array(highs, np.float64))
    try:
        plan = plan_fake_quantize(type_, *ends, num_bits=bits, narrow_range=narrow, scheme=scheme, axis=axis)
    except RequantError:
        return None
    flat = np.ascontiguousarray(x).reshape(-1)
    target = np.empty_like(flat)
    plan.run(flat, target)
    return target.reshape(x.shape)


@pytest.mark.parametrize("resolver", ["REFERENCE", "DEFAULT"])
def test_litert(resolver: str) -> None:
    pytest.importorskip("ai_edge_litert")
    from tests.interop import litert_models

    rng = np.random.default_rng(21)
    comparison = Comparison(
        f"LiteRT FAKE_QUANT {resolver}", systems.LITERT, fake_quantize("litert"), ranges_of("litert_fake_quant")
    )
    for index, (low, high) in enumerate(zip(*ranges(22, 150), strict=True)):
        bits = BITS[index % len(BITS)]
        x = elements_of_range(low, high, bits, False, rng)
        found = ours(x, low, high, "litert", bits, False)
        if found is not None:
            model = litert_models.fake_quant(x.shape, float(low), float(high), bits)
            theirs = litert_models.run(model, x, getattr(litert_models, resolver))
            comparison.add((low, high, bits), x, found, theirs)
    comparison.finish(100_000)


@pytest.mark.parametrize("narrow", [False, True])
def test_tensorflow(narrow: bool) -> None:
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    tensorflow: Any = pytest.importorskip("tensorflow")
    operators = tensorflow.quantization
    rng = np.random.default_rng(23)
    title = f"TensorFlow fake_quant_with_min_max, narrow {narrow}"
    rule = ranges_of("tf_fake_quant")
    with_vars = Comparison(f"{title}, vars", systems.TENSORFLOW, fake_quantize("tf_fake_quant_vars"), rule)
    others = Comparison(f"{title}, args and channels", systems.TENSORFLOW, fake_quantize("tf_fake_quant"), rule)
    for index, (low, high) in enumerate(zip(*ranges(24, 300), strict=True)):
        bits = BITS[index % len(BITS)]
        x = elements_of_range(low, high, bits, narrow, rng)
        settings = {"num_bits": bits, "narrow_range": narrow}
        found = ours(x, low, high, "tf_fake_quant_vars", bits, narrow)
        if found is None:
            continue
        theirs = operators.fake_quant_with_min_max_vars(x, low, high, **settings).numpy()
        with_vars.add(("vars", low, high, bits), x, found, theirs)
        columns = np.stack([x, x], axis=1)
        theirs = operators.fake_quant_with_min_max_vars_per_channel(columns, [low, -1.0], [high, 2.0], **settings)
        per_channel = ours(columns, [low, -1.0], [high, 2.0], "tf_fake_quant", bits, narrow, axis=1)
        assert per_channel is not None
        others.add(("per channel", low, high, bits), columns, per_channel, theirs.numpy())
        if high - low > 1e-30:  # the operator with attributes refuses what it reads as empty
            single = ours(x, low, high, "tf_fake_quant", bits, narrow)
            assert single is not None
            theirs = operators.fake_quant_with_min_max_args(x, float(low), float(high), **settings).numpy()
            others.add(("args", low, high, bits), x, single, theirs)
    with_vars.finish(100_000)
    others.finish(400_000)
