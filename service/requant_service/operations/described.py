"""Our own operations by their descriptions: a call is planned within the limits of the service, whatever it came in."""

from __future__ import annotations

from collections.abc import Mapping

from requant.description import Operation, OperationCall, PlannedWork
from requant.errors import LimitError, UnsupportedError, default_pointer, pointers_for_sides
from requant_service.operations.integer import check_size, weight_of
from requant_service.runtime.settings import Settings


def plan_operation(
    operation: Operation, call: OperationCall, places: Mapping[str, str], settings: Settings
) -> PlannedWork:
    """Plan a call. `places`: where the request has the type of each input and of the output, for errors about them.

    Raise LimitError for an output that is too large to be computed or traced, or takes too many products.
    """
    named = {each.side or each.name: places[each.name] for each in operation.inputs if each.name in places}
    # What a profile does not take, and no type or option is to blame for, is about the profile.
    with default_pointer("/profile", UnsupportedError), pointers_for_sides(**named, output=places["output"]):
        work = operation.plan(call)
    if work.traced and work.elements > settings.max_traced:
        limit = settings.max_traced
        check_size(work.elements, 0, settings)
        detail = f"the output has {work.elements} elements; the stages of at most {limit} are traced"
        raise LimitError(detail, limit=limit, pointer="/trace")
    check_size(work.elements, work.products, settings)
    return work


def weight(work: PlannedWork) -> int:
    """Return the bytes of a tensor that take about as long."""
    return weight_of(work.elements, work.products)
