"""The subject of vectors: one parameter set of an operation, and how it converts tensors of any size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.explain.explainer import ContradictionError, Explainer, numbers, same
from requant.convert.explain.explanation import ElementExplanation
from requant.convert.vectors.number_line import NumberLine, number_line
from requant.convert.vectors.reason import ParameterReason
from requant.errors.cancellation import checked
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.plan.report import Report

Array = NDArray[Any]
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
        found = [explainer.element(index, source) for index in checked(places.tolist(), every=_CANCELLABLE)]
        stored = numbers(results, explainer.plan.output_type)
        for explanation, result in zip(found, stored, strict=True):
            if not same(explanation.result, result):
                raise ContradictionError(
                    f"{explanation.input}: explained as {explanation.result}, computed as {result}"
                )
        return results, found, explainer.formula()
