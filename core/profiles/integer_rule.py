"""What a profile says of integer operations: how sums overflow, and which scheme scales them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.parameters.schemes import Factor


class Accumulator(StrEnum):
    """What products are summed in."""

    I32 = "i32"
    I64 = "i64"


class SumOverflow(StrEnum):
    """What becomes of a sum, bias included, that its accumulator does not hold. Sums before the last never matter."""

    WRAP = "wrap"
    """It is taken modulo 2^32."""
    SATURATE = "saturate"
    """It becomes the nearest that is held."""
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductRule:
    """One operation that sums products, of one profile.

    `operator` names the real system's own. `scheme` scales the sums, by the factor of input scale, weight scale and
    output scale that the scheme forms, or `factor` does; without a scheme a sum, whose scale is f32(input * weight), is
    dequantized and quantized by the profile's two rules. `variants` replaces the rule: "i64" for sums of 64 bits,
    "batched" for a matmul whose right side has batch dimensions.
    """

    operator: str
    overflow: SumOverflow
    scheme: str | None
    factor: Factor | None = None
    variants: Mapping[str, ProductRule] = field(default_factory=dict)

    def variant(self, *names: str) -> ProductRule:
        """Return the variant of the first of these names that there is, or this rule."""
        return next((self.variants[name] for name in names if name in self.variants), self)


class Addition(StrEnum):
    """How two quantized tensors are added."""

    FIXED_POINT = "fixed_point"
    """LiteRT's ADD: both differences to zero points, shifted left by 20 (15 for 16 bits), to one scale; their sum to
    the output's. Three multipliers of the scheme."""
    RESCALE = "rescale"
    """The same three with the shifts a part of the factors: TOSA's RESCALE, ADD, RESCALE."""
    COMMON_SCALE = "common_scale"
    """XNNPACK: both multiplied by integers of at most 21 bits, one shift, ties up."""
    TO_OUTPUT_SCALE = "to_output_scale"
    """StableHLO: both requantized to the output's parameters as i32 without a clamp, added, clamped."""
    THROUGH_REAL = "through_real"
    """Dequantize, add in the expressed type, quantize, by the profile's two rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRule:
    """How a profile adds. `scheme`: of the multipliers, where there are any."""

    operator: str
    addition: Addition
    scheme: str | None = None
