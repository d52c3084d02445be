"""Print what a conversion would do: files and sizes, what is quantized, what is kept and why. Only headers are read.

With --output the plan is also written to a file for `requant checkpoint work`.
"""

from __future__ import annotations

import argparse

from requant.command.checkpoint import conversion, options, single_file
from requant.command.exit_status import DONE
from requant.command.kernels import choose_kernels
from requant.command.output import Output

HELP = "print what a conversion would do"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_source(parser)
    direction = parser.add_mutually_exclusive_group(required=True)
    options.add_scheme_options(direction)
    direction.add_argument("--dequantize", action="store_true", help="plan a dequantization")
    options.add_quantization_options(parser)
    single_file.add_options(parser)
    options.add_dtype_option(parser)
    options.add_like_option(parser)
    options.add_json_option(parser)
    parser.add_argument("--destination", help="where the result will be written; needed for --output")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write the plan for `requant checkpoint work` to this path, or to the URL of an object",
    )
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Print the plan."""
    if arguments.output is not None and arguments.destination is None:
        arguments.refuse("--output needs --destination")
    if single_file.is_single_file(arguments):
        return single_file.run(arguments, output)
    if arguments.like is not None:
        options.refuse_given(arguments, ("output",), "is not for GGUF files")
    if arguments.dequantize:
        options.refuse_given(arguments, options.OF_QUANTIZATION, "is not for --dequantize")
    choose_kernels()
    from requant.checkpoint.plan.model import Direction
    from requant.checkpoint.storage.location import open_store
    from requant.checkpoint.workers import plan_file_of, write_plan_file

    direction = Direction.DEQUANTIZE if arguments.dequantize else Direction.QUANTIZE
    source, plan = options.planned(arguments, direction)
    destination = None if arguments.destination is None else open_store(arguments.destination)
    url = None if destination is None else destination.url
    if destination is not None and arguments.output is not None:
        write_plan_file(arguments.output, plan_file_of(plan, source, destination))
    conversion.print_plan(plan, source.url, url, arguments, output)
    return DONE
