"""Compare two models, tensor by tensor: codes in steps, floats in ulps.

Quantized weights are compared code by code if both models store them in the same format, and by their values otherwise,
so that a model can also be compared with the one that it was converted from. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from requant.command.checkpoint import options
from requant.command.exit_status import DONE, FAILED
from requant.command.kernels import choose_kernels, compile_missing
from requant.command.output import Output, add_progress_option

if TYPE_CHECKING:
    from requant.checkpoint.verify.difference import CheckpointDifference, TensorDifference

HELP = "compare two models"
_SHOWN = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("a", type=options.place, metavar="A", help="a model, quantized or not")
    parser.add_argument("b", type=options.place, metavar="B", help="the other")
    parser.add_argument(
        "--numbers",
        action="store_true",
        help="compare the numbers that are stored, exactly: a code's value times its scale. Two formats that hold the "
        "same numbers do not differ",
    )
    options.add_json_option(parser)
    options.add_threads_option(parser)
    add_progress_option(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Compare."""
    choose_kernels()
    from requant.checkpoint.verify.difference import diff
    from requant.checkpoints import open_source

    compile_missing(output.kernels)
    result = diff(
        open_source(arguments.a), open_source(arguments.b), numbers=arguments.numbers, threads=arguments.threads
    )
    members = {"compared": result.compared, "differences": [asdict(each) for each in result.differences]}
    options.print_document(_text(result), members, arguments, output)
    return FAILED if result.differences else DONE


def _text(result: CheckpointDifference) -> str:
    lines = [_line(each) for each in result.differences[:_SHOWN]]
    if len(result.differences) > _SHOWN:
        lines.append(f"and {len(result.differences) - _SHOWN} more")
    return "\n".join([*lines, f"{len(result.differences)} differences; {result.compared} tensors are in both"])


def _line(each: TensorDifference) -> str:
    if each.unit is None:
        return f"{each.tensor}: {each.detail}"
    parts = [f"{each.tensor}: {each.detail}: {each.differing} of {each.elements} elements"]
    if each.largest is not None:
        parts.append(f"by at most {each.largest:.6g}{'' if each.unit == 'value' else f' {each.unit}'}")
    if each.first is not None:
        parts.append(f"the first at index {each.first}")
    if each.numbers is not None:
        parts[-1] += f" ({each.numbers[0]!r} in a, {each.numbers[1]!r} in b)"
    if each.scales_differing:
        parts.append(f"{each.scales_differing} scales")
    return ", ".join(parts)
