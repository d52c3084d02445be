"""MXFP4, MXFP8 and NVFP4 in the tensors of compressed-tensors, as auto-round's layers compute with them; they are read.

All in f32, and the result is rounded to the dtype of the weight:

    MX       value = code * 2^(byte - 127)                  an infinite scale where the byte is 255
    NVFP4    value = f32(code * r) * s, r = f32(1 / G)      r = 0 where G is 0

compressed-tensors rounds the product of MX to BF16, and multiplies the codes of NVFP4 with f32(s / G).

Source: auto-round 0.15.1 and 0.16.1, `MXQuantLinearBase.dequant_mx_tensor` (`experimental/qmodules/mx.py`),
`NVFP4QuantLinear._dequant_nvfp4_tensor` (`experimental/qmodules/nvfp4.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.checkpoint.weights.block_scaled import POWERS, MxWeight, Nvfp4Weight
from requant.checkpoint.weights.blocks import Block, scaled
from requant.checkpoint.weights.floats import E2M1, E4M3
from requant.checkpoint.weights.packing import unpacked_half_bytes
from requant.checkpoint.weights.weight_format import Array, Codes, ReadOnlyFormat, StoredRows
from requant.convert.blocks import mx, nvfp4


@dataclass(frozen=True)
class AutoRoundMx(ReadOnlyFormat, MxWeight):
    """The tensors of `MxWeight`."""

    rounds: bool = False

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        codes, scales = self.unpacked_codes(stored), POWERS[stored.parts["weight_scale"]]
        columns, block = stored.shape[1], Block(1, mx.BLOCK)
        return scaled(codes, self.element.values, columns, block, scales, None, precision="F32", dtype=dtype)


@dataclass(frozen=True)
class AutoRoundNvfp4(ReadOnlyFormat, Nvfp4Weight):
    """The tensors of `Nvfp4Weight`."""

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        codes, scales = unpacked_half_bytes(stored.parts["weight_packed"]), E4M3.values[stored.parts["weight_scale"]]
        with np.errstate(all="ignore"):
            values: Array = E2M1.values * _reciprocal(stored)
        columns, block = stored.shape[1], Block(1, nvfp4.BLOCK)
        return scaled(codes, values, columns, block, scales, None, precision="F32", dtype=dtype)

    def codes(self, stored: StoredRows) -> Codes:
        places = E2M1.places[unpacked_half_bytes(stored.parts["weight_packed"])]
        with np.errstate(all="ignore"):
            scales: Array = E4M3.values[stored.parts["weight_scale"]] * _reciprocal(stored)
        return Codes(places, -E2M1.highest, E2M1.highest, scales, uniform=False)


def _reciprocal(stored: StoredRows) -> np.float32:
    whole = np.float32(stored.parts["weight_global_scale"].reshape(-1)[0])
    with np.errstate(all="ignore"):
        return np.float32(0) if whole == 0 else np.float32(1) / whole
