"""Convert a quantized model back to bf16, f16 or f32 weights.

The same command continues a run that did not finish: files that are complete are kept.
"""

from __future__ import annotations

import argparse

from requant.command.checkpoint import conversion, options
from requant.command.output import Output, add_progress_option

HELP = "convert a quantized model back to floats"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_source(parser)
    options.add_destination(parser)
    options.add_dtype_option(parser)
    options.add_certify_option(parser)
    options.add_like_option(parser)
    conversion.add_run_options(parser)
    add_progress_option(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Dequantize the model."""
    from requant.checkpoint.plan.model import Direction

    return conversion.run(arguments, Direction.DEQUANTIZE, output)
