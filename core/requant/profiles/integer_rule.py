"""What a profile says of integer operations: how sums overflow, and which scheme scales them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from requant.schemes import Factor


class Accumulator(StrEnum):
    """The accumulator type of the products."""

    I32 = "i32"
    I64 = "i64"


class SumOverflow(StrEnum):
    """What to do if a final sum, including the bias, overflows its accumulator. Partial sums never overflow."""

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
    dequantized and quantized by the profile's two rules. `accumulator` is what is summed in without a bias; by default
    what the operands need. `variants` replaces the rule: "batched" for a matmul whose right side has batch dimensions,
    which has variants of its own; "i64" for sums of 64 bits; "undelegated i32" for sums of 32 bits that XNNPACK leaves
    to LiteRT, because an operand has more than 8 bits or a signed right side a zero point; "undelegated i32 per_axis"
    for such sums with several scales on the right side.
    """

    operator: str
    overflow: SumOverflow
    scheme: str | None
    factor: Factor | None = None
    accumulator: Accumulator | None = None
    variants: Mapping[str, ProductRule] = field(default_factory=dict)

    def of_batches(self, batched: bool) -> ProductRule:
        """Return the variant for a right side with or without batch dimensions."""
        return self.variants.get("batched", self) if batched else self

    def of_sums(self, accumulator: Accumulator, *, undelegated: bool, per_axis: bool) -> ProductRule:
        """Return the variant for sums of these operands, or this rule."""
        names = [str(accumulator)]
        if undelegated:
            names = [f"undelegated {accumulator}", *names]
            if per_axis:
                names = [f"undelegated {accumulator} per_axis", *names]
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
