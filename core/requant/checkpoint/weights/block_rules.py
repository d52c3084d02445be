"""MX and NVFP4 of compressed-tensors with the scales of another library's rule: `MXFP4A16:rule=rceil`.

Scales and codes are those of `quantize_blocks` with that rule, of the weight as f32. Loaders need nothing new: they
multiply codes by whatever scales there are.

"Four over six" with A, the largest magnitude of the fused set, in the place of the tensor's:

    G = f32(1536 / A), 1 for a set of zeros
    value = BF16(f32(code * f32(s / G)))             the library's own is f32(f32(code * s * A) / 1536)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from requant.checkpoint.weights.block_scaled import MxWeight, Nvfp4Weight, shared
from requant.checkpoint.weights.blocks import Extremes
from requant.checkpoint.weights.floats import Array, float_kernels, values
from requant.checkpoint.weights.packing import packed_bytes, packing_kernels
from requant.checkpoint.weights.weight_format import PlainRows
from requant.convert.blocks.mx import MxRule, quantize_mx
from requant.convert.blocks.nvfp4 import Nvfp4Rule, quantize_nvfp4
from requant.kernels.checkpoint.magnitudes import LARGEST_MAGNITUDES
from requant.kernels.convert.blocks import quantize_mx as mx_kernel
from requant.kernels.jit.jit import Kernel

MX_RULES: Mapping[str, MxRule] = {str(rule): rule for rule in MxRule}
FOUR_OVER_SIX_RULES: Mapping[str, Nvfp4Rule] = {
    str(rule): rule for rule in (Nvfp4Rule.FOUROVERSIX, Nvfp4Rule.FOUROVERSIX_MAE, Nvfp4Rule.FOUROVERSIX_ABS_MAX)
}
_FORMATS = {4: "mxfp4_e2m1", 6: "mxfp6_e2m3", 8: "mxfp8_e4m3"}
_PRODUCT = np.float32(1536)


@dataclass(frozen=True)
class MxRuleWeight(MxWeight):
    """MX with the exponents of a rule. A magnitude beyond the largest is clamped."""

    rule: MxRule = field(default=MxRule.OCP, kw_only=True)

    def magnitude_limit(self, dtype: str) -> float:
        return float("inf")

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        blocks = quantize_mx(values(rows.bits, rows.dtype), _FORMATS[self.bits], self.rule)
        codes = blocks.elements.reshape(rows.bits.shape)
        return {
            self._code_tensor(rows.shape).suffix: codes if self.bits == 8 else packed_bytes(codes, self.bits),
            "weight_scale": blocks.scales.reshape(len(codes), -1),
        }

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        return (mx_kernel, *packing_kernels(self.bits), *float_kernels((dtype,)))


@dataclass(frozen=True)
class FourOverSixWeight(Nvfp4Weight):
    """NVFP4 in which a block's largest magnitude becomes 4 or 6."""

    rule: Nvfp4Rule = Nvfp4Rule.FOUROVERSIX

    def overflows(self, extremes: Extremes, dtype: str) -> bool:
        return False

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        largest = np.float32(shared(extremes).magnitude)
        blocks = quantize_nvfp4(values(rows.bits, rows.dtype), float(largest), self.rule)
        codes = blocks.elements.reshape(rows.bits.shape)
        return {
            "weight_packed": packed_bytes(codes, 4),
            "weight_scale": blocks.scales.reshape(len(codes), -1),
            "weight_global_scale": np.array([[_PRODUCT / largest if largest else 1]], "<f4"),
        }

    def quantizing_kernels(self, dtype: str) -> tuple[Kernel, ...]:
        return (LARGEST_MAGNITUDES[32], *packing_kernels(4), *float_kernels((dtype,)))
