"""f4E2M1FN, two to a byte, the first in the lower half: what NVFP4 and MXFP4 store.

RNE by thresholds: > .25, >= .75, > 1.25, >= 1.75, > 2.5, >= 3.5, > 5. The sign bit is that of what is below 0, also
where the code is 0; -0 gives 0, and so does NaN. Source: compressed-tensors 0.20.0,
`quantization/utils/fp4_utils.py`, `compressors/nvfp4/helpers.py`.
"""

from __future__ import annotations

import numpy as np

from requant.checkpoint.weights.blocks import Block, codes
from requant.checkpoint.weights.weight_format import Array
from requant.kernels.checkpoint.codes import PACKED_E2M1_CODES

E2M1_LARGEST = 6.0
_POSITIVE = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1_VALUES: Array = np.tile(np.array(_POSITIVE + [-each for each in _POSITIVE], np.float32), 16)
"""The value of the code in the lower half of each byte."""

E2M1_HIGHEST = 7
"""The place of the largest."""

_PLACES = np.arange(E2M1_HIGHEST + 1, dtype=np.int16)
E2M1_PLACES: Array = np.tile(np.concatenate([_PLACES, -_PLACES]), 16)
"""Its place in the order of all values."""


def packed_e2m1_codes(rows: Array, dtype: str, block: Block, scales: Array, *, rounds: bool) -> Array:
    """Return E2M1(clamp(R(w / s), -6, 6)), [rows, in / 2] bytes."""
    return codes(
        PACKED_E2M1_CODES,
        rows,
        dtype,
        block,
        scales,
        None,
        rounds=rounds,
        lowest=-E2M1_LARGEST,
        highest=E2M1_LARGEST,
        stride=rows.shape[1],
        per_byte=2,
    )
