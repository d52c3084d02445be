"""A bias with a scale of its own: rescaled exactly to the scale of the sums, then rounded once by the profile."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from requant.integer.output import plan_bias
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.profiles import PROFILES, Operation
from tests.oracles.quantization import nearest_away, nearest_even

NEAREST = {"litert": nearest_away, "onnx": nearest_even}


@pytest.mark.parametrize("profile", NEAREST)
@pytest.mark.parametrize(("own", "sums"), [(0.5, 1.0), (0.25, 1.0), (1.0, 2.0), (0.75, 0.5), (0.1, 0.3), (3.0, 1.0)])
def test_ties_go_where_the_profile_says(profile: str, own: float, sums: float) -> None:
    values = np.array([*range(-9, 10), 2**31 - 1, -(2**31)], np.int32)
    tensor = parse_type(f"tensor<{values.size}x!quant.uniform<i32:f32, {own}>>")
    assert isinstance(tensor, TensorType)
    rule = PROFILES[profile].operations[Operation.QUANTIZE]
    ratio = Fraction(float(np.float32(own))) / Fraction(sums)
    found = plan_bias(tensor, values.size, [sums], rule, profile).added(values)
    assert found.tolist() == [NEAREST[profile](value * ratio) for value in values.tolist()]
