"""Dumps of block formats: which format, and which rule for its scales, is what nobody says.

Codes are bytes without a type, which would name the format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.interop.blind.dump import Array, Arrays, Dump, Types, dumped, tensor_text


def drawn_rows(rng: np.random.Generator, pool: Array) -> Array:
    """A matrix of some of the blocks of a pool, which is [blocks, numbers]: one or a few, or some hundred."""
    rows, count = int(np.exp2(rng.uniform(0, 6))), int(rng.integers(1, 5))
    return np.ascontiguousarray(pool[rng.integers(0, len(pool), rows * count)].reshape(rows, -1))


def quantize_dump(
    values: Array, run: Callable[[Array], dict[str, Array]], *, label: dict[str, str], **options: Any
) -> Dump:
    """A quantize_blocks of f32, by what takes rows of blocks and gives the outputs by name."""

    def answer(arrays: Arrays, _: Types) -> dict[str, Array]:
        return run(arrays["input"])

    types = {"input": tensor_text(values.shape, "f32")}
    return dumped("quantize_blocks", {"input": values}, types, options, answer, label=label)


def dequantize_dump(
    parts: dict[str, Array], shape: tuple[int, ...], run: Callable[[Arrays], Array], *, label: dict[str, str]
) -> Dump:
    """A dequantize_blocks to f32 of a shape, by what takes the parts by name."""

    def answer(arrays: Arrays, _: Types) -> dict[str, Array]:
        return {"output": run(arrays)}

    return dumped("dequantize_blocks", parts, {}, {"output_type": tensor_text(shape, "f32")}, answer, label=label)
