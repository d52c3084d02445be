"""What is printed of the verdicts of tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requant.checkpoint.run.verdicts import Verdict

_MAX_NAMES = 20


def verdict_members(verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Return the verdicts as a member of JSON."""
    return {"verdicts": {name: verdict.members for name, verdict in sorted(verdicts.items())}}


def verdict_lines(verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return how many tensors have each verdict, and each of those that are rounded, the first ones."""
    counts = Counter(verdict.outcome for verdict in verdicts.values())
    lines = ["Verdicts: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))]
    rounded = [(name, verdict) for name, verdict in sorted(verdicts.items()) if verdict.differing]
    for name, verdict in rounded[:_MAX_NAMES]:
        error = "" if verdict.largest_error is None else f", by at most {verdict.largest_error:.6g}"
        lines.append(f"  {name}: {verdict.differing} of {verdict.numbers} numbers are rounded{error}")
    if len(rounded) > _MAX_NAMES:
        lines.append(f"  and {len(rounded) - _MAX_NAMES} more")
    return lines
