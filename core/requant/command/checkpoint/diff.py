"""Compare two models, tensor by tensor: codes in steps, floats in ulps.

Quantized weights are compared code by code if both models store them in the same format, and by their values otherwise,
so that a model can also be compared with the one that it was converted from. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from requant.command.checkpoint import options
from requant.command.exit_status import DONE, FAILED
from requant.command.kernels import choose_kernels, compile_missing
from requant.command.output import Output, add_progress_option, counted

if TYPE_CHECKING:
    from requant.checkpoint.verify.difference import CheckpointDifference, TensorDifference

HELP = "compare two models"
_SHOWN = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("a", type=options.place, metavar="A", help="a model, quantized or not; or a GGUF file")
    parser.add_argument("b", type=options.place, metavar="B", help="the other")
    parser.add_argument(
        "--like",
        type=options.place,
        metavar="MODEL",
        help="of GGUF files: the directory of the same model, with its config.json. Default: the other model",
    )
    parser.add_argument(
        "--numbers",
        action="store_true",
        help="compare the numbers that are stored, exactly: a code's value times its scale. Two formats that hold the "
        "same numbers do not differ",
    )
    parser.add_argument(
        "--summary", action="store_true", help="print how many tensors differ, and by how much, and not each of them"
    )
    options.add_json_option(parser)
    options.add_threads_option(parser)
    add_progress_option(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Compare."""
    choose_kernels()
    from requant.checkpoint.verify.difference import diff
    from requant.checkpoints import open_both

    a, b = open_both(arguments.a, arguments.b, arguments.like)
    compile_missing(output.kernels)
    result = diff(a, b, numbers=arguments.numbers, threads=arguments.threads)
    kinds = _kinds(result)
    members: dict[str, Any] = {"compared": result.compared, "equal": _equal(result), "kinds": list(map(asdict, kinds))}
    lines = []
    if not arguments.summary:
        members["differences"] = [asdict(each) for each in result.differences]
        lines = _lines(result)
    options.print_document("\n".join([*lines, *_summary(result, kinds)]), members, arguments, output)
    return FAILED if result.differences else DONE


@dataclass(slots=True)
class _Kind:
    """Tensors that differ in one way. `largest`: in `unit`, None where it is not known of one of them. `signal`,
    `noise`: of all, None where values were not compared."""

    detail: str
    unit: str | None
    tensors: int = 0
    elements: int = 0
    differing: int = 0
    largest: float | None = 0.0
    scales_differing: int = 0
    signal: float | None = None
    noise: float | None = None

    def add(self, each: TensorDifference) -> None:
        self.tensors += 1
        self.elements += each.elements
        self.differing += each.differing
        self.scales_differing += each.scales_differing
        if each.signal is not None and each.noise is not None:
            self.signal, self.noise = (self.signal or 0.0) + each.signal, (self.noise or 0.0) + each.noise
        known = self.largest is not None and (each.largest is not None or not each.differing)
        self.largest = max(self.largest or 0.0, each.largest or 0.0) if known else None


def _kinds(result: CheckpointDifference) -> list[_Kind]:
    """Return the ways in which tensors differ, those of most tensors first."""
    found: dict[tuple[str, str | None], _Kind] = {}
    for each in result.differences:
        # Each shape in a and b would be a kind of its own.
        detail = "other shapes" if each.detail.startswith("shape ") else each.detail
        found.setdefault((detail, each.unit), _Kind(detail, each.unit)).add(each)
    return sorted(found.values(), key=lambda kind: -kind.tensors)


def _equal(result: CheckpointDifference) -> int:
    return result.compared - sum(not each.detail.startswith("only in ") for each in result.differences)


def _lines(result: CheckpointDifference) -> list[str]:
    lines = [_line(each) for each in result.differences[:_SHOWN]]
    if len(result.differences) > _SHOWN:
        lines.append(f"and {len(result.differences) - _SHOWN} more")
    return [*lines, ""] if lines else []


def _summary(result: CheckpointDifference, kinds: list[_Kind]) -> list[str]:
    lines = [_line_of_kind(kind) for kind in kinds]
    both = f"{counted(result.compared, 'tensor')} in both, {_equal(result)} of them equal"
    return [*lines, f"{counted(len(result.differences), 'difference')}; {both}"]


def _line_of_kind(kind: _Kind) -> str:
    parts = [f"{counted(kind.tensors, 'tensor')}: {kind.detail}"]
    if kind.unit is not None:
        share = kind.differing / kind.elements if kind.elements else 0.0
        parts.append(f"{kind.differing} of {kind.elements} elements ({share:.2%})")
        if kind.largest is not None:
            parts.append(f"by at most {kind.largest:.6g}{'' if kind.unit == 'value' else f' {kind.unit}'}")
    if kind.scales_differing:
        parts.append(f"{kind.scales_differing} scales")
    parts += _ratio(kind.signal, kind.noise)
    return ", ".join(parts)


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
    parts += _ratio(each.signal, each.noise)
    return ", ".join(parts)


def _ratio(signal: float | None, noise: float | None) -> list[str]:
    from requant.checkpoint.verify.difference import decibels

    ratio = None if signal is None or noise is None else decibels(signal, noise)
    return [] if ratio is None else [f"SQNR {ratio:.2f} dB"]
