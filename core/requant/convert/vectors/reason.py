"""Why an input or a parameter set was selected for the vectors."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why an input was selected. Adjacent: one bit pattern lower or higher."""

    TIE = "tie"
    """An intermediate value that is rounded lies halfway between two: the step says which."""
    BELOW_TIE = "below_tie"
    """Adjacent to a tie, below it, and not itself a tie."""
    ABOVE_TIE = "above_tie"
    STEP_BOUNDARY = "step_boundary"
    """An adjacent input is among the vectors and has a different result."""
    SATURATES_LOW = "saturates_low"
    SATURATES_HIGH = "saturates_high"
    STORAGE_MINIMUM = "storage_minimum"
    """The lowest stored value: of the result, without saturation, or of a dequantized input."""
    STORAGE_MAXIMUM = "storage_maximum"
    ACCUMULATOR_MINIMUM = "accumulator_minimum"
    """The lowest input that the requantization is defined for."""
    ACCUMULATOR_MAXIMUM = "accumulator_maximum"
    WRAPS = "wraps"
    """An intermediate result overflows int32 and wraps."""
    BESIDE_WRAP = "beside_wrap"
    """Adjacent to an input that wraps, without wrapping itself."""
    ZERO_POINT = "zero_point"
    """The input is its own zero point."""
    ZERO = "zero"
    NEGATIVE_ZERO = "negative_zero"
    SUBNORMAL = "subnormal"
    SMALLEST_NORMAL = "smallest_normal"
    LARGEST_FINITE = "largest_finite"
    POSITIVE_INFINITY = "positive_infinity"
    NEGATIVE_INFINITY = "negative_infinity"
    NAN = "nan"
    RANDOM = "random"
    """Drawn at random from the seed, with no other reason."""


class ParameterReason(StrEnum):
    """Why a parameter set was selected."""

    GIVEN = "given"
    SCALE_ONE = "scale_one"
    SCALE_ONE_ULP_BELOW_ONE = "scale_one_ulp_below_one"
    SCALE_ONE_ULP_ABOVE_ONE = "scale_one_ulp_above_one"
    SCALE_POWER_OF_TWO = "scale_power_of_two"
    SCALE_SMALLEST_NORMAL = "scale_smallest_normal"
    SCALE_SUBNORMAL = "scale_subnormal"
    RECIPROCAL_SUBNORMAL = "reciprocal_subnormal"
    SCALE_LARGEST = "scale_largest"
    MULTIPLIER_MINIMUM = "multiplier_minimum"
    MULTIPLIER_MAXIMUM = "multiplier_maximum"
    MULTIPLIER_ONE = "multiplier_one"
    MULTIPLIER_POWER_OF_TWO = "multiplier_power_of_two"
    SHIFT_MINIMUM = "shift_minimum"
    SHIFT_MAXIMUM = "shift_maximum"
    ZERO_POINT_MINIMUM = "zero_point_minimum"
    ZERO_POINT_MAXIMUM = "zero_point_maximum"
    RANDOM = "random"
