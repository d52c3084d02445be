"""Which worker of how many this process is, by the variables that Kubernetes, Slurm and AWS Batch set."""

from __future__ import annotations

from collections.abc import Mapping


def place_in_job_array(variables: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the index, from 0, and the number of workers; None for what the variables do not say.

    Kubernetes sets the index of an Indexed Job and not the number. Slurm's indexes may begin anywhere and have steps.
    """
    if "JOB_COMPLETION_INDEX" in variables:
        return _number(variables, "JOB_COMPLETION_INDEX"), None
    if "SLURM_ARRAY_TASK_ID" in variables:
        task, first = _number(variables, "SLURM_ARRAY_TASK_ID"), _number(variables, "SLURM_ARRAY_TASK_MIN") or 0
        step = _number(variables, "SLURM_ARRAY_TASK_STEP") or 1
        count = _number(variables, "SLURM_ARRAY_TASK_COUNT")
        return None if task is None else (task - first) // step, count
    return _number(variables, "AWS_BATCH_JOB_ARRAY_INDEX"), _number(variables, "AWS_BATCH_JOB_ARRAY_SIZE")


def _number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "")
    return int(text) if text.isdecimal() else None
