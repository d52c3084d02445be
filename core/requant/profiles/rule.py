"""What a profile is made of: one rule for each operation, in words, in a formula, and in the terms that plans read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from requant.errors import UnsupportedError
from requant.formats.rounding import Rounding
from requant.formats.rules import Difference, Overflow, Quotient
from requant.profiles.cast import CastRule
from requant.schemes import Factor, Scheme, Sum


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
    to LiteRT, because an operand has more than 8 bits, a signed right side a zero point, or its numbers of 4 or 2 bits
    no kernel; "undelegated i32 per_axis" for such sums with several scales on the right side.
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


class Operation(StrEnum):
    """The operations for which a profile can state a rule."""

    QUANTIZE = "quantize"
    DEQUANTIZE = "dequantize"
    REQUANTIZE = "requantize"


class ZeroPoint(StrEnum):
    """When the zero point is added, relative to rounding (in dequantize: when it is subtracted)."""

    BEFORE_ROUNDING = "before_rounding"
    AFTER_ROUNDING = "after_rounding"
    BEFORE_SCALING = "before_scaling"


class Steps(StrEnum):
    """What each step of a computation on f16 and bf16 is rounded to. f32 and f64 round each step to themselves."""

    EXPRESSED = "expressed"
    F32 = "f32"


class NanResult(StrEnum):
    """The result of NaN."""

    LOWEST = "lowest"
    HIGHEST = "highest"
    ZERO = "zero"
    ZERO_POINT = "zero_point"
    INDEFINITE = "indefinite"
    """-2^31 and the zero point added, wrapping; then clamped."""
    INDEFINITE_HIGHEST = "indefinite_highest"
    """2^31 - 128, the largest f32 in int32, and the zero point added, wrapping; then clamped."""
    INT32_MINIMUM = "int32_minimum"
    """-2^31, as x86 converts it to int32; narrower bounds do not clamp it."""
    ERROR = "error"


class ZeroPointRange(StrEnum):
    """Which zero points a rule takes."""

    STORAGE = "storage"
    """Those that the storage type holds."""
    INT32 = "int32"
    TRUNCATED = "truncated"
    """Any; taken modulo the width of the storage."""


class TypeRules(StrEnum):
    """What else the real system demands of the type, beyond its storage, expressed type and granularity."""

    STABLEHLO = "stablehlo"
    """StableHLO's constraints on quantized element types."""
    SIGNLESS = "signless"
    """A signless storage type, as quant.scast demands."""
    XNNPACK = "xnnpack"
    """Scales that are normal in f32."""


INTEGERS = tuple(f"{sign}{width}" for sign in "iu" for width in range(1, 33))
"""Every integer storage."""


@dataclass(frozen=True, slots=True)
class OperationRule:
    """One operation of one profile. x is real, q stored, s the scale, z the zero point, lo and hi the storage bounds.

    The first six fields say it to people; the others say it to plans. `scales` is the type that scales are rounded to
    first. `storages` and `expressed` list the element types for which the rule is defined, `granularities` how finely.
    `symmetric` lists the storages, and `symmetric_pairs` the pairs of input and output storages, for which the real
    system refuses a zero point other than 0; a pair is written "i32 to i8". `pairs` lists the pairs that are taken,
    where not all are that `storages` makes. Small floats are cast to by the profile's `casts`; `float_zero_point` says
    that their zero point, 0, is added first (in dequantize last), so that -0 becomes 0. `split_bytes` says that 4-bit
    elements which share their byte with none of the same run of one scale overflow as INDEFINITE, NaN among them.
    `flushes` says that f32 x and reciprocals which are subnormal are taken for zero. `unit_tolerance`: scales are left
    out where all differ from 1, in f32, by at most this; None: never. `scheme` names the scheme of requantize
    (`requant.schemes`); where there is none, requantize is dequantize and then quantize. `rescale`: whether the
    types have to be those of TOSA's RESCALE. `variants` replaces the rule for some types: a storage, a granularity,
    both with a blank between, an expressed type, or in requantize a pair of storages. The granularity is per_tensor,
    per_axis, sub_channel, or sub_channel_outer for blocks along another axis than the last.
    """

    formula: str
    precision: str
    rounding: Rounding
    zero_point: ZeroPoint
    saturation: str
    nan: str
    quotient: Quotient = Quotient.DIVISION
    steps: Steps = Steps.F32
    scales: Steps = Steps.EXPRESSED
    overflow: Overflow = Overflow.SATURATE
    nan_result: NanResult = NanResult.LOWEST
    difference: Difference = Difference.INTEGER
    expressed: tuple[str, ...] = ("f32",)
    storages: tuple[str, ...] = INTEGERS
    zero_points: ZeroPointRange = ZeroPointRange.STORAGE
    granularities: tuple[str, ...] = ("per_tensor", "per_axis")
    short_blocks: bool = False
    symmetric: tuple[str, ...] = ()
    symmetric_pairs: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    type_rules: TypeRules | None = None
    float_zero_point: bool = False
    split_bytes: bool = False
    flushes: bool = False
    unit_tolerance: float | None = None
    scheme: str | None = None
    rescale: bool = False
    variants: Mapping[str, OperationRule] = field(default_factory=dict)

    def for_type(self, granularity: str, storage: str, expressed: str) -> OperationRule:
        """Return the variant for a type, or this rule."""
        keys = (f"{storage} {granularity}", storage, granularity, expressed)
        return next((self.variants[key] for key in keys if key in self.variants), self)

    def for_pair(self, source: str, target: str) -> OperationRule:
        """Return the variant for a pair of storages, or this rule. Raise UnsupportedError if the pair is not taken."""
        pair = f"{source} to {target}"
        if self.pairs and pair not in self.pairs:
            raise UnsupportedError(f"this profile does not convert {pair}; it converts {', '.join(self.pairs)}")
        return self.variants.get(pair, self)


@dataclass(frozen=True, slots=True)
class Profile:
    """A named contract: which system it equals, one rule for each operation that it defines, and its casts, if any.

    `products` are its rules for matmul and conv2d, `addition` that for add.
    """

    name: str
    title: str
    summary: str
    source: str
    operations: Mapping[Operation, OperationRule]
    casts: CastRule | None = None
    products: Mapping[str, ProductRule] = field(default_factory=dict)
    addition: AddRule | None = None

    def rule(self, operation: Operation) -> OperationRule:
        """Return the rule for `operation`, or raise UnsupportedError naming what the profile does define."""
        rule = self.operations.get(operation)
        if rule is None:
            known = [*sorted(self.operations), *(["casts between floats"] if self.casts else [])]
            raise UnsupportedError(f"profile {self.name} does not define {operation}; it defines {', '.join(known)}")
        return rule

    def product_rule(self, operation: str) -> ProductRule:
        """Return the rule for `matmul` or `conv2d`, or raise UnsupportedError."""
        rule = self.products.get(operation)
        if rule is None:
            raise UnsupportedError(f"profile {self.name} does not define {operation}")
        return rule

    def add_rule(self) -> AddRule:
        """Return the rule for add, or raise UnsupportedError."""
        if self.addition is None:
            raise UnsupportedError(f"profile {self.name} does not define add")
        return self.addition

    def cast_rule(self) -> CastRule:
        """Return the rule for casts between floats, or raise UnsupportedError."""
        if self.casts is None:
            raise UnsupportedError(f"profile {self.name} does not define casts between floats")
        return self.casts


NO_NAN = "integers have no NaN"
DEQUANTIZE = OperationRule(
    formula="E(f32(f32(q - z) * s)), s = E(scale)",
    precision="q - z in int32 (wraps for 32-bit storage), one f32 conversion, one f32 multiplication",
    rounding=Rounding.NEAREST_EVEN,
    zero_point=ZeroPoint.BEFORE_SCALING,
    saturation="none",
    nan=NO_NAN,
)
"""The dequantization that most systems share."""


def scheme_rule(scheme: Scheme, **more: Any) -> OperationRule:
    """Return the rule of requantize of a scheme. `more`: fields of OperationRule that the scheme does not say."""
    wraps = scheme.stage.total is Sum.WRAPS
    where = f"; {scheme.where}" if scheme.where else ""
    fields: dict[str, Any] = {
        "formula": f"clamp({scheme.formula}, lo, hi), v = q - z_in{where}",
        "precision": f"the factor d is {scheme.factor}; {scheme.derivation}; m and shift stand for {scheme.convention}",
        "rounding": scheme.rounding,
        "zero_point": ZeroPoint.AFTER_ROUNDING,
        "saturation": f"clamp after the addition of z_out{', which wraps in int32' if wraps else ''}; "
        f"preconditions, whose violation is an error: {'; '.join(scheme.stage.demands.values())}",
        "nan": NO_NAN,
        "scheme": scheme.name,
    }
    return OperationRule(**(fields | more))
