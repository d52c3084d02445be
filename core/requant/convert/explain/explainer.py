"""Explains the elements of a conversion, and checks every explanation against the conversion itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.explain.explanation import ElementExplanation, Explanation, Saturation
from requant.errors.cancellation import checked
from requant.formats.elements import FloatElement
from requant.mlir.types import TensorType
from requant.plan.lanes import LANES, widen
from requant.plan.plan import Plan

Array = NDArray[Any]

# Elements explained between two checks for cancellation.
_CANCELLABLE = 16


class ContradictionError(RuntimeError):
    """An explanation and the conversion disagree: a defect of the explanation, which is not returned."""


@dataclass(frozen=True, slots=True)
class Explainer(ABC):
    """Explains the conversion of a plan."""

    plan: Plan

    @abstractmethod
    def element(self, index: int, source: Array) -> ElementExplanation:
        """Return the explanation of the element at a flat index of `source`, a tensor as the plan takes it."""

    @abstractmethod
    def formula(self) -> tuple[str, ...]:
        """Return the steps of an ordinary element, each `symbol = formula`."""

    def run(self, source: Array) -> Explanation:
        """Convert a flat tensor and explain each element.

        Raise what `Plan.run` raises, and ContradictionError if an explanation ends in another result.
        """
        output = np.empty(self.plan.elements, self.plan.output_dtype)
        report = self.plan.run(source, output)
        elements = tuple(self.element(index, source) for index in checked(range(source.size), every=_CANCELLABLE))
        for index, (explained, stored) in enumerate(zip(elements, numbers(output, self.plan.output_type), strict=True)):
            if not same(explained.result, stored):
                raise ContradictionError(f"element {index}: explained as {explained.result}, computed as {stored}")
        counted = tuple(sum(each.saturated is end for each in elements) for end in Saturation)
        if counted != (report.saturated_low, report.saturated_high):
            raise ContradictionError(f"saturated low and high: explained as {counted}, counted as {report}")
        return Explanation(self.plan, report, output, self.formula(), elements)


def formulas(explained: ElementExplanation) -> tuple[str, ...]:
    """Return the formulas of the steps of an element."""
    return tuple(f"{step.symbol} = {step.formula}" for step in explained.steps)


def numbers(array: Array, tensor: TensorType) -> list[int | float]:
    """Return the elements of a tensor as they are kept: floats, or stored integers and codes."""
    element = tensor.element
    if isinstance(element, FloatElement) and element.name in LANES:
        array = widen(array, element)
    found: list[int | float] = array.tolist()
    return found


def same(a: int | float, b: int | float) -> bool:
    """Return whether two numbers are the same: all NaNs are, zeros of different sign are not."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    return math.isnan(b) if math.isnan(a) else (a, math.copysign(1.0, a)) == (b, math.copysign(1.0, b))
