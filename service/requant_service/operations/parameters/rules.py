"""Range rules and the parameters that they give: arguments, limits, and the finished type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.calibration.finished_type import Granularity, finish_type
from requant.calibration.ranges import RangeOptions, RangeParameters, RangeRule, range_rule_named
from requant.errors import LimitError, PreconditionError, RequantError, UnsupportedError, default_pointer, excerpt
from requant.formats.elements import FloatElement
from requant.mlir import parse_storage, parse_type, print_storage, print_type
from requant.mlir.types import StorageType
from requant_service.runtime.settings import Settings

Array = NDArray[np.float64]

# What printing one scale of a type costs, in characters.
CHARACTERS_PER_SCALE = 16


def read_rule(
    scheme: str, storage: str, expressed: str, options: Mapping[str, Any]
) -> tuple[RangeRule, StorageType, FloatElement, RangeOptions]:
    """Return what a range rule is asked for. `options`: those of `RangeOptions` that replace the rule's defaults.

    Raise UnknownNameError, TypeTextError or UnsupportedError, pointing at the argument.
    """
    with default_pointer("/scheme"):
        rule = range_rule_named(scheme)
    return rule, read_storage(storage), read_expressed(expressed), RangeOptions(**options)


def read_storage(text: str) -> StorageType:
    """Return the storage type of the field of that name. Raise TypeTextError."""
    with default_pointer("/storage"):
        return parse_storage(text)


def read_expressed(text: str) -> FloatElement:
    """Return the expressed type of the field of that name. Raise TypeTextError or UnsupportedError."""
    with default_pointer("/expressed"):
        element = parse_type(text)
        if not isinstance(element, FloatElement):
            raise UnsupportedError(f"{excerpt(text)} is not a float type; usually f32 is meant")
        return element


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


def check_factors(count: int, of: str, settings: Settings, pointer: str) -> None:
    """Raise LimitError for more factors than multipliers are derived for at once. `of`: what has one each."""
    limit = settings.max_factors
    if count > limit:
        raise LimitError(f"there are {count} {of}; the limit is {limit}", limit=limit, pointer=pointer)


def finished_type(
    storage: StorageType,
    expressed: FloatElement,
    scales: Array,
    zero_points: NDArray[np.int64],
    granularity: Granularity,
) -> dict[str, str]:
    """Return the finished type as `type`, or, where no type has one of the scales, the reason as `untyped`."""
    try:
        return {"type": print_type(finish_type(storage, expressed, scales, zero_points, granularity))}
    except PreconditionError as error:
        return {"untyped": error.detail}


def finished_parameters(
    rule: RangeRule, expressed: FloatElement, found: RangeParameters, granularity: Granularity
) -> dict[str, Any]:
    """Return the parameters of a rule and their type, by name; nudged ranges only where the rule has them."""
    nudged = {name: getattr(found, name) for name in ("nudged_minimums", "nudged_maximums")}
    return {
        "scheme": rule.name,
        "storage": print_storage(found.storage),
        "scales": found.scales.tolist(),
        "zero_points": found.zero_points.tolist(),
        **finished_type(found.storage, expressed, found.scales, found.zero_points, granularity),
        **{name: ends.tolist() for name, ends in nudged.items() if ends is not None},
    }
