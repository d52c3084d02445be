"""f16 and f32 in arrays of another width are refused: a kernel would write past the end of the result."""

from __future__ import annotations

import numpy as np
import pytest

from requant.formats.elements import FLOATS
from requant.plan.compute_dtype import f16_of_f32, f32_of_f16, narrowed, widen


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8", "i4"])
def test_an_array_of_another_width_is_no_f16(dtype: str) -> None:
    with pytest.raises(TypeError, match="expected f16"):
        f32_of_f16(np.zeros(3, dtype))
    with pytest.raises(TypeError, match="expected f16"):
        widen(np.zeros(3, dtype), FLOATS["f16"])


@pytest.mark.parametrize("dtype", ["f2", "f8", "i4"])
def test_an_array_of_another_type_is_no_f32(dtype: str) -> None:
    with pytest.raises(TypeError, match="expected f32"):
        f16_of_f32(np.zeros(3, dtype))


def test_f64_are_rounded_to_f16_once() -> None:
    between = np.array([1 + 2**-11 + 2**-40])
    assert narrowed(between, FLOATS["f16"]).tolist() == [1 + 2**-10]
