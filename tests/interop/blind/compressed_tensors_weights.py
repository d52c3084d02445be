"""Dumps of compressed-tensors: its quantize and dequantize of a tensor, of channels and of groups.

It divides, adds the zero point, clamps and rounds, each in the type of the scales, as StableHLO's formula does, which
has no groups: those it dequantizes as quantized_decomposed does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize as library_dequantize
from compressed_tensors.quantization.lifecycle.forward import quantize as library_quantize

from tests.interop.blind import draws
from tests.interop.blind.dump import Array, Dump
from tests.interop.quantized_case import NUMPY, Case, parameter_counts
from tests.interop.torch_quantized import as_array, as_tensor

LABEL = {"profile": "stablehlo"}
OF_GROUPS = {"profile": "torch_decomposed"}


def _case(rng: np.random.Generator, strategies: tuple[str, ...]) -> tuple[Case, QuantizationArgs]:
    strategy, bits, symmetric = str(rng.choice(strategies)), int(rng.choice([4, 8])), bool(rng.random() < 0.5)
    storage, expressed = f"i{bits}", str(rng.choice(["f32", "bf16", "f16"]))
    shape, group = draws.shape(rng, rank=2), int(rng.choice([2, 8, 32]))
    more: dict[str, Any] = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": strategy}
    if strategy == "tensor":
        of = draws.case(rng, storage, expressed, per_axis=False, sizes=shape, symmetric=symmetric)
        return of, QuantizationArgs(**more)
    if strategy == "group":
        shape = (shape[0], group * max(1, shape[1] // group))
        more["group_size"] = group
    counts = parameter_counts(shape, 0, None) if strategy == "channel" else parameter_counts(shape, 1, group)
    scales, points = np.empty(counts), np.zeros(counts, np.int64)
    for place in np.ndindex(counts):
        scales[place] = draws.scale(rng, -7, 3, expressed)
        points[place] = 0 if symmetric else draws.zero_point(rng, storage)
    along = (0, None) if strategy == "channel" else (1, group)
    return Case(shape, storage, expressed, scales, points, *along), QuantizationArgs(**more)


def _parameters(of: Case) -> tuple[Any, Any]:
    """Scales and zero points as the library takes them: a column for channels."""
    shape = (-1, 1) if of.axis == 0 else of.scales.shape if of.block is not None else (1,)
    points: Array = of.zero_points.reshape(shape).astype(np.int8)
    return as_tensor(of.scales.reshape(shape).astype(NUMPY[of.expressed])), as_tensor(points)


def quantize(rng: np.random.Generator) -> Dump:
    of, arguments = _case(rng, ("tensor", "channel"))
    source = draws.reals(rng, of, odd=False)
    empty = as_tensor(np.empty(0, np.int8))

    def run(reals: Array) -> Array:
        return as_array(library_quantize(as_tensor(reals), *_parameters(of), arguments, dtype=empty.dtype))

    return draws.quantize_dump(of, source, run, label=LABEL)


def dequantize(rng: np.random.Generator) -> Dump:
    of, arguments = _case(rng, ("tensor", "channel", "group"))
    source = draws.stored(rng, of)

    def run(stored: Array) -> Array:
        return as_array(library_dequantize(as_tensor(stored), *_parameters(of), arguments))

    return draws.dequantize_dump(of, source, run, label=LABEL if of.block is None else OF_GROUPS)


def dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps."""
    return draws.some(rng, count, (quantize, dequantize))
