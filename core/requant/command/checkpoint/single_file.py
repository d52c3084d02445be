"""Models that are one file, and not a directory of safetensors: GGUF, and ONNX with its external data."""

from __future__ import annotations

import argparse
from pathlib import PurePath
from time import monotonic
from typing import TYPE_CHECKING, Any

from requant.command.checkpoint import options
from requant.command.exit_status import DONE
from requant.command.kernels import choose_kernels, compile_missing
from requant.command.output import Output, counted, size_text, time_text

if TYPE_CHECKING:
    from requant.checkpoint.onnx.block_quantization import WeightForm
    from requant.checkpoint.run.work import Progress
    from requant.checkpoint.storage.store import Store

_GGUF, _ONNX = ".gguf", ".onnx"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is for one of these formats only."""
    of_onnx = parser.add_argument_group("for an ONNX model")
    of_onnx.add_argument(
        "--block-size", type=int, metavar="N", help="the number of weights along K that share a scale. Default: 128"
    )
    of_onnx.add_argument("--symmetric", action="store_true", help="quantize without zero points")


def is_single_file(arguments: argparse.Namespace) -> bool:
    """Return whether the source is such a file, by its name. Refuse options that are not for what it is."""
    kind = PurePath(arguments.source).suffix.lower()
    if kind != _ONNX:
        options.refuse_given(arguments, ("block_size", "symmetric"), "is only for ONNX models")
    if kind not in (_GGUF, _ONNX):
        return False
    options.refuse_given(arguments, ("profile", "targets", "not_finite", "output"), "is for safetensors")
    if getattr(arguments, "engine", "threads") != "threads":
        arguments.refuse("--engine is only for safetensors models")
    return True


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Convert the file, or print what would be done."""
    choose_kernels()
    began = monotonic()
    source, name = _place(arguments.source)
    ignore, _ = options.ignored(arguments)
    destination = getattr(arguments, "destination", None)
    target, target_name = (source, name) if destination is None else _place(destination)
    dry_run = destination is None or getattr(arguments, "dry_run", False) or "threads" not in arguments

    def show(state: Progress) -> None:
        output.progress(state.bytes_read, state.bytes_to_read, state.outputs_finished, state.outputs)

    files: dict[str, tuple[int, str]]
    if PurePath(name).suffix.lower() == _GGUF:
        from requant.checkpoint.gguf.quantize import plan_gguf_file, quantize_gguf

        type_ = _gguf_type(arguments)
        if dry_run:
            gguf_plan = plan_gguf_file(source, name, target_name, type_, ignore=ignore)
            options.print_document("\n".join(gguf_plan.lines()), gguf_plan.as_json(), arguments, output)
            return DONE
        compile_missing(output.kernels)
        of_gguf = quantize_gguf(
            source, name, target, target_name, type_, ignore=ignore, threads=arguments.threads, progress=show
        )
        files = {target_name: (of_gguf.plan.size, of_gguf.sha256)}
    else:
        from requant.checkpoint.onnx.plan import plan_onnx
        from requant.checkpoint.onnx.quantize import quantize_onnx

        form = _onnx_form(arguments)
        if dry_run:
            onnx_plan = plan_onnx(source, name, target_name, form, ignore=ignore)
            options.print_document("\n".join(onnx_plan.lines()), onnx_plan.as_json(), arguments, output)
            return DONE
        compile_missing(output.kernels)
        of_onnx = quantize_onnx(
            source, name, target, target_name, form, ignore=ignore, threads=arguments.threads, progress=show
        )
        files = {
            of_onnx.plan.data_output: (of_onnx.plan.data_size, of_onnx.data_sha256),
            of_onnx.plan.output: (len(of_onnx.plan.model), of_onnx.sha256),
        }
    seconds = monotonic() - began
    members: dict[str, Any] = {
        "destination": destination,
        "files": [{"name": name, "bytes": size, "sha256": sha256} for name, (size, sha256) in files.items()],
        "seconds": round(seconds, 3),
    }
    size = sum(size for size, _ in files.values())
    text = f"Wrote {counted(len(files), 'file')}, {size_text(size)}, in {time_text(seconds)}: {destination}"
    output.done(text, members)
    return DONE


def _gguf_type(arguments: argparse.Namespace) -> str:
    """Return the type of the tensors: a quantized one, or a float."""
    found: str | None = getattr(arguments, "scheme", None) or getattr(arguments, "dtype", None)
    if found is None:
        arguments.refuse("give --dtype, the type to dequantize a GGUF file to")
    assert found is not None
    return found


def _onnx_form(arguments: argparse.Namespace) -> WeightForm:
    from requant.checkpoint.onnx.block_quantization import form_named

    scheme: str | None = getattr(arguments, "scheme", None)
    if scheme is None:
        arguments.refuse("ONNX models cannot be dequantized")
    assert scheme is not None
    given = {} if arguments.block_size is None else {"block_size": arguments.block_size}
    return form_named(scheme, **given, symmetric=arguments.symmetric)


def _place(location: str) -> tuple[Store, str]:
    """Return the store of the directory, and the name of the file in it."""
    from requant.checkpoint.storage.location import open_store

    directory, _, name = location.rpartition("/")
    if not directory:
        directory = "/" if location.startswith("/") else "."
    return open_store(directory), name
