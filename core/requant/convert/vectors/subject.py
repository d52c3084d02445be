"""The subject of vectors: one parameter set of an operation, the line of its inputs, and the reasons for a selection.

Ordinals number the elements of a type in ascending order: that of an integer is its value, that of a float the bits of
its magnitude, with its sign. Zero is 0; negative zero and NaN have no ordinal, infinity follows the largest finite
number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.explain.explanation import ContradictionError, ElementExplanation, Explainer, numbers, same
from requant.convert.explain.float_steps import Draw
from requant.errors.cancellation import checked
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Specials
from requant.plan.plan import Report


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


class Draws:
    """A pseudorandom stream: SplitMix64 of a seed and a counter."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def below(self, bound: int) -> int:
        """Return a number from 0 to bound - 1, at most 2^96 of them."""
        number = 0
        for _ in range(4):
            number = number << 32 | Draw.of(self._seed, self._count).bits
            self._count += 1
        return number * bound >> 128

    def between(self, lowest: int, highest: int) -> int:
        """Return a number from `lowest` to `highest`."""
        return lowest + self.below(highest - lowest + 1)


Array = NDArray[Any]


class NumberLine(ABC):
    """The elements of a type. A pattern is an element's bits if it is a float, else the integer itself."""

    lowest: int
    highest: int

    @abstractmethod
    def pattern(self, ordinal: int) -> int:
        """Return the element at an ordinal."""

    @abstractmethod
    def ordinal(self, pattern: int) -> int | None:
        """Return the ordinal of an element, None if it has none."""

    @abstractmethod
    def array(self, patterns: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return elements as the input of a plan."""

    @abstractmethod
    def special(self) -> Iterable[int]:
        """Return the patterns of the elements that every list of vectors contains."""

    @abstractmethod
    def reasons(self, pattern: int) -> tuple[Reason, ...]:
        """Return the reasons that depend on the element alone."""


@dataclass(frozen=True, slots=True)
class Integers(NumberLine):
    """The integers from `lowest` to `highest`."""

    lowest: int
    highest: int

    def pattern(self, ordinal: int) -> int:
        return ordinal

    def ordinal(self, pattern: int) -> int | None:
        return pattern

    def array(self, patterns: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return np.array(patterns, dtype)

    def special(self) -> Iterable[int]:
        return [each for each in (self.lowest, self.highest, 0, 1, -1) if self.lowest <= each <= self.highest]

    def reasons(self, pattern: int) -> tuple[Reason, ...]:
        return (Reason.ZERO,) if pattern == 0 else ()


class Floats(NumberLine):
    """The numbers of a float format."""

    def __init__(self, name: str) -> None:
        self.format = FLOATS[name]
        self.highest = self.format.largest_code
        self.lowest = -self.highest if self.format.sign_bit else 0

    def pattern(self, ordinal: int) -> int:
        return ordinal if ordinal >= 0 else self.format.sign_bit | -ordinal

    def ordinal(self, pattern: int) -> int | None:
        magnitude = pattern & ~self.format.sign_bit
        if magnitude > self.highest and magnitude != self.format.infinity_code:
            return None
        if pattern & self.format.sign_bit:
            return -magnitude or None
        return magnitude

    def array(self, patterns: Sequence[int], dtype: np.dtype[Any]) -> Array:
        return np.array(patterns, f"<u{dtype.itemsize}").view(dtype)

    def special(self) -> Iterable[int]:
        format_ = self.format
        first_normal = 1 << format_.mantissa_bits
        magnitudes = [0, self.highest]
        if format_.specials is not Specials.SCALE:
            magnitudes += [1, first_normal, first_normal - 1]
        if format_.infinity_code is not None:
            quiet = format_.infinity_code | 1 << (format_.mantissa_bits - 1)
            magnitudes += [format_.infinity_code, quiet, format_.infinity_code | 1]
        elif format_.specials is Specials.FN:
            magnitudes.append(self.highest + 1)
        elif format_.specials is Specials.SCALE:
            return [*magnitudes, 1, self.highest + 1]
        return dict.fromkeys([*magnitudes, *(format_.sign_bit | each for each in magnitudes)])

    def reasons(self, pattern: int) -> tuple[Reason, ...]:
        format_ = self.format
        value = format_.value(pattern)
        if value != value:
            return (Reason.NAN,)
        magnitude = pattern & ~format_.sign_bit
        if magnitude == format_.infinity_code:
            return (Reason.POSITIVE_INFINITY if value > 0 else Reason.NEGATIVE_INFINITY,)
        reasons = []
        if value == 0.0:
            reasons.append(Reason.NEGATIVE_ZERO if pattern else Reason.ZERO)
        elif format_.specials is not Specials.SCALE:
            first_normal = 1 << format_.mantissa_bits
            if magnitude < first_normal:
                reasons.append(Reason.SUBNORMAL)
            elif magnitude == first_normal:
                reasons.append(Reason.SMALLEST_NORMAL)
        if magnitude == self.highest:
            reasons.append(Reason.LARGEST_FINITE)
        return tuple(reasons)


def number_line(element: IntegerElement | FloatElement) -> NumberLine:
    """Return the elements of a type in their order."""
    if isinstance(element, IntegerElement):
        return Integers(element.minimum, element.maximum)
    return Floats(element.name)


Element = IntegerElement | FloatElement
Number = int | float

# Elements explained between two checks for cancellation.
_CANCELLABLE = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where the elements of a channel lie in a tensor: at `channel` of `channels` along `axis`, the others after it."""

    channel: int = 0
    channels: int = 1
    axis: int = 0

    def shape(self, elements: int) -> tuple[int, ...]:
        """Return the shape of a tensor with this many elements in the channel."""
        if self.channels == 1 and self.axis == 0:
            return (elements,)
        if self.axis == 0:
            return (self.channels, elements)
        return (elements, *(1 for _ in range(self.axis - 1)), self.channels)

    def indices(self, elements: int) -> Array:
        """Return the flat indices of the channel's elements."""
        grid: Array = np.arange(prod(self.shape(elements)))
        of_channel: Array = grid.reshape(elements, self.channels)[:, self.channel]
        if self.axis == 0:
            of_channel = grid.reshape(self.channels, elements)[self.channel]
        return of_channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One parameter set. `explainer` returns the explainer of a tensor of a shape.

    `input` and `output` are the storage types; `parameters` the numbers of the set by name, `scale` the type of its
    scales. `filling` is the stored element in the other channels of a tensor.
    """

    explainer: Callable[[tuple[int, ...]], Explainer]
    input: Element
    output: Element
    parameters: Mapping[str, Number]
    why: tuple[ParameterReason, ...]
    scale: FloatElement = FLOATS["f64"]
    place: Place = field(default_factory=Place)
    filling: int = 0

    @property
    def line(self) -> NumberLine:
        """The inputs in order."""
        return number_line(self.input)

    def _converted(self, patterns: Sequence[int]) -> tuple[Explainer, Array, Array, Array, Report]:
        explainer = self.explainer(self.place.shape(len(patterns)))
        plan, places = explainer.plan, self.place.indices(len(patterns))
        source = np.repeat(self.line.array([self.filling], plan.input_dtype), plan.elements)
        source[places] = self.line.array(patterns, plan.input_dtype)
        target = np.empty(plan.elements, plan.output_dtype)
        report = plan.run(source, target)
        return explainer, places, source, target, report

    def results(self, patterns: Sequence[int]) -> Array:
        """Convert elements. Raise what `Plan.run` raises."""
        _, places, _, target, _ = self._converted(patterns)
        return target[places]

    def report(self, pattern: int) -> Report:
        """Convert one element and return the report."""
        return self._converted([pattern])[-1]

    def explained(self, patterns: Sequence[int]) -> tuple[Array, list[ElementExplanation], tuple[str, ...]]:
        """Convert elements; return the results, the steps of each, and the formula.

        Raise ContradictionError if an explanation ends in another result.
        """
        explainer, places, source, target, _ = self._converted(patterns)
        results = target[places]
        explanations = [explainer.element(index, source) for index in checked(places.tolist(), every=_CANCELLABLE)]
        stored = numbers(results, explainer.plan.output_type)
        for explanation, result in zip(explanations, stored, strict=True):
            if not same(explanation.result, result):
                raise ContradictionError(
                    f"{explanation.input}: explained as {explanation.result}, computed as {result}"
                )
        return results, explanations, explainer.formula()
