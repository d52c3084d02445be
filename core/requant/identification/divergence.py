"""Where a candidate diverges: the first step of an element at which two explanations differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import flat_bits
from requant.convert.explain.explanation import Step
from requant.description import Array, OperationCall
from requant.errors import RequantError
from requant.identification.candidates import Candidate, options_for
from requant.identification.separation import one_channel
from requant.mlir.types import TensorType, Type, UniformPerAxisType, UniformSubChannelType
from requant.plan.operands import static_shape


@dataclass(frozen=True, slots=True)
class Divergence:
    """A step of one candidate, and that of another in its place; None where it has no further step."""

    step: Step | None
    other: Step | None


def first_divergence(call: ArrayCall, index: int, candidate: Candidate, other: Candidate) -> Divergence | None:
    """Return the first step at which an element is computed otherwise, or None where no explanation tells."""
    try:
        steps, others = (_steps(call, index, each) for each in (candidate, other))
    except RequantError:
        return None
    for position in range(max(len(steps), len(others))):
        one = steps[position] if position < len(steps) else None
        two = others[position] if position < len(others) else None
        if one is None or two is None or (one.symbol, one.value) != (two.symbol, two.value):
            return Divergence(one, two)
    return None


def _steps(call: ArrayCall, index: int, candidate: Candidate) -> Sequence[Step]:
    """Return the steps of one element of a conversion; of other operations, none."""
    if call.operation.explainer is None:
        return ()
    options: Mapping[str, Any] = {**call.operation.defaults, **call.options, **options_for(candidate, call)}
    source, target = call.types["input"], options["output_type"]
    output = target.element if isinstance(target, TensorType) else target
    channel = _channel(static_shape(source), index, source.element, output)
    if channel is None:
        return ()
    one = OperationCall(
        {"input": TensorType((1, 1), one_channel(source.element, channel))},
        {**options, "output_type": None if output is None else one_channel(output, channel)},
    )
    explainer = call.operation.explainer(one)
    value: Array = np.ascontiguousarray(call.arrays["input"]).reshape(-1)[index : index + 1]
    stored = flat_bits(value, explainer.plan.input_dtype, source.element, "input")
    steps: Sequence[Step] = explainer.element(0, stored).steps
    return steps


def _channel(shape: Sequence[int], index: int, *elements: Type | None) -> int | None:
    """Return the channel of an element, 0 where there is one, None where parameters are those of blocks."""
    if any(isinstance(each, UniformSubChannelType) for each in elements):
        return None
    axes = [each.axis for each in elements if isinstance(each, UniformPerAxisType)]
    return int(np.unravel_index(index, shape)[axes[0]]) if axes else 0
