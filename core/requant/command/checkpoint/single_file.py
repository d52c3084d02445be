"""Models that are one file, and not a directory of safetensors: GGUF, and ONNX with its external data."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from time import monotonic
from typing import TYPE_CHECKING, Any

from requant.command.checkpoint import options
from requant.command.checkpoint.verdicts import verdict_lines, verdict_members
from requant.command.exit_status import DONE
from requant.command.kernels import choose_kernels, compile_missing
from requant.command.output import Output, counted, size_text, time_text

if TYPE_CHECKING:
    from requant.checkpoint.run.file_plan import FilePlan
    from requant.checkpoint.run.run import RunReport

_GGUF, _ONNX = ".gguf", ".onnx"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is for one of these formats only."""
    of_onnx = parser.add_argument_group("for an ONNX model")
    of_onnx.add_argument(
        "--block-size", type=int, metavar="N", help="the number of weights along K that share a scale. Default: 128"
    )
    of_onnx.add_argument("--symmetric", action="store_true", help="quantize without zero points")
    of_gguf = parser.add_argument_group("for a GGUF file")
    add_imatrix_option(of_gguf)
    of_gguf.add_argument(
        "--pure", action="store_true", help="make all tensors of one type, and not the mixture that the scheme names"
    )


def add_imatrix_option(parser: argparse._ActionsContainer) -> None:
    """Add `--imatrix`."""
    parser.add_argument(
        "--imatrix",
        metavar="FILE",
        help="an importance matrix that llama-imatrix wrote for this model (GGUF or .dat): errors count by the "
        "importance of their column. Default: none",
    )


def is_single_file(arguments: argparse.Namespace) -> bool:
    """Return whether the source is such a file, by its name, and no directory, and becomes one. Refuse options that are
    not for what it is.
    """
    source: str = arguments.source
    is_directory = source.endswith("/") or os.path.isdir(os.path.expanduser(source))
    kind = "" if is_directory else PurePath(source).suffix.lower()
    if kind != _ONNX:
        options.refuse_given(arguments, ("block_size", "symmetric"), "is only for ONNX models")
    if kind != _GGUF:
        options.refuse_given(arguments, ("imatrix", "pure"), "is only for GGUF files")
    if kind == _GGUF and getattr(arguments, "like", None) is not None:
        options.refuse_given(arguments, ("imatrix", "pure"), "is only for GGUF files that become GGUF files")
        if getattr(arguments, "engine", "threads") != "threads":
            arguments.refuse("--engine is only for safetensors models")
        return False
    options.refuse_given(arguments, ("like",), "is only for a GGUF file that becomes safetensors")
    if kind not in (_GGUF, _ONNX):
        return False
    if kind == _ONNX:
        options.refuse_given(arguments, ("dtype",), "is not for ONNX models")
    of_safetensors = ("profile", "targets", "not_finite", "input_scales", "kv_scales", "output", "schemes")
    options.refuse_given(arguments, of_safetensors, "is for safetensors")
    if kind == _ONNX:
        options.refuse_given(arguments, ("certify",), "is for safetensors and GGUF files")
    if options.is_quantization(arguments) and options.one_scheme(arguments) is None:
        arguments.refuse("several --scheme are for safetensors: give one")
    if getattr(arguments, "engine", "threads") != "threads":
        arguments.refuse("--engine is only for safetensors models")
    return True


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Convert the file, or print what would be done."""
    choose_kernels()
    from requant.checkpoint.storage.location import open_folder

    began = monotonic()
    source, name = open_folder(arguments.source)
    ignore, _ = options.ignored(arguments)
    certify: bool = getattr(arguments, "certify", False)
    destination = getattr(arguments, "destination", None)
    target, target_name = (source, name) if destination is None else open_folder(destination)
    plan, convert = (_gguf if PurePath(name).suffix.lower() == _GGUF else _onnx)(arguments)
    if destination is None or getattr(arguments, "dry_run", False) or "threads" not in arguments:
        planned = plan(source, name, target_name, ignore=ignore)
        lines, stated = [*planned.lines()], planned.as_json()
        if certify:
            from requant.checkpoint.gguf.plan import GgufPlan
            from requant.checkpoint.gguf.quantize import verdicts_of_gguf

            assert isinstance(planned, GgufPlan)
            compile_missing(output.kernels)
            verdicts = verdicts_of_gguf(planned, source, threads=arguments.threads, progress=output.progress)
            lines, stated = [*lines, "", *verdict_lines(verdicts)], stated | verdict_members(verdicts)
        options.print_document("\n".join(lines), stated, arguments, output)
        return DONE

    compile_missing(output.kernels)
    how = {"ignore": ignore, "threads": arguments.threads, "progress": output.progress}
    report = convert(source, name, target, target_name, **how | ({"certify": True} if certify else {}))
    files, seconds = report.files, monotonic() - began
    members: dict[str, Any] = {
        "destination": destination,
        "files": [{"name": file.name, "bytes": file.size, "sha256": file.sha256} for file in files],
        "seconds": round(seconds, 3),
    }
    wrote = f"Wrote {counted(len(files), 'file')}"
    if certify:
        from requant.checkpoint.run.destination import manifest_name

        wrote, members = f"{wrote} and {manifest_name(target_name)}", members | verdict_members(report.verdicts)
    size = size_text(sum(file.size for file in files))
    lines = [f"{wrote}, {size}, in {time_text(seconds)}: {destination}"]
    output.done("\n".join([*lines, *(verdict_lines(report.verdicts) if certify else ())]), members)
    return DONE


def _gguf(arguments: argparse.Namespace) -> tuple[Callable[..., FilePlan], Callable[..., RunReport]]:
    """Return what plans the conversion of a file, and what runs it."""
    from requant.checkpoint.gguf.importance import read_importance
    from requant.checkpoint.gguf.plan import plan_gguf
    from requant.checkpoint.gguf.quantize import quantize_gguf
    from requant.checkpoint.storage.location import open_folder

    scheme = options.one_scheme(arguments)
    if scheme is not None:
        options.refuse_given(arguments, ("dtype",), "is not for a GGUF file that is quantized")
    # A quantized type, or a float.
    type_: str | None = scheme or getattr(arguments, "dtype", None)
    if type_ is None:
        arguments.refuse("give --dtype, the type to dequantize a GGUF file to")
    assert type_ is not None
    how: dict[str, Any] = {"type_": type_, "pure": getattr(arguments, "pure", False)}
    path: str | None = getattr(arguments, "imatrix", None)
    if path is not None:
        how["importance"] = read_importance(*open_folder(path), path)
    return partial(plan_gguf, **how), partial(quantize_gguf, **how)


def _onnx(arguments: argparse.Namespace) -> tuple[Callable[..., FilePlan], Callable[..., RunReport]]:
    from requant.checkpoint.onnx.block_quantization import form_named
    from requant.checkpoint.onnx.plan import plan_onnx
    from requant.checkpoint.onnx.quantize import quantize_onnx

    scheme = options.one_scheme(arguments)
    if scheme is None:
        arguments.refuse("ONNX models cannot be dequantized")
    assert scheme is not None
    size = {} if arguments.block_size is None else {"block_size": arguments.block_size}
    form = form_named(scheme, **size, symmetric=arguments.symmetric)
    return partial(plan_onnx, form=form), partial(quantize_onnx, form=form)
