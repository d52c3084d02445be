"""Write a share of a plan's files, as one of several workers on one machine or on many.

Start as many workers as you like, in any order, with the same plan file; each may be started again. The worker that
finds all files complete writes the index and config.json. With --index and --of a worker runs the tasks I, I + N,
I + 2N and so on. Without them it takes the next file that is missing and that no other worker is writing, until all
files are complete.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from requant.command.checkpoint import options
from requant.command.exit_status import DONE
from requant.command.kernels import choose_kernels, compile_missing
from requant.command.output import Output, add_progress_option, counted

HELP = "write part of a plan's files, as one of several workers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--plan",
        metavar="FILE",
        required=True,
        help="the plan, as `requant checkpoint plan --output FILE` writes it: a path or the URL of an object",
    )
    parser.add_argument(
        "--index",
        metavar="I",
        type=int,
        help="the index of this worker, from 0. Default: JOB_COMPLETION_INDEX, or that of a Slurm or AWS Batch array",
    )
    parser.add_argument(
        "--of", metavar="N", type=int, help="the number of workers. Default: the size of the Slurm or AWS Batch array"
    )
    options.add_threads_option(parser)
    add_progress_option(parser)
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Work."""
    index, of = place_in_job_array(os.environ)
    index = index if arguments.index is None else arguments.index
    of = of if arguments.of is None else arguments.of
    if arguments.index is not None and of is None:
        arguments.refuse("--index needs --of")
    if arguments.of is not None and index is None:
        arguments.refuse("--of needs --index")
    choose_kernels()
    from requant.checkpoint.run.steps import kernels_of
    from requant.checkpoint.storage.location import open_store
    from requant.checkpoint.workers import Share, read_plan_file, work

    file = read_plan_file(arguments.plan)
    source, destination = open_store(file.source), open_store(file.destination)
    plan = file.plan(source)
    compile_missing(output.kernels, kernels_of(plan))

    share = None if of is None or index is None else Share(index, of)
    report = work(plan, source, destination, share=share, threads=arguments.threads, progress=output.progress)
    text = f"Wrote {counted(len(report.made), 'file')}: {destination.url}\n"
    if report.finished:
        text += "All files are complete."
    else:
        text += f"Other workers still have to write {counted(len(report.missing), 'file')}."
    members = {"destination": destination.url, "made": list(report.made), "missing": list(report.missing)}
    output.done(text, members | {"finished": report.finished})
    return DONE


def place_in_job_array(variables: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the index, from 0, and the number of workers, by the variables that Kubernetes, Slurm and AWS Batch set;
    None for what they do not say.

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
