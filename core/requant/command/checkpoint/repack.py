"""Move the codes and scales of a quantized model to another format, without rounding.

Each number that the source holds is compared with the one that is written. A weight that the other format cannot hold
exactly is refused, with the first such number, unless --allow-rounding is given. --dry-run reads the whole source, and
says for each weight whether it is exact. The manifest has the verdict of each tensor and the SHA-256 of all files.

From a GGUF file (SOURCE) with --like DIRECTORY, and into one (DESTINATION) with --like FILE; the numbers of a GGUF file
are those that ggml computes.

The same command continues a run that did not finish: files that are complete are kept.
"""

from __future__ import annotations

import argparse

from requant.command.checkpoint import conversion, into_gguf, options
from requant.command.output import Output, add_progress_option

HELP = "move a quantized model to another format, exactly or not at all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_source(parser)
    options.add_destination(parser)
    target = parser.add_argument_group("the format to move to: --scheme, or --dtype alone for floats")
    options.add_scheme_option(target)
    target.add_argument(
        "--dtype",
        choices=["BF16", "F16", "F32"],
        type=str.upper,
        help="without --scheme the dtype of the weights; with it the dtype of scales that are not of a fixed one. "
        "Default for scales: that of the source's, or of config.json",
    )
    options.add_like_option(parser, of_target=True)
    parser.add_argument(
        "--allow-rounding",
        action="store_true",
        help="store the nearest numbers where the other format cannot hold the same ones",
    )
    conversion.add_run_options(parser)
    add_progress_option(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Move the model."""
    from requant.checkpoint.plan.model import Direction, Repack
    from requant.checkpoints import is_gguf

    if is_gguf(arguments.source) and is_gguf(arguments.destination):
        arguments.refuse("one GGUF file becomes another by quantize and dequantize")
    if is_gguf(arguments.destination):
        return into_gguf.run(arguments, output)
    if is_gguf(arguments.source) and arguments.like is None:
        arguments.refuse("a GGUF file needs --like, the directory of the same model")
    arguments.schemes = arguments.targets = None
    if arguments.scheme is None and arguments.dtype is None:
        arguments.refuse("one of --scheme and --dtype is required")
    arguments.repack = Repack.ROUNDED if arguments.allow_rounding else Repack.EXACT
    direction = Direction.DEQUANTIZE if arguments.scheme is None else Direction.QUANTIZE
    return conversion.run(arguments, direction, output)
