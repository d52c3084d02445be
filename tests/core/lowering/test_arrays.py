"""Integers of any width in the containers that numpy has for them."""

from __future__ import annotations

import numpy as np
import pytest

from requant.formats.elements import IntegerElement
from requant.lowering.evaluate.arrays import wrapped
from requant.mlir import parse_type
from requant.mlir.types import TensorType


@pytest.mark.parametrize("name", ["i2", "i4", "i7", "i8", "i12", "i16", "i24", "i32", "ui2", "ui4", "ui12", "ui24"])
def test_integers_wrap_at_their_own_width(name: str) -> None:
    tensor = parse_type(f"tensor<1x{name}>")
    assert isinstance(tensor, TensorType)
    assert isinstance(tensor.element, IntegerElement)
    width, lowest = tensor.element.width, tensor.element.minimum
    turn = 1 << width
    values = [k * turn // 4 + step for k in range(-9, 10) for step in (-1, 0, 1)]
    found = wrapped(np.array(values, np.int64), tensor.element)
    assert found.tolist() == [(value - lowest) % turn + lowest for value in values]
