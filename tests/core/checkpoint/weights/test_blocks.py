"""The first NaN or infinity of a weight, whatever its place, sign and payload."""

from __future__ import annotations

import numpy as np
import pytest

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights.blocks import first_not_below

# Infinity, and the NaN with the smallest and the largest payload.
SPECIAL = {
    "BF16": (0x7F80, 0x7F81, 0x7FFF),
    "F16": (0x7C00, 0x7C01, 0x7FFF),
    "F32": (0x7F800000, 0x7F800001, 0x7FFFFFFF),
}


@pytest.mark.parametrize("dtype", SPECIAL)
@pytest.mark.parametrize("shape", [(1, 1), (3, 37), (2, 64)])
def test_the_first_is_found(dtype: str, shape: tuple[int, int]) -> None:
    unsigned = np.uint32 if dtype == "F32" else np.uint16
    infinity, sign = SPECIAL[dtype][0], 1 << (8 * np.dtype(unsigned).itemsize - 1)
    # The largest finite number of either sign everywhere.
    finite = np.full(shape, infinity - 1, unsigned)
    finite.reshape(-1)[::2] |= unsigned(sign)
    array = DTYPES[dtype].array
    assert first_not_below(finite.view(array), dtype, np.inf) is None
    for special in SPECIAL[dtype]:
        for pattern in (special, special | sign):
            for place in range(finite.size):
                bits = finite.copy()
                bits.reshape(-1)[place::5] = pattern
                assert first_not_below(bits.view(array), dtype, np.inf) == place


def test_nothing_is_in_no_rows() -> None:
    assert first_not_below(np.empty((0, 5), "<u2"), "BF16", np.inf) is None
    assert first_not_below(np.empty((5, 0), "<f4"), "F32", np.inf) is None
