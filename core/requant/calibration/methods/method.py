"""What a calibration method is made of: how one system finds a range in data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, finish_type, scales_of_type
from requant.calibration.methods.observed import Observed
from requant.calibration.ranges import RANGE_RULES, RangeOptions, RangeParameters, RangeRule
from requant.errors import LimitError, ParameterError, UnsupportedError
from requant.formats.elements import FloatElement
from requant.mlir.types import StorageType, UniformQuantizedType

Array = NDArray[Any]

MAX_BINS = 8192
MAX_GROWN_BINS = 65536
MAX_CANDIDATES = 1024


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """What a caller may ask of a method. Each method has some of these; None is the method's default.

    averaging_constant: how much of the newest tensor goes into a moving average, 0 to 1.
    percentile: how much of the data the range keeps, in percent.
    magnitudes: a percentile of |x|, for a range around 0.
    bins: of the histogram.
    quantized_bins: how many bins a histogram is merged into.
    first_bins: bins of the smallest candidate for a range.
    candidates: how many ranges are tried.
    profile: what quantizes and dequantizes the candidates.
    """

    averaging_constant: float | None = None
    percentile: float | None = None
    magnitudes: bool | None = None
    bins: int | None = None
    quantized_bins: int | None = None
    first_bins: int | None = None
    candidates: int | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class CalibratedRanges:
    """One range for each parameter, f64. `left_out` counts the elements, NaN or infinite, that had no part in it."""

    minimums: Array
    maximums: Array
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """What the range is wanted for: the rule that turns it into parameters, and the type that they make."""

    rule: RangeRule
    options: RangeOptions
    storage: StorageType
    expressed: FloatElement
    granularity: Granularity

    def parameters(self, minimums: Array, maximums: Array) -> RangeParameters:
        """Return zero points, and scales as the type has them, where one has. Errors as of RangeRule.derive_all."""
        derived = self.rule.derive_all(minimums, maximums, self.storage, self.options)
        return replace(derived, scales=np.array(scales_of_type(derived.scales, self.expressed, self.granularity)))

    def type_of(self, derived: RangeParameters) -> UniformQuantizedType:
        """Return the type with these parameters. Errors as of finish_type."""
        return finish_type(derived.storage, self.expressed, derived.scales, derived.zero_points, self.granularity)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationMethod:
    """How one system finds ranges.

    `scheme` is the range rule of the same system. `options` are the names of those that the method has. `one_pass`: it
    looks at each element once, and searches nothing. `may_cross`: a minimum can lie above its maximum, and the system
    goes on with both as ends of a range that includes 0. `find` gets tensors that are not empty, the options, and what
    the ranges are for.
    """

    name: str
    summary: str
    formula: str
    source: str
    scheme: str = "onnxruntime"
    one_pass: bool = False
    may_cross: bool = False
    options: frozenset[str] = frozenset()
    find: Callable[[Observed, CalibrationOptions, Target], CalibratedRanges]

    def scheme_for(self, *, blocks: bool) -> str:
        """Return the name of the system's range rule, for blocks or for what is not blocks."""
        return (RANGE_RULES[self.scheme].block_rule if blocks else None) or self.scheme

    def find_ranges(self, observed: Observed, options: CalibrationOptions, target: Target) -> CalibratedRanges:
        """Return the ranges of the observed tensors.

        Raise UnsupportedError for an option that the method has not, ParameterError for one that is out of bounds,
        LimitError for too much work, PreconditionError for data that have no range: no elements, or, where the method's
        system says so, NaN or infinity.
        """
        for field in fields(options):
            if getattr(options, field.name) is not None and field.name not in self.options:
                has = ", ".join(sorted(self.options)) or "none"
                detail = f"{self.name} has no option {field.name}; it has {has}"
                raise UnsupportedError(detail, pointer=f"/{field.name}")
        observed.check_not_empty()
        return self.find(observed, options, target)

    def parameters(self, ranges: CalibratedRanges, target: Target) -> RangeParameters:
        """Return the scales and zero points of the ranges. Raise what RangeRule.derive_all raises."""
        lows, highs = ranges.minimums, ranges.maximums
        if self.may_cross:
            crossed = lows > highs
            lows = np.where(crossed, np.minimum(lows, 0.0), lows)
            highs = np.where(crossed, np.maximum(highs, 0.0), highs)
        return target.parameters(lows, highs)


def integer_option(options: CalibrationOptions, name: str, default: int, least: int, most: int) -> int:
    """Return an option that is a number from `least` to `most`, or raise ParameterError."""
    value = getattr(options, name)
    if value is None:
        return default
    if not least <= value <= most:
        raise ParameterError(f"{name} must be from {least} to {most}", pointer=f"/{name}")
    return int(value)


def real_option(options: CalibrationOptions, name: str, default: float, most: float) -> float:
    """Return an option that is a number from 0 to `most`, or raise ParameterError. NaN is none."""
    value = getattr(options, name)
    if value is None:
        return default
    if not 0.0 <= value <= most:
        raise ParameterError(f"{name} must be from 0 to {most:g}", pointer=f"/{name}")
    return float(value)


def limit_work(steps: float, most: int, what: str) -> None:
    """Raise LimitError if a search would take more than `most` steps. `what` says what they are."""
    if steps > most:
        raise LimitError(f"the search would take {steps:.3g} steps ({what}); the limit is {most}", limit=most)
