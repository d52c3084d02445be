"""A plan as JSON, for programs. It grows with the number of files and of shapes, not with that of tensors."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from requant.checkpoint.plan.dry_run.summary import Amount, summary_of
from requant.checkpoint.plan.model import Plan, QuantizeStep


def plan_document(plan: Plan, source: str, destination: str | None = None) -> dict[str, Any]:
    """Return what the JSON of a plan holds. `source`, `destination`: where the checkpoints lie."""
    summary = summary_of(plan)
    return {
        "digest": plan.digest,
        "source": source,
        "destination": destination,
        "request": asdict(plan.request),
        "bytes": {"before": summary.bytes_before, "after": summary.bytes_after, "carried": summary.carried},
        "outputs": [
            {
                "file": task.output,
                "bytes": task.header.size,
                "tensors": len(task.header.tensors),
                "quantized": sum(isinstance(step, QuantizeStep) for step in task.steps),
            }
            for task in plan.tasks
        ],
        "converted": [
            {"dtype": dtype, "shape": list(shape), **asdict(amount)}
            for (dtype, shape), amount in summary.converted.items()
        ],
        "kept": [{"reason": reason, **_kept(amount)} for reason, amount in summary.kept.items()],
        "carried": [file.name for file in plan.carried],
        "warnings": list(plan.warnings),
    }


def _kept(amount: Amount) -> dict[str, Any]:
    return {"count": amount.count, "bytes": amount.bytes_before, "names": amount.names}
