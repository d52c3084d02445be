"""From the options of a request to a range rule's, and from its parameters to a reply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import PreconditionError, RequantError, UnsupportedError, at, excerpt
from core.formats.elements import FloatElement
from core.mlir import parse_storage, parse_type, print_storage, print_type
from core.mlir.types import StorageType
from core.parameters.finished_type import Granularity, finish_type
from core.parameters.ranges import RangeOptions, RangeParameters, RangeRule, range_rule_named
from service.json_api.schemas.ranges import ParameterOptions, ParametersReply

Array = NDArray[np.float64]

# What printing one scale of a type costs, in characters.
CHARACTERS_PER_SCALE = 16

_OPTIONS = (
    "symmetric",
    "narrow",
    "reduced",
    "power_of_two",
    "preserve_sparsity",
    "minimum_real_range",
    "epsilon",
)


def read_rule(call: ParameterOptions) -> tuple[RangeRule, StorageType, FloatElement, RangeOptions]:
    """Return what a request asks for. Options that are absent keep the rule's defaults."""
    with at("/scheme"):
        rule = range_rule_named(call.scheme)
    with at("/storage"):
        storage = parse_storage(call.storage)
    with at("/expressed"):
        expressed = parse_type(call.expressed)
        if not isinstance(expressed, FloatElement):
            raise UnsupportedError(f"{excerpt(call.expressed)} is no float type; f32 is the usual one")
    options = call.given(*_OPTIONS)
    return rule, storage, expressed, RangeOptions(**options)


@contextmanager
def at_range(pointer: str) -> Iterator[None]:
    """Put the place in the list at `pointer` on an error about one range."""
    try:
        yield
    except RequantError as error:
        index = getattr(error, "index", None)
        if error.pointer is None and index is not None:
            error.pointer = f"{pointer}/{index}"
        raise


def finished_text(
    storage: StorageType,
    expressed: FloatElement,
    scales: Array,
    zero_points: NDArray[np.int64],
    granularity: Granularity,
) -> dict[str, Any]:
    """Return the field `type` of a reply, or, where no type has one of the scales, the field `untyped`."""
    try:
        return {"type": print_type(finish_type(storage, expressed, scales, zero_points, granularity))}
    except PreconditionError as error:
        return {"untyped": error.detail}


def parameters_reply(
    rule: RangeRule, expressed: FloatElement, found: RangeParameters, granularity: Granularity
) -> ParametersReply:
    """Return the parameters of a rule as a reply."""
    fields = finished_text(found.storage, expressed, found.scales, found.zero_points, granularity)
    nudged: dict[str, Any] = {}
    if found.nudged_minimums is not None and found.nudged_maximums is not None:
        nudged = {
            "nudged_minimums": found.nudged_minimums.tolist(),
            "nudged_maximums": found.nudged_maximums.tolist(),
        }
    return ParametersReply(
        scheme=rule.name,
        storage=print_storage(found.storage),
        scales=found.scales.tolist(),
        zero_points=found.zero_points.tolist(),
        **fields,
        **nudged,
    )
