"""What a profile is made of: one rule for each operation, in words, in a formula, and in the terms that plans read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.errors import UnsupportedError


class Operation(StrEnum):
    """The operations for which a profile can state a rule."""

    QUANTIZE = "quantize"
    DEQUANTIZE = "dequantize"
    REQUANTIZE = "requantize"


class Rounding(StrEnum):
    """How a real number becomes an integer, or in dequantize a float of the expressed type."""

    NEAREST_EVEN = "nearest_even"
    NEAREST_AWAY = "nearest_away"
    SINGLE = "single"
    """Nearest, ties toward plus infinity, once, on the exact product."""
    DOUBLE = "double"
    """Nearest, ties toward plus infinity, at 31 fraction bits; then nearest, ties away from zero, at the shift."""


class ZeroPoint(StrEnum):
    """When the zero point is added, relative to rounding (in dequantize: when it is subtracted)."""

    BEFORE_ROUNDING = "before_rounding"
    AFTER_ROUNDING = "after_rounding"
    BEFORE_SCALING = "before_scaling"


@dataclass(frozen=True, slots=True)
class OperationRule:
    """One operation of one profile. x is real, q stored, s the scale, z the zero point, lo and hi the storage bounds.

    `arithmetic` is the type in which the quotient or product is taken. `symmetric` lists the storages (of input and
    output, in requantize) for which the real system refuses a zero point other than 0. `scheme` names the derivation of
    multiplier and shift, in requantize.
    """

    formula: str
    precision: str
    rounding: Rounding
    zero_point: ZeroPoint
    saturation: str
    nan: str
    arithmetic: str = "f32"
    symmetric: tuple[str, ...] = ()
    scheme: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A named contract: which system it equals, and one rule for each operation that it defines."""

    name: str
    title: str
    summary: str
    source: str
    operations: Mapping[Operation, OperationRule]

    def rule(self, operation: Operation) -> OperationRule:
        """Return the rule for `operation`, or raise UnsupportedError naming what the profile does define."""
        rule = self.operations.get(operation)
        if rule is None:
            known = ", ".join(sorted(self.operations))
            raise UnsupportedError(f"profile {self.name} does not define {operation}; it defines {known}")
        return rule


NO_NAN = "integers have no NaN"
DEQUANTIZE = OperationRule(
    formula="f32(f32(q - z) * f32(s))",
    precision="q - z in int32 (wraps for 32-bit storage), one f32 conversion, one f32 multiplication",
    rounding=Rounding.NEAREST_EVEN,
    zero_point=ZeroPoint.BEFORE_SCALING,
    saturation="none",
    nan=NO_NAN,
)
"""The dequantization that most systems share (spec/numerics.md H.2)."""
