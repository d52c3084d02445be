"""Quantize the linear weights of a model and write it as vLLM and transformers load it.

The same command continues a run that did not finish: files that are complete are kept.
"""

from __future__ import annotations

import argparse

from requant.command.checkpoint import conversion, options, single_file
from requant.command.output import Output, add_progress_option

HELP = "quantize a model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_source(parser)
    options.add_destination(parser)
    options.add_scheme_options(parser.add_mutually_exclusive_group(required=True))
    options.add_quantization_options(parser)
    options.add_dtype_option(parser)
    options.add_certify_option(parser)
    options.add_like_option(parser)
    single_file.add_options(parser)
    conversion.add_run_options(parser)
    add_progress_option(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Quantize."""
    from requant.checkpoint.plan.model import Direction

    return conversion.run(arguments, Direction.QUANTIZE, output)
