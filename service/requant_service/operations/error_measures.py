"""The error of one tensor against another, as replies state it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from requant.comparison.comparison import ErrorReport


def error_measures(error: ErrorReport) -> dict[str, Any]:
    """Return the measures that are finite numbers, by name."""
    return {name: value for name, value in asdict(error).items() if value is not None}
