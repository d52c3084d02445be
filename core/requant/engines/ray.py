"""Ray: one task of its scheduler for each output file. Needs `pip install '.[ray]'`, on all machines.

Ray's documentation: https://docs.ray.io/en/latest/ray-core/fault_tolerance/tasks.html (2.60).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

from requant.checkpoint.plan.model import Plan
from requant.checkpoint.run.run import RunReport, finish, run_task
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.storage.store import Store
from requant.checkpoint.workers import PlanFile, parse_plan_file
from requant.errors import UnavailableError

# A task whose worker dies is run again. On machines that may be taken away (spot) that is no exception.
RETRIES = 10


def run_on_ray(
    file: PlanFile, *, threads: int = 1, task_done: Callable[[str, RunReport], None] | None = None
) -> RunReport:
    """Make the outputs of a plan on the cluster that RAY_ADDRESS names, or on this machine, and finish it here.

    threads: the CPUs of each task. task_done: called with the name of each output. The source and the destination have
    to be the same places on all machines: object stores, or directories of a shared file system.

    Raise UnavailableError where Ray is not installed; otherwise as `run_plan`.
    """
    try:
        import ray
        from ray.exceptions import RayTaskError
    except ModuleNotFoundError as error:
        raise UnavailableError("--engine ray needs Ray: run pip install '.[ray]' in the repository") from error

    # Ray reports its use to its makers unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False)
    try:
        source, destination, plan = _opened(file.to_json())
        make = ray.remote(_make_output).options(num_cpus=threads, max_retries=RETRIES)
        waiting = {make.remote(file.to_json(), index, threads): task.output for index, task in enumerate(plan.tasks)}
        reports = []
        while waiting:
            (done, *_), _ = ray.wait(list(waiting))
            try:
                report = ray.get(done)
            except RayTaskError as error:
                raise error.cause from None
            reports.append(report)
            output = waiting.pop(done)
            if task_done is not None:
                task_done(output, report)
        reports.append(finish(plan, source, destination))
        return _sum(reports, plan)
    finally:
        if started:
            ray.shutdown()


def _make_output(file: bytes, index: int, threads: int) -> RunReport:
    source, destination, plan = _opened(file)
    return run_task(plan, index, source, destination, threads=threads)


def _sum(reports: list[RunReport], plan: Plan) -> RunReport:
    return RunReport(
        tuple(sorted((file for each in reports for file in each.files), key=lambda file: file.name)),
        tuple(sorted(name for each in reports for name in each.kept)),
        sum(each.bytes_read for each in reports),
        sum(each.bytes_written for each in reports),
        plan.warnings,
    )


@cache
def _opened(file: bytes) -> tuple[Store, Store, Plan]:
    """Return source, destination and plan, once for all tasks of a process."""
    parsed = parse_plan_file(file)
    source = open_store(parsed.source)
    return source, open_store(parsed.destination), parsed.plan(source)
