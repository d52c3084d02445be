"""`requant evaluate module.mlir x.npy ... -o y.npz`: a function of an MLIR module, run on tensors in files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from requant.command.exit_status import DONE
from requant.command.tensor_files import read_tensor, write_tensors
from requant.command.tensor_operation import as_json, read_text
from requant.operations.modules import FUNCTION, MODULE

if TYPE_CHECKING:
    from requant.command.output import Output

HELP = "Evaluate a function of an MLIR module on tensors in files."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the module, its inputs, the function, and where to write."""
    parser.add_argument("module", metavar="FILE", help=f"{MODULE.description} A file, or - for the standard input.")
    parser.add_argument("inputs", metavar="TENSOR", nargs="*", help="one per argument: a .npy file, or FILE.npz:NAME")
    parser.add_argument("--function", default=FUNCTION.default, metavar="NAME", help=FUNCTION.description)
    said = "where the results are written: .npy for one, or .npz or .safetensors, there output_0, output_1 and so on"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=said)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Read the module and its inputs, evaluate, and write or print the results."""
    from requant.evaluation import evaluate

    inputs = [read_tensor(each) for each in arguments.inputs]
    results = evaluate(read_text(arguments.module), *inputs, function=arguments.function)
    if arguments.output is not None:
        write_tensors(arguments.output, {f"output_{index}": each for index, each in enumerate(results)}, {})
        return DONE
    shown = as_json({"outputs": list(results)})
    output.done(json.dumps(shown), shown)
    return DONE
