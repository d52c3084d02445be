"""Moves the codes and scales of a checkpoint into a GGUF file."""

from __future__ import annotations

import argparse
from time import monotonic

from requant.command.checkpoint import options
from requant.command.checkpoint.verdicts import verdict_lines, verdict_members
from requant.command.exit_status import DONE
from requant.command.kernels import choose_kernels, compile_missing
from requant.command.output import Output, size_text, time_text


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Write the file, or print what would be done."""
    options.refuse_given(arguments, ("dtype",), "is not for GGUF files, whose blocks have scales of a fixed dtype")
    if arguments.engine != "threads":
        arguments.refuse("--engine is not for GGUF files")
    choose_kernels()
    from requant.checkpoint.gguf.repack import plan_repack_to_gguf, run_repack, verdicts_of_repack
    from requant.checkpoint.run.destination import manifest_name
    from requant.checkpoints import gguf_target, open_source

    began = monotonic()
    source = open_source(arguments.source)
    target = gguf_target(arguments.destination, options.one_scheme(arguments), arguments.like)
    plan = plan_repack_to_gguf(source, target, allow_rounding=arguments.allow_rounding)
    compile_missing(output.kernels, plan.kernels)
    if arguments.dry_run:
        verdicts = verdicts_of_repack(plan, source, threads=arguments.threads, progress=output.progress)
        text = "\n".join([*plan.lines(), "", *verdict_lines(verdicts)])
        options.print_document(text, plan.as_json() | verdict_members(verdicts), arguments, output)
        return DONE
    for warning in plan.warnings:
        output.warning(warning)
    report = run_repack(plan, source, target.folder, threads=arguments.threads, progress=output.progress)
    seconds = monotonic() - began
    (file,) = report.files
    wrote = f"Wrote {size_text(file.size)} and {manifest_name(file.name)}"
    lines = [f"{wrote}, in {time_text(seconds)}: {arguments.destination}"]
    output.done(
        "\n".join([*lines, *verdict_lines(report.verdicts)]),
        {
            "destination": arguments.destination,
            "files": [{"name": file.name, "bytes": file.size, "sha256": file.sha256}],
            "seconds": round(seconds, 3),
            "warnings": list(plan.warnings),
        }
        | verdict_members(report.verdicts),
    )
    return DONE
