"""Conversions with the steps of each element: the explainer of a call, and what replies say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from requant.convert.explain.dequantize import dequantize_explainer
from requant.convert.explain.explanation import ElementExplanation, Explainer, Explanation, Step
from requant.convert.explain.quantize import quantize_explainer
from requant.convert.explain.requantize import requantize_explainer
from requant.convert.explain.working import float_text
from requant.errors import LimitError
from requant.formats.elements import FloatElement
from requant.mlir.types import ElementType
from requant.profiles import Operation
from requant_service.operations.conversion_call import ConversionCall, PlannedConversion, made_of_call
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

MAX_EXPLAINED = 256
"""The most elements of a tensor that is explained."""
CHARACTERS_PER_ELEMENT = 256
"""The cost of explaining an element, in characters of text that cost the same."""
BYTES_PER_ELEMENT = 16 << 10
"""About how much memory the steps of an element and their JSON take."""

_EXPLAINERS: Mapping[Operation, Callable[..., Explainer]] = {
    Operation.QUANTIZE: quantize_explainer,
    Operation.DEQUANTIZE: dequantize_explainer,
    Operation.REQUANTIZE: requantize_explainer,
}


def explainer_of(call: ConversionCall, planned: PlannedConversion, settings: Settings) -> Explainer:
    """Return the explainer of a planned call. Raise LimitError for a tensor that is too large."""
    if planned.elements > MAX_EXPLAINED:
        raise LimitError(
            f"the tensor has {planned.elements} elements; at most {MAX_EXPLAINED} are explained",
            limit=MAX_EXPLAINED,
            pointer="/input_type",
        )
    # With the scales, if they were derived.
    finished = call._replace(output_type=planned.plan.output_type, calibration=())
    return made_of_call(finished, _EXPLAINERS[call.operation], settings)


async def planned_explanation(
    call: ConversionCall, planned: PlannedConversion, characters: int, running: Runtime
) -> Explainer:
    """Return the explainer of a planned call, whose type texts have so many `characters`."""
    return await running.executor.run_text(characters, partial(explainer_of, call, planned, running.settings))


def explanation_members(explanation: Explanation) -> dict[str, Any]:
    """Return the members of an explanation in the replies of all protocols."""
    element = explanation.plan.output_type.element
    elements = [element_members(each, element) for each in explanation.elements]
    return {"formula": list(explanation.formula), "elements": elements}


def element_members(explained: ElementExplanation, element: ElementType) -> dict[str, Any]:
    """Return the members of one element: its input, its steps and its result."""
    result = str(explained.result)
    if isinstance(explained.result, float) and isinstance(element, FloatElement):
        result = float_text(explained.result, element)
    members: dict[str, Any] = {
        "input": explained.input,
        "parameter": explained.parameter,
        "steps": [_step(each) for each in explained.steps],
        "result": result,
    }
    if explained.saturated is not None:
        members["saturated"] = str(explained.saturated)
    return members


def _step(step: Step) -> dict[str, Any]:
    """Return the members of a step, without those that do not apply."""
    members = {each.name: getattr(step, each.name) for each in fields(step)}
    return {name: value for name, value in members.items() if value is not None and value is not False}
