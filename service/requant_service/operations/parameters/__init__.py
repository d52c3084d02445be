"""Scales, zero points and multipliers, and what they are derived from. The names here are what all of it shares."""

from __future__ import annotations

from requant_service.operations.parameters.rules import (
    CHARACTERS_PER_SCALE,
    at_range,
    check_factors,
    finished_parameters,
    finished_type,
    read_expressed,
    read_rule,
    read_storage,
)

__all__ = [
    "CHARACTERS_PER_SCALE",
    "at_range",
    "check_factors",
    "finished_parameters",
    "finished_type",
    "read_expressed",
    "read_rule",
    "read_storage",
]
