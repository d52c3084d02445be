"""The parser of the command line, and what all subcommands have in common: errors, signals, exit status."""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, NoReturn

from requant.command import completion, packs, serve
from requant.command.checkpoint import attest, dequantize, diff, plan, quantize, repack, schemes, verify, work
from requant.command.exit_status import DONE, FAILED, INTERRUPTED, TERMINATED, WRONG_USAGE
from requant.command.help import CommandParser
from requant.command.output import described, output_for
from requant.errors import InvalidRequestError, ParameterError, RequantError, TypeTextError, UnknownNameError

if TYPE_CHECKING:
    from requant.description import Operation

_CHECKPOINT: dict[str, ModuleType] = {
    "plan": plan,
    "quantize": quantize,
    "dequantize": dequantize,
    "repack": repack,
    "verify": verify,
    "attest": attest,
    "diff": diff,
    "work": work,
    "schemes": schemes,
}
_OF_CHECKPOINT = "Convert and check whole models."
# Errors of what the command line says. What a file holds is no argument.
_WRONG_ARGUMENTS = (UnknownNameError, ParameterError, TypeTextError, InvalidRequestError)
_STATUS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class _Stopped(BaseException):
    """A signal asked the process to end."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or with those of the process, and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["serve"]:
        # The settings of the service have a parser of their own.
        serve.run(given[1:])
        return DONE
    first = next(iter(given), "")
    try:
        # Descriptions of operations import numpy and numba, which takes as long as many a checkpoint command.
        parser = command_parser(with_operations=first not in ("checkpoint", "completion"), operator=first)
        if not given:
            parser.print_help()
            return WRONG_USAGE
        parser.check_command(first)
        verifies = given[:2] == ["vectors", "verify"]
        parsed = packs.parser().parse_args(given[2:]) if verifies else parser.parse_args(given)
    except UnknownNameError as error:
        sys.stderr.write(f"requant: error: {described(error)}\n")
        return WRONG_USAGE
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path need not be UTF-8. As stderr does it; in JSON it is an escape, too.
        sys.stdout.reconfigure(errors="backslashreplace")
    output = output_for(parsed)
    # What is imported now stays, so the collector would look through it in vain: a tenth of a start.
    gc.disable()
    # Nothing here calls BLAS, whose threads look for work in a loop before they sleep.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with _stopped_by_signals():
            return int(parsed.run(parsed, output))
    except _Stopped as stop:
        output.stopped("interrupted; run the same command again to resume")
        return _STATUS[signal.Signals(stop.signal_number)]
    except RequantError as error:
        output.failed(error)
        return WRONG_USAGE if isinstance(error, _WRONG_ARGUMENTS) else FAILED
    except BrokenPipeError:
        # Whoever read stdout has gone (`| head`). Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    finally:
        # The collector runs once more at exit; what is frozen it leaves out.
        gc.freeze()
        gc.enable()


def command_parser(*, with_operations: bool = True, operator: str = "") -> CommandParser:
    """Return the parser of all subcommands, but of other systems' operators only that of this name, if it is one.

    Raise UnknownNameError for a name that only an operator could have, and that none has.
    """
    parser = CommandParser(
        prog="requant", description="Bit-exact quantization: of whole checkpoints, of tensors in files, and over HTTP."
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser)
    parser.add_to_help("service", "serve", serve.HELP)
    commands.add_parser("serve", add_help=False)
    parser.add_to_help("service", "checkpoint", _OF_CHECKPOINT)
    checkpoint = commands.add_parser("checkpoint", description=_OF_CHECKPOINT)
    subcommands = checkpoint.add_subparsers(metavar="COMMAND", required=True)
    for name, module in _CHECKPOINT.items():
        subparser = subcommands.add_parser(name, help=module.HELP, description=module.__doc__)
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    parser.add_to_help("service", "completion", completion.HELP)
    of_completion = commands.add_parser("completion", description=completion.__doc__)
    completion.add_arguments(of_completion)
    of_completion.set_defaults(run=completion.run, parser=command_parser, operations=described_operations)
    if with_operations:
        from requant.command import calls, equivalence, evaluate, tensor_operation
        from requant.operations.equivalence import EQUIVALENCE

        described_here = {each.name: each for each in described_operations()}
        if "." in operator and not operator.startswith("-"):
            from requant.operations.operators import operation_of
            from requant.operators.registry import operator_named

            described_here[operator] = operation_of(operator_named(operator))
        for name, operation in described_here.items():
            said = f"{operation.summary} {operation.request}"
            if name != operator or "." not in name:
                parser.add_to_help(operation.group, name, operation.summary)
            subparser = commands.add_parser(name, description=said)
            command = calls if operation.calls is not None else tensor_operation
            command = equivalence if name == EQUIVALENCE.name else command
            command.add_arguments(subparser, operation)
            subparser.set_defaults(run=partial(command.run, operation))
        parser.add_to_help("modules", "evaluate", evaluate.HELP)
        evaluation = commands.add_parser("evaluate", description=evaluate.HELP)
        evaluate.add_arguments(evaluation)
        evaluation.set_defaults(run=evaluate.run)
    return parser


def described_operations() -> Sequence[Operation]:
    """Return the operations that are subcommands."""
    from requant.operations import OPERATIONS
    from requant.operations.conversions import CONVERSIONS
    from requant.operations.explain import EXPLANATIONS
    from requant.operations.vectors import VECTORS

    return (*CONVERSIONS.values(), *EXPLANATIONS.values(), VECTORS, *OPERATIONS.values())


class _Version(argparse.Action):
    """Shows the version, which is only looked up when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from requant import VERSION

        sys.stdout.write(f"requant {VERSION}\n")
        parser.exit(DONE)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Raise `_Stopped` in this thread at the first SIGINT or SIGTERM. A second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> NoReturn:
        for each in _STATUS:
            signal.signal(each, signal.SIG_DFL)
        raise _Stopped(number)

    before = {each: signal.signal(each, stop) for each in _STATUS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
