"""MXFP4, MXFP8 and NVFP4 in the tensors of compressed-tensors, as auto-round's layers compute with them; they are read.

All in f32, and the result is rounded to the dtype of the weight:

    MX       value = code * 2^(byte - 127)                  an infinite scale where the byte is 255
    NVFP4    value = f32(code * r) * s, r = f32(1 / G)      r = 0 where G is 0

compressed-tensors rounds the product of MX to BF16, and multiplies the codes of NVFP4 with f32(s / G). The numbers that
NVFP4 holds are those products here too.

Source: auto-round 0.15.1 and 0.16.1, `MXQuantLinearBase.dequant_mx_tensor` (`experimental/qmodules/mx.py`),
`NVFP4QuantLinear._dequant_nvfp4_tensor` (`experimental/qmodules/nvfp4.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from requant.checkpoint.weights.block_scaled import MxWeight, Nvfp4Weight
from requant.checkpoint.weights.blocks import ScaledCodes
from requant.checkpoint.weights.floats import E4M3, Array
from requant.checkpoint.weights.weight_format import ReadOnlyFormat, StoredRows


@dataclass(frozen=True)
class AutoRoundMx(ReadOnlyFormat, MxWeight):
    """The tensors of `MxWeight`."""

    rounds: bool = False

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        return replace(MxWeight.scaled_codes(self, stored), precision="F32")


@dataclass(frozen=True)
class AutoRoundNvfp4(ReadOnlyFormat, Nvfp4Weight):
    """The tensors of `Nvfp4Weight`."""

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        codes = Nvfp4Weight.scaled_codes(self, stored)
        if _whole(stored):
            return codes
        return replace(codes, table=codes.table * np.float32(0), scales=_scales(stored), outer=None)

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        codes = self.scaled_codes(stored)
        if whole := _whole(stored):
            with np.errstate(all="ignore"):
                codes = replace(codes, table=codes.table * (np.float32(1) / whole), scales=_scales(stored))
        return replace(codes, precision="F32").values(dtype).reshape(stored.count, -1)


def _scales(stored: StoredRows) -> Array:
    """Return s."""
    scales: Array = E4M3.values[stored.parts["weight_scale"]]
    return scales


def _whole(stored: StoredRows) -> np.float32:
    """Return G."""
    return np.float32(stored.parts["weight_global_scale"].reshape(-1)[0])
