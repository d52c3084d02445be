"""StableHLO's verdict on types.

Rows marked `jaxlib` were executed on jaxlib 0.10.2, as operands of `stablehlo.optimization_barrier`.
"""

from __future__ import annotations

import pytest

from requant.mlir import parse_type
from requant.mlir.stablehlo import stablehlo_reason


@pytest.mark.parametrize(
    "text",
    [
        "tensor<4xf32>",  # jaxlib
        "tensor<4xui8>",  # jaxlib
        "tensor<4xi1>",  # jaxlib
        "tensor<4xi64>",  # jaxlib
        "tensor<2xui2>",  # jaxlib
        "tensor<2xf8E8M0FNU>",  # jaxlib
        "tensor<2xf4E2M1FN>",  # jaxlib
        "tensor<4x!quant.uniform<i8:f32, 1.0>>",  # jaxlib
        "tensor<4x!quant.uniform<ui8:f32, 1.0>>",  # jaxlib
        "tensor<2x!quant.uniform<u2:f32, 1.0>>",  # jaxlib
        "tensor<2x!quant.uniform<i32:f64, 1.0>>",  # jaxlib
        "tensor<4x!quant.uniform<i8:f80, 1.0>>",  # jaxlib
        'tensor<2x!quant.uniform<i8:f32, 1.0>, "e">',  # jaxlib
        "tensor<?x!quant.uniform<i8:f32:0, {1.0,2.0}>>",
        "tensor<2x!quant.uniform<i8<-8:7>:f32:0, {1.0:-8,2.0:7}>>",
        "!quant.uniform<i8:f32, 1.0>",
        "tuple<tensor<4xf32>>",
    ],
)
def test_taken(text: str) -> None:
    assert stablehlo_reason(parse_type(text)) is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("tensor<*xf32>", "ranked"),  # jaxlib
        ("tensor<*x!quant.uniform<i8:f32, 1.0>>", "ranked"),  # jaxlib
        ("tensor<4xi7>", "i7"),  # jaxlib
        ("tensor<4xui1>", "ui1"),  # jaxlib
        ("tensor<4xi128>", "i128"),  # jaxlib
        ("tensor<4xsi8>", "si8"),  # jaxlib
        ("tensor<4xindex>", "index"),  # jaxlib
        ("tensor<4xtf32>", "tf32"),  # jaxlib
        ("tensor<4xf80>", "f80"),  # jaxlib
        ("tensor<2xf128>", "f128"),  # jaxlib
        ("tensor<4x!quant.uniform<i8:f32, 1.0:300>>", "C7: zero point 300"),  # jaxlib
        ("tensor<4x!quant.uniform<i8<-8:7>:f32, 1.0:8>>", "C7: zero point 8"),  # jaxlib
        ("tensor<4x!quant.uniform<i3:f32, 1.0>>", "3 bits"),  # jaxlib
        ("tensor<4x!quant.uniform<si8:f32, 1.0>>", "si8"),  # jaxlib
        ("tensor<4x!quant.uniform<f8E4M3FN:f32, 1.0>>", "stores integers"),  # jaxlib
        ("tensor<2x!quant.any<i8:f32>>", "uniform"),  # jaxlib
        ("tensor<2x!quant.calibrated<f32<0.0:1.0>>>", "uniform"),  # jaxlib
        ("tensor<2x!quant.uniform<i8:f32:{0:1}, {1.0,2.0}>>", "sub-channel"),  # jaxlib
        ("tensor<2x!quant.quantile<ui1:f32, {1.0,2.0}>>", "uniform"),  # jaxlib
        ("tensor<2x!quant.uniform<i8:f32:0, {1.0,2.0:300}>>", "C7: zero point 300"),
        ("tensor<2x!quant.uniform<i8:f32:1, {1.0,2.0}>>", "rank 1"),
        ("tensor<4x!quant.uniform<i8:f32:0, {1.0,2.0}>>", "4 elements"),
        ("tuple<tensor<4xf32>, i7>", "i7"),
    ],
)
def test_refused(text: str, part: str) -> None:
    assert part in (stablehlo_reason(parse_type(text)) or "")
