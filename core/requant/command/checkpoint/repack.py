"""Move the codes and scales of a quantized model to another format, without rounding.

Each number that the source holds is compared with the one that is written. A weight that the other format cannot hold
exactly is refused, with the first such number, unless --allow-rounding is given. --dry-run reads the whole source, and
says for each weight whether it is exact. The manifest has the verdict of each tensor and the SHA-256 of all files.

The same command continues a run that did not finish: files that are complete are kept.
"""

from __future__ import annotations

import argparse

from requant.command.checkpoint import conversion, options
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

    arguments.schemes = arguments.targets = None
    if arguments.scheme is None and arguments.dtype is None:
        arguments.refuse("one of --scheme and --dtype is required")
    arguments.repack = Repack.ROUNDED if arguments.allow_rounding else Repack.EXACT
    direction = Direction.DEQUANTIZE if arguments.scheme is None else Direction.QUANTIZE
    return conversion.run(arguments, direction, output)
