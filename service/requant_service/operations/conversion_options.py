"""The options of a conversion that a request has."""

from __future__ import annotations

from collections.abc import Mapping

from requant.operations.conversions import CONVERSION_OPTIONS
from requant.profiles import Operation

Value = str | int | float | bool


def given_options(operation: Operation, values: Mapping[str, Value | None]) -> tuple[tuple[str, Value], ...]:
    """Return the options of an operation that are there, with another value than their default, in one order."""
    options = []
    for option in CONVERSION_OPTIONS[operation]:
        value = values.get(option.name)
        if value is not None and value != option.default:
            options.append((option.name, value))
    return tuple(options)
