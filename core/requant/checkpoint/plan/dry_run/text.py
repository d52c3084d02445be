"""A plan as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable

from requant.checkpoint.plan.dry_run.summary import Amount, Summary, summary_of
from requant.checkpoint.plan.model import Direction, Plan
from requant.errors import excerpt

_MAX_SHAPES = 12
_MAX_NAMES = 4


def plan_text(plan: Plan) -> str:
    """Return a plan as lines of text."""
    summary = summary_of(plan)
    parts = (_head(plan, summary), [""], _converted(plan, summary), _kept(summary), _rest(plan, summary))
    return "\n".join(line for part in parts for line in part)


def _head(plan: Plan, summary: Summary) -> list[str]:
    share = summary.bytes_after / summary.bytes_before if summary.bytes_before else 1.0
    request = plan.request
    what = (
        f"Quantize to {request.scheme}, profile {request.profile}"
        if request.direction is Direction.QUANTIZE
        else f"Dequantize to {request.dtype or 'the dtype of config.json'}"
    )
    return [
        what,
        f"{_number(len(plan.sources), 'file')}, {_size(summary.bytes_before)} -> {_number(len(plan.tasks), 'file')}, "
        f"{_size(summary.bytes_after)} ({share:.0%})",
        f"plan {plan.digest}",
    ]


def _converted(plan: Plan, summary: Summary) -> list[str]:
    verb = "Quantized" if plan.request.direction is Direction.QUANTIZE else "Dequantized"
    whole = _sum(summary.converted.values())
    lines = [f"{verb}: {_number(whole.count, 'weight')}, {_size(whole.bytes_before)} -> {_size(whole.bytes_after)}"]
    by_size = sorted(summary.converted.items(), key=lambda item: -item[1].bytes_before)
    for (dtype, shape), amount in by_size[:_MAX_SHAPES]:
        named = f"{dtype} {'x'.join(map(str, shape))}"
        lines.append(f"  {amount.count:>6} x {named:<22} {_names(amount)}")
    if len(by_size) > _MAX_SHAPES:
        rest = _sum(amount for _, amount in by_size[_MAX_SHAPES:])
        lines.append(f"  {rest.count:>6} of {len(by_size) - _MAX_SHAPES} other shapes")
    return lines


def _kept(summary: Summary) -> list[str]:
    whole = _sum(summary.kept.values())
    return [
        f"Kept: {_number(whole.count, 'tensor')}, {_size(whole.bytes_before)}",
        *(f"  {amount.count:>6} {reason}: {_names(amount)}" for reason, amount in summary.kept.items()),
    ]


def _rest(plan: Plan, summary: Summary) -> list[str]:
    names = ", ".join(excerpt(file.name) for file in plan.carried[:8])
    more = f" and {len(plan.carried) - 8} more" if len(plan.carried) > 8 else ""
    files = f"Copied: {_number(len(plan.carried), 'file')}, {_size(summary.carried)}"
    lines = [f"{files}: {names}{more}" if names else files]
    if plan.warnings:
        lines += ["", "Warnings:", *(f"- {warning}" for warning in plan.warnings)]
    return lines


def _sum(amounts: Iterable[Amount]) -> Amount:
    whole = Amount()
    for amount in amounts:
        whole.count += amount.count
        whole.bytes_before += amount.bytes_before
        whole.bytes_after += amount.bytes_after
    return whole


def _names(amount: Amount) -> str:
    shown = ", ".join(excerpt(name) for name in amount.names[:_MAX_NAMES])
    return shown + (", ..." if len(amount.names) > _MAX_NAMES else "")


def _size(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} bytes"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
