"""The variables of Kubernetes, Slurm and AWS Batch."""

from __future__ import annotations

import pytest

from requant.command.checkpoint.work import place_in_job_array


def slurm(task: int, count: int, first: int = 0, step: int = 1) -> dict[str, str]:
    """sbatch --array=<first>-...:<step>"""
    return {
        "SLURM_ARRAY_TASK_ID": str(task),
        "SLURM_ARRAY_TASK_COUNT": str(count),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_STEP": str(step),
    }


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, (None, None)),
        ({"JOB_COMPLETION_INDEX": "3"}, (3, None)),
        (slurm(0, 4), (0, 4)),
        (slurm(4, 4, first=1), (3, 4)),
        (slurm(14, 3, first=10, step=2), (2, 3)),
        # An older Slurm has no MIN and no STEP.
        ({"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "3"}, (2, 3)),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "5", "AWS_BATCH_JOB_ARRAY_SIZE": "8"}, (5, 8)),
        ({"JOB_COMPLETION_INDEX": ""}, (None, None)),
        ({"JOB_COMPLETION_INDEX": "-1"}, (None, None)),
    ],
)
def test_place_in_job_array(variables: dict[str, str], place: tuple[int | None, int | None]) -> None:
    assert place_in_job_array(variables) == place
