"""Conversions with the steps of each element, within the limits of the service."""

from __future__ import annotations

from functools import partial

from requant.convert.explain.explanation import Explainer
from requant.errors import LimitError
from requant.operations.explain import EXPLAINERS
from requant_service.operations.conversion_call import ConversionCall, PlannedConversion, made_of_call
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

MAX_EXPLAINED = 256
"""The most elements of a tensor that is explained."""
CHARACTERS_PER_ELEMENT = 256
"""The cost of explaining an element, in characters of text that cost the same."""


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
    return made_of_call(finished, EXPLAINERS[call.operation], settings)


async def planned_explanation(
    call: ConversionCall, planned: PlannedConversion, characters: int, running: Runtime
) -> Explainer:
    """Return the explainer of a planned call, whose type texts have so many `characters`."""
    return await running.executor.run_text(characters, partial(explainer_of, call, planned, running.settings))
