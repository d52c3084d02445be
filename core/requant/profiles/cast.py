"""What a profile says of casts between floats: who decides, and how, where the formats leave a choice.

All agree on FORMULA, and differ in what an overflow, an infinity and a NaN give. Source: OCP OFP8 and MX v1.0;
each rule is tested against what the system of its profile gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from requant.formats.rounding import Rounding

FORMULA = (
    "e = max(floor(log2 |x|), 1 - bias); q = RNE(|x| / 2^(e - m)), or by the rounding that is chosen; magnitude code = "
    "((e + bias) << m) + q - 2^m, the sign in the bit above; overflow where that is beyond the code of the largest "
    "finite value. Underflow to zero keeps the sign where the format has -0. From small floats: exact to f32 and f64, "
    "the same to f16 and bf16."
)
"""Of every cast but those to f8E8M0FNU. m is the number of mantissa bits."""

F8_ONNX = ("f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ")
"""The 8-bit floats that ONNX and torch have."""
FINITE = ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN")
"""The formats without infinity and NaN."""
SCALE = "f8E8M0FNU"
DRAWN_BITS = 32
"""How many bits stochastic rounding draws for an element."""


class FloatOverflow(StrEnum):
    """What a value beyond the largest finite one gives, and an infinity likewise.

    f4 and f6 have nothing but their largest value to give, and f16 and bf16 give infinity unless a request saturates
    them. What is rounded inward, toward zero or to odd, or against its sign, gives the largest finite value.
    """

    SATURATING = "saturating"
    """The largest finite value, with the sign, to at most 8 bits. ONNX saturate=1."""

    NON_SATURATING = "non_saturating"
    """Infinity where the format has one, otherwise NaN. ONNX saturate=0, ml_dtypes, MLIR, TOSA, oneDNN."""

    SATURATING_E4M3FN = "saturating_e4m3fn"
    """Saturating for f8E4M3FN, non-saturating for the others. torch 2.13."""


class NanCode(StrEnum):
    """Which of the NaNs of an IEEE format a NaN gives. FN formats have one for each sign, so that only the sign counts;
    FNUZ formats have one."""

    QUIET = "quiet"
    """The highest mantissa bit only, sign kept: f8E5M2 0x7E, bf16 0x7FC0."""

    ONES = "ones"
    """All mantissa bits, sign kept: f8E5M2 0x7F."""

    PAYLOAD = "payload"
    """The source's highest mantissa bits, sign kept, so that a signalling NaN stays one; at least 1."""

    QUIET_PAYLOAD = "quiet_payload"
    """The same with the highest bit set."""

    POSITIVE_QUIET = "positive_quiet"
    """The highest mantissa bit only, without sign."""

    POSITIVE_ONES = "positive_ones"
    """All mantissa bits, without sign."""

    NEGATIVE_ONES = "negative_ones"
    """All mantissa bits, and the sign."""


class FiniteNan(StrEnum):
    """What a NaN gives in a format that has none (f4, f6)."""

    OPPOSITE_ZERO = "opposite_zero"
    """Zero with the sign that the NaN does not have."""

    SAME_ZERO = "same_zero"
    """Zero with the sign of the NaN."""

    LARGEST = "largest"
    """The largest value, without sign."""

    ERROR = "error"


class ScaleRange(StrEnum):
    """What f8E8M0FNU gives outside of its values, 2^-127 to 2^127."""

    AFTER_ROUNDING = "after_rounding"
    """The sign is ignored; what rounds beyond 2^127 is 0xFE when saturating, else NaN; infinity is NaN. Below 2^-126
    the mantissa field of the f32 decides as it does elsewhere."""

    POSITIVE_ONLY = "positive_only"
    """The same, and zero and everything negative is NaN."""

    BEFORE_ROUNDING = "before_rounding"
    """What is below 2^-127, zero and everything negative among it, is 0x00 when saturating, else NaN; what is above
    2^127, infinity among it, is 0xFE when saturating, else NaN; the rest is rounded."""


@dataclass(frozen=True, slots=True)
class Slip:
    """f32 magnitudes from `start` to below `stop` give `code`, where nothing else would: a fault that is followed."""

    start: float
    stop: float
    code: int


@dataclass(frozen=True, slots=True)
class NanTail:
    """A vector loop leaves the last n mod `lanes` elements to a scalar one, where a NaN gives `code`."""

    lanes: int
    code: NanCode


@dataclass(frozen=True, slots=True)
class CastRule:
    """How one authority casts between floats. The first fields say it to people, the others to plans.

    `formats` are the floats of at most 16 bits that it has, and f32 if it casts f64 to it; `sources` those that it
    casts from. `chosen_saturation` lists the formats for which a request may replace `overflow` by saturating or
    non-saturating. `roundings` are those that a request may choose from, the default first, by target, or under "" for
    the rest. `nans` says which NaN by "source target", by target, or under "" for the rest; `nan_tails`, by
    "source target", what NaN gives at the end of a tensor instead.
    `finite_infinity_zero`: infinities become zero in f4 and f6. `through_f16` rounds an f32 to f16 first and loses the
    sign of -0. `f64_once` lists the formats to which an f64 is rounded once; to the others it goes by way of f32.
    `slips` holds by format when not saturating. `scale` and `scale_range` are for f8E8M0FNU.
    """

    authority: str
    saturation: str
    nan: str
    formats: tuple[str, ...]
    overflow: FloatOverflow
    sources: tuple[str, ...] = ("f16", "bf16", "f32", "f64")
    scale: str = ""
    notes: str = ""
    chosen_saturation: tuple[str, ...] = ()
    roundings: Mapping[str, tuple[Rounding, ...]] = field(default_factory=lambda: {SCALE: (Rounding.NEAREST_UP,)})
    nans: Mapping[str, NanCode] = field(default_factory=dict)
    nan_tails: Mapping[str, NanTail] = field(default_factory=dict)
    finite_nan: FiniteNan = FiniteNan.OPPOSITE_ZERO
    finite_infinity_zero: bool = False
    through_f16: bool = False
    f64_once: tuple[str, ...] = ()
    slips: Mapping[str, Slip] = field(default_factory=dict)
    scale_range: ScaleRange = ScaleRange.AFTER_ROUNDING

    def roundings_to(self, target: str) -> tuple[Rounding, ...]:
        """Return the roundings to `target`, the default first."""
        return self.roundings.get(target) or self.roundings.get("", (Rounding.NEAREST_EVEN,))

    def nan_code(self, source: str, target: str) -> NanCode:
        """Return which NaN of `target`, an IEEE or FN format, a NaN of `source` gives."""
        keys = (f"{source} {target}", target, "")
        return next((self.nans[key] for key in keys if key in self.nans), NanCode.QUIET)
