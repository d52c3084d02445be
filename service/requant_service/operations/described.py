"""Our own operations by their descriptions: a call is planned within the limits of the service, whatever it came in."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from requant.description import Kind, Limits, Member, ModuleLimits, Operation, OperationCall, PlannedWork
from requant.errors import (
    InvalidRequestError,
    LimitError,
    TypeFitError,
    UnsupportedError,
    default_pointer,
    pointers_for_sides,
)
from requant.mlir.types import TensorType
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

Made = TypeVar("Made")

MAX_EXPLAINED = 256
"""The most elements of a tensor that is explained."""


# Of the seconds that a request may take, what a search has before it answers with what it found. The rest is for
# reading the request, and for what has begun.
_SEARCHED = 0.6


def limits_of(settings: Settings) -> Limits:
    """Return the limits of the service that operations have to know."""
    module = ModuleLimits(
        characters=settings.max_module_bytes,
        operations=settings.max_module_operations,
        constant_elements=settings.max_module_constants,
        evaluation_bytes=settings.max_evaluation_bytes,
        evaluation_products=settings.max_evaluation_products,
    )
    return Limits(
        rank=settings.max_rank,
        factors=settings.max_factors,
        passes=settings.max_passes,
        explained=MAX_EXPLAINED,
        compute_seconds=_SEARCHED * settings.max_compute_seconds,
        module=module,
    )


def plan_operation(
    operation: Operation, call: OperationCall, places: Mapping[str, str], settings: Settings
) -> PlannedWork:
    """Plan a call. `places`: where the request has the type of each input and of the output, for errors about them.

    Raise LimitError for an output that is too large to be computed or traced, or takes too many products.
    """
    named = {each.side or each.name: places[each.name] for each in operation.tensors if each.name in places}
    if "output" in places:
        named["output"] = places["output"]
    # What a profile does not take, and no type or option is to blame for, is about the profile.
    about_profile = default_pointer("/profile", UnsupportedError) if operation.has_option("profile") else nullcontext()
    try:
        with about_profile, pointers_for_sides(**named):
            work = operation.plan(call)
    except InvalidRequestError as error:
        if any(not fault.pointer for fault in error.faults):
            error.detail = f"the body: {error.detail}"
        raise
    if work.traced and work.sums > settings.max_traced:
        limit = settings.max_traced
        check_size(work.sums, 0, settings)
        detail = f"the output has {work.sums} elements; the stages of at most {limit} are traced"
        raise LimitError(detail, limit=limit, pointer="/trace")
    check_size(work.sums, work.products, settings)
    return work


async def cached_plan(
    key: Hashable,
    running: Runtime,
    plan: Callable[[], Made],
    characters: Callable[[], int],
    held_bytes: Callable[[Made], int | None],
) -> Made:
    """Return the plan that is kept for `key`, or a new one: making it takes as long as reading so many characters.

    `held_bytes`: about how many bytes a plan takes, None for one that is not kept. Nor is any if `key` is None.
    """
    known: Made | None = None if key is None else running.planned.get(key)
    if known is not None:
        return known
    made = await running.executor.run_text(characters(), plan)
    if key is not None and (byte_count := held_bytes(made)) is not None:
        running.planned.put(key, made, byte_count)
    return made


def weight(work: PlannedWork, byte_count: int, settings: Settings) -> int:
    """Return the bytes of a tensor that take about as long as work on so many bytes: more than are done at once on the
    event loop, if it searches.
    """
    return max(byte_count, work.cost, settings.inline_bytes + 1 if work.searches else 0)


def decimal_texts(member: Member, value: Any) -> Any:
    """Return the value of a member with the numbers in it as texts that are texts in JSON."""
    if not member.members:
        return repr(value) if member.kind is Kind.DECIMAL else value
    if all(each.kind is not Kind.DECIMAL and not each.members for each in member.members):
        return value
    known = {each.name: each for each in member.members}

    def written(group: Mapping[str, Any]) -> dict[str, Any]:
        return {name: decimal_texts(known[name], each) for name, each in group.items()}

    return list(map(written, value)) if member.repeated else written(value)


def common_type(types: Sequence[TensorType], places: Sequence[str]) -> TensorType:
    """Return the type of all tensors, or raise TypeFitError for the first that has another."""
    for type_, place in zip(types, places, strict=True):
        if type_ != types[0]:
            raise TypeFitError("the tensors must have one type; this one differs from the first", pointer=place)
    return types[0]


def check_factors(count: int, of: str, settings: Settings, pointer: str) -> None:
    """Raise LimitError for more numbers than are read as exactly as they are written, and multipliers derived for, at
    once. `of`: what has one each.
    """
    limit = settings.max_factors
    if count > limit:
        raise LimitError(f"there are {count} {of}; the limit is {limit}", limit=limit, pointer=pointer)


def check_size(sums: int, products: int, settings: Settings) -> None:
    """Raise LimitError for an output of too many sums, or of too many products."""
    limit = settings.max_sums
    if sums > limit:
        raise LimitError(f"the output has {sums} elements; at most {limit} are computed", limit=limit)
    limit = settings.max_products
    if products > limit:
        detail = f"the output takes {products} multiplications, or as long as so many; at most {limit} are done"
        raise LimitError(detail, limit=limit)
