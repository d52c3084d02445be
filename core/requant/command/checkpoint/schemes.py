"""List what `--scheme` takes: the bits of each weight, scales included, and the programs known to load it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from requant.command.checkpoint import options
from requant.command.exit_status import DONE
from requant.command.kernels import choose_kernels
from requant.command.output import Output

if TYPE_CHECKING:
    from requant.checkpoint.scheme import Scheme

HELP = "list the schemes"

# Of a matrix of a large model: with it, one scale for each channel is next to nothing.
_SHAPE = (4096, 4096)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_json_option(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Print them."""
    choose_kernels()
    rows = [*_of_safetensors(), *_of_gguf(), *_of_onnx()]
    options.print_document(_text(rows), {"schemes": rows}, arguments, output)
    return DONE


def _of_safetensors() -> list[dict[str, Any]]:
    from requant.checkpoint.loaders import loaders_of
    from requant.checkpoint.schemes import GIVEN_SCHEMES, SCHEMES, scheme_named

    rows = []
    for scheme in map(scheme_named, (*SCHEMES, *GIVEN_SCHEMES)):
        loaders = loaders_of(scheme.quantization_config(("Linear",), ()))
        rows.append(_row("safetensors", scheme.name, _bits(scheme), list(loaders), scheme.description))
    return rows


def _bits(scheme: Scheme) -> float:
    from requant.checkpoint.safetensors.header import DTYPES

    stored = scheme.format(scheme.profiles[0]).stored("BF16", _SHAPE)
    bits = sum(_product(tensor.shape) * DTYPES[tensor.dtype].bits for tensor in stored)
    return bits / _product(_SHAPE)


def _of_gguf() -> list[dict[str, Any]]:
    from requant.checkpoint.gguf.mixtures import TARGETS
    from requant.checkpoint.gguf.tensor_types import FLOATS

    rows = []
    for target in TARGETS.values():
        if target.name in FLOATS:
            continue
        said = f"blocks of {target.type.block}"
        if target.mixed:
            said = f"mixture: {target.type.name}, and types of more bits for some tensors"
        bits = 8 * target.type.block_bytes / target.type.block
        rows.append(_row("GGUF", target.name, bits, ["llama.cpp"], said))
    return rows


def _of_onnx() -> list[dict[str, Any]]:
    from requant.checkpoint.onnx.block_quantization import FORM_NAMES, form_named

    rows = []
    for name in FORM_NAMES:
        form = form_named(name)
        # A scale of the weight's dtype, here of 16 bits, and a zero point of as many bits as a code.
        bits = form.bits + (16 + form.bits) / form.block_size
        said = f"{form.bits}-bit integers, one scale and zero point for each block of {form.block_size}"
        rows.append(_row("ONNX", name, bits, ["onnxruntime"], said))
    return rows


def _row(kind: str, name: str, bits: float, loaders: list[str], description: str) -> dict[str, Any]:
    return {"name": name, "of": kind, "bits": round(bits, 4), "loaders": loaders, "description": description}


def _text(rows: list[dict[str, Any]]) -> str:
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'scheme':<{width}} {'bits':>6}  {'loaded by':<19}  weights"]
    before = ""
    for row in rows:
        if row["of"] not in (before, "safetensors"):
            lines.append(f"\nFor {row['of']} files:")
        before = row["of"]
        loaders = ", ".join(row["loaders"]) or "-"
        lines.append(f"{row['name']:<{width}} {row['bits']:>6.3f}  {loaders:<19}  {row['description']}")
    lines.append("\nbits: for each weight of a matrix of 4096 x 4096 in bf16, scales and zero points included.")
    lines.append("Those of a mixture are those of the type that most tensors have.")
    lines.append("Names in any case. Options: docs/checkpoints.md#schemes; group=32 for example adds bits.")
    return "\n".join(lines)


def _product(shape: tuple[int, ...]) -> int:
    from math import prod

    return prod(shape)
