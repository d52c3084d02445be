"""Where a candidate goes another way: the first step of an element at which two explanations differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from requant.convert.explain.explanation import Step
from requant.convert.explain.requantize import requantize_explainer
from requant.description import Array
from requant.errors import RequantError
from requant.identification.candidates import options_for
from requant.identification.observed_call import Candidate, ObservedCall
from requant.identification.separation import one_channel
from requant.integer.product import ProductPlan
from requant.mlir.types import TensorType
from requant.operations.conversions import CONVERSION_OPTIONS
from requant.operations.explain import EXPLAINERS
from requant.plan.channels import block_counts
from requant.profiles import Operation


@dataclass(frozen=True, slots=True)
class Divergence:
    """A step of one candidate, and that of another in its place; None where it has no further step."""

    step: Step | None
    other: Step | None


def first_divergence(
    call: ObservedCall, index: int, candidate: Candidate, other: Candidate
) -> Divergence | None:
    """Return the first step at which an element is computed otherwise, or None where no explanation tells."""
    try:
        steps, others = _steps(call, index, candidate), _steps(call, index, other)
    except RequantError:
        return None
    if steps is None or others is None:
        return None
    for position in range(max(len(steps), len(others))):
        one = steps[position] if position < len(steps) else None
        two = others[position] if position < len(others) else None
        if one is None or two is None or (one.value, one.symbol) != (two.value, two.symbol):
            return Divergence(one, two)
    return None


def _steps(call: ObservedCall, index: int, candidate: Candidate) -> Sequence[Step] | None:
    """Return the steps of one element of a conversion."""
    name = call.operation.name
    if name not in tuple(Operation):
        return None
    operation = Operation(name)
    options = {**call.operation.defaults, **call.options}
    options |= {key: call.operation.option(key).resolve(value) for key, value in options_for(candidate, call)}
    kept = {each.name: options[each.name] for each in CONVERSION_OPTIONS[operation] if options[each.name] is not None}
    source, target = call.types["input"], options["output_type"]
    channel = _channel(source, target, index)
    narrowed = TensorType((1, 1), one_channel(source.element, channel))
    element = target.element if isinstance(target, TensorType) else target
    output = None if element is None else one_channel(element, channel)
    explainer = EXPLAINERS[operation](narrowed, output, options["profile"], **kept)
    value = np.ascontiguousarray(call.arrays["input"]).reshape(-1)[index : index + 1]
    return explainer.element(0, value.astype(explainer.plan.input_dtype))[:].steps
