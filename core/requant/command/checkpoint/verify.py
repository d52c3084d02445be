"""Check that a converted model is complete, and with its source that every byte is what the conversion gives.

Without a source: every file that the index names is there, index and headers agree, no quantized module lacks a tensor,
no scale is NaN, infinite, negative or 0, no code out of its range, no weight all 0, and the files have the SHA-256 that
the manifest states. The exit status is 1 if there is a fault.

Of a GGUF file that was made with --certify, or by repack: that its header can be read, and that it is the file of the
manifest beside it; with what it was made of (--source, --imatrix, --like) every byte, and the verdict of each tensor.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from requant.command.checkpoint import options, single_file
from requant.command.exit_status import DONE, FAILED
from requant.command.junit import OPTION_HELP, TestCase, write_junit
from requant.command.kernels import choose_kernels, compile_missing
from requant.command.output import Output, add_progress_option, counted

if TYPE_CHECKING:
    from requant.checkpoint.verify.report import CheckpointReport

HELP = "check a converted model"
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("checkpoint", type=options.place, metavar="CHECKPOINT", help="the converted model")
    parser.add_argument("--source", type=options.place, help="the model that it was converted from")
    options.add_like_option(parser, of_target=True)
    single_file.add_imatrix_option(parser)
    parser.add_argument(
        "--sample",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="compare this share of the tensors with the source: more than 0, at most 1. Default: 1, all",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the random choice of the sample. Default: 0"
    )
    parser.add_argument(
        "--no-hashes", action="store_true", help="do not compare the SHA-256 of the files with the manifest"
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write the quantization error of each weight to this file, as a page (.html) or JSON (.json)",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help=OPTION_HELP)
    of_conversion = parser.add_argument_group(
        "how the model was quantized, if another program wrote it (without a manifest)"
    )
    options.add_scheme_options(of_conversion.add_mutually_exclusive_group())
    options.add_quantization_options(of_conversion)
    options.add_json_option(parser)
    options.add_threads_option(parser)
    add_progress_option(parser)
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Verify."""
    choose_kernels()
    from requant.checkpoint.plan.model import Direction
    from requant.checkpoint.verify.report import checkpoint_report
    from requant.checkpoints import is_gguf, open_source

    if is_gguf(arguments.checkpoint):
        return _say(_report_of_file(arguments, output), arguments, output)
    options.refuse_given(arguments, ("imatrix",), "is only for GGUF files")
    given = options.is_quantization(arguments)
    if not given:
        options.refuse_given(arguments, options.OF_QUANTIZATION, "needs --scheme")
    request = options.request_of(arguments, Direction.QUANTIZE) if given else None
    checkpoint = open_source(arguments.checkpoint)
    source = None if arguments.source is None else open_source(arguments.source, arguments.like)
    compile_missing(output.kernels)

    report = checkpoint_report(
        checkpoint,
        source,
        request=request,
        sample=arguments.sample,
        seed=arguments.seed,
        hashes=not arguments.no_hashes,
        weights=arguments.report is not None,
        threads=arguments.threads,
        progress=output.progress,
    )
    if arguments.report is not None:
        _write(report, Path(arguments.report))
    return _say(report, arguments, output)


def _say(report: CheckpointReport, arguments: argparse.Namespace, output: Output) -> int:
    """Print the verdict, and return the exit status."""
    text, faults = _text(report), len(report.verification.faults)
    if arguments.junit is not None:
        failure = f"{faults} faults" if faults else None
        write_junit(
            arguments.junit, "requant checkpoint verify", [TestCase(report.checkpoint, failure, text.splitlines())]
        )
    options.print_document(text, report.members(), arguments, output)
    return FAILED if faults else DONE


def _report_of_file(arguments: argparse.Namespace, output: Output) -> CheckpointReport:
    """Verify a GGUF file."""
    from requant.checkpoint.gguf.importance import read_importance
    from requant.checkpoint.storage.location import open_folder
    from requant.checkpoint.verify.gguf_file import MadeOf, verify_file
    from requant.checkpoint.verify.report import CheckpointReport
    from requant.checkpoints import is_gguf, open_source

    not_for_files = (*options.OF_QUANTIZATION, "scheme", "schemes", "report")
    options.refuse_given(arguments, not_for_files, "is not for GGUF files, whose manifest says how they were made")
    if arguments.sample != 1:
        arguments.refuse("--sample is not for GGUF files")
    place, made_of = arguments.source, None
    if place is None:
        options.refuse_given(arguments, ("like", "imatrix"), "needs --source")
    elif is_gguf(place):
        options.refuse_given(arguments, ("like",), "is not for a GGUF file that was made of another")
        path = arguments.imatrix
        importance = None if path is None else read_importance(*open_folder(path), path)
        made_of = MadeOf(*open_folder(place), importance)
    else:
        options.refuse_given(arguments, ("imatrix",), "is only for a GGUF file that was made of another")
        like = None if arguments.like is None else open_folder(arguments.like)
        made_of = MadeOf(open_source(place), like=like)
    compile_missing(output.kernels)
    folder, name = open_folder(arguments.checkpoint)
    hashes = not arguments.no_hashes
    found, request = verify_file(
        folder, name, made_of, hashes=hashes, threads=arguments.threads, progress=output.progress
    )
    return CheckpointReport(arguments.checkpoint, place, request, found)


def _write(report: CheckpointReport, path: Path) -> None:
    from requant.checkpoint.verify.html_report import report_page
    from requant.errors import StorageError

    as_json = path.suffix == ".json"
    text = json.dumps(report.members(), indent=2, ensure_ascii=False) + "\n" if as_json else report_page(report)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None


def _text(report: CheckpointReport) -> str:
    result = report.verification
    lines = []
    for heading, faults in (("", result.faults), ("warning: ", result.warnings)):
        lines += [
            heading + ": ".join([*(name for name in (fault.file, fault.tensor) if name), fault.detail])
            for fault in faults[:_SHOWN]
        ]
        if len(faults) > _SHOWN:
            lines.append(f"{heading}and {len(faults) - _SHOWN} more")
    checked = [f"{result.tensors} tensors"]
    if report.source is not None:
        share = "" if result.sample == 1 else f" (a sample of {result.sample:g}, seed {result.seed})"
        # A checkpoint that lacks tensors has fewer than its source gives.
        which = "of them" if result.tensors_compared <= result.tensors else "that there should be"
        checked.append(f"{result.tensors_compared} {which} byte by byte with {report.source}{share}")
    if result.files_hashed:
        checked.append(f"the SHA-256 of {counted(result.files_hashed, 'file')}")
    verdict = f"{len(result.faults)} faults" if result.faults else "no faults"
    lines.append(f"{report.checkpoint}: {verdict}; checked: {', '.join(checked)}")
    return "\n".join(lines)
