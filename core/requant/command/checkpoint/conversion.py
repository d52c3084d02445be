"""What `quantize` and `dequantize` have in common: the plan, the run, and what is said at the end."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from requant.command.checkpoint import options, single_file
from requant.command.checkpoint.verdicts import verdict_lines, verdict_members
from requant.command.exit_status import DONE
from requant.command.kernels import choose_kernels, compile_missing
from requant.command.output import Output, counted, size_text, time_text

if TYPE_CHECKING:
    from requant.checkpoint.plan.model import Direction, Plan
    from requant.checkpoint.run.run import RunReport
    from requant.checkpoint.run.verdicts import Verdict
    from requant.checkpoint.storage.store import Store


_ENGINES = ("threads", "ray")
_MAX_NAMES = 20
# How transformers names the classes of models that generate text.
_GENERATIVE = ("ForCausalLM", "ForConditionalGeneration")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how the work is done."""
    options.add_threads_option(parser)
    parser.add_argument(
        "--engine",
        choices=_ENGINES,
        default=_ENGINES[0],
        help="threads: convert in this process (default); ray: run one Ray task for each file, on the cluster at "
        "RAY_ADDRESS or on this machine",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done without writing anything")
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace, direction: Direction, output: Output) -> int:
    """Plan, and unless it is a dry run convert."""
    if single_file.is_single_file(arguments):
        return single_file.run(arguments, output)
    choose_kernels()
    from requant.checkpoint.run.run import run_plan, verdicts_of
    from requant.checkpoint.run.steps import kernels_of
    from requant.checkpoint.storage.location import open_store

    began = monotonic()
    source, plan = options.planned(arguments, direction)
    destination = open_store(arguments.destination)
    if arguments.dry_run:
        verdicts = None
        if plan.request.certify:
            compile_missing(output.kernels, kernels_of(plan))
            verdicts = verdicts_of(plan, source, threads=arguments.threads, progress=output.progress)
        print_plan(plan, source.url, destination.url, arguments, output, verdicts)
        return DONE
    for warning in plan.warnings:
        output.warning(warning)
    compile_missing(output.kernels, kernels_of(plan))

    if arguments.engine == "ray":
        report = _run_on_ray(plan, source, destination, arguments, output)
    else:
        report = run_plan(plan, source, destination, threads=arguments.threads, progress=output.progress)
    seconds = monotonic() - began
    output.done(*_summary(plan, report, destination.url, seconds))
    return DONE


def _run_on_ray(
    plan: Plan, source: Store, destination: Store, arguments: argparse.Namespace, output: Output
) -> RunReport:
    from requant.checkpoint.run.work import Progress
    from requant.checkpoint.workers import plan_file_of
    from requant.engines.ray import run_on_ray

    sizes = {task.output: task.header.size for task in plan.tasks}
    finished: list[str] = []

    def task_done(name: str, _: RunReport) -> None:
        finished.append(name)
        done = sum(sizes[each] for each in finished)
        total = sum(sizes.values())
        output.progress(Progress(done, total, outputs_finished=len(finished), outputs=len(sizes)))

    file = plan_file_of(plan, source, destination)
    return run_on_ray(file, threads=arguments.threads or 1, task_done=task_done)


def print_plan(
    plan: Plan,
    source: str,
    destination: str | None,
    arguments: argparse.Namespace,
    output: Output,
    verdicts: Mapping[str, Verdict] | None = None,
) -> None:
    """Print what a plan would do. `verdicts`: of its tensors, where they are known."""
    from requant.checkpoint.plan.dry_run import plan_document, plan_text

    text, members = plan_text(plan).rstrip("\n"), plan_document(plan, source, destination)
    if verdicts is not None:
        text = "\n".join([text, "", *verdict_lines(verdicts)])
        members |= verdict_members(verdicts)
    options.print_document(text, members, arguments, output)


def _summary(plan: Plan, report: RunReport, url: str, seconds: float) -> tuple[str, dict[str, Any]]:
    """Return what was written and where, as text and as the members of an object."""
    from requant.checkpoint.plan.source import MANIFEST

    size = sum(file.size for file in report.files)
    made = len(report.files) - len(report.kept)
    command = serving_command(plan, url)
    if made:
        wrote = f"{counted(made, 'file')} and {MANIFEST}, {size_text(report.bytes_written)}"
        lines = [f"Wrote {wrote}, in {time_text(seconds)}: {url}"]
    else:
        lines = [f"Nothing to do: all {len(report.files)} files exist: {url}"]
    if made and report.kept:
        lines.append(f"{len(report.kept)} of {len(report.files)} files were kept from an earlier run.")
    if report.verdicts:
        lines += verdict_lines(report.verdicts)
    if left := kept_by_ignore(plan):
        lines.append(f"Not quantized, by --ignore or its default: {left}")
    if command is not None:
        lines.append(f"To serve it: {command}")
    members: dict[str, Any] = {
        "destination": url,
        "files": [{"name": file.name, "bytes": file.size, "sha256": file.sha256} for file in report.files],
        "kept": list(report.kept),
        "bytes": size,
        "bytes_read": report.bytes_read,
        "bytes_written": report.bytes_written,
        "seconds": round(seconds, 3),
        "ignore": list(plan.request.ignore),
        "warnings": list(plan.warnings),
    }
    if report.verdicts:
        members |= verdict_members(report.verdicts)
    return "\n".join(lines), members | ({} if command is None else {"serve": command})


def kept_by_ignore(plan: Plan) -> str:
    """Return the names of the modules that `ignore` leaves out, with `*` for numbers, and how many there are."""
    from requant.checkpoint.plan.model import CopyStep, Direction, Repack
    from requant.checkpoint.plan.refusals import abbreviate
    from requant.checkpoint.selection import Selection, SkipReason

    request = plan.request
    if request.direction is not Direction.QUANTIZE or request.repack is not Repack.NO:
        return ""
    selection = Selection(request.targets, request.ignore)
    copied = (step.output for step in plan.steps if isinstance(step, CopyStep))
    left = [name.removesuffix(".weight") for name in copied if selection.skip_reason(name) is SkipReason.IGNORED]
    return abbreviate(left, _MAX_NAMES) if left else ""


def serving_command(plan: Plan, url: str) -> str | None:
    """Return vLLM's command line for the destination, None where vLLM is not known to serve the model from there."""
    from shlex import quote

    from requant.checkpoint.loaders import Loader, loaders_of
    from requant.checkpoint.plan.warnings import is_known_to_load

    config = json.loads(plan.config)
    names = config.get("architectures")
    generates = isinstance(names, list) and any(str(name).endswith(_GENERATIVE) for name in names)
    if "://" in url or not generates or Loader.VLLM not in loaders_of(config.get("quantization_config")):
        return None
    if not is_known_to_load(plan):
        return None
    return f"vllm serve {quote(url)}"
