"""Dumps of block formats: which format, and which rule for its scales, is what nobody says.

Codes are bytes without a type, which would name the format.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.interop.blind.dump import Array, Dump, tensor_text


def drawn_rows(rng: np.random.Generator, pool: Array) -> Array:
    """A matrix of some of the blocks of a pool, which is [blocks, numbers]: one or a few, or some hundred."""
    rows, count = int(np.exp2(rng.uniform(0, 6))), int(rng.integers(1, 5))
    return np.ascontiguousarray(pool[rng.integers(0, len(pool), rows * count)].reshape(rows, -1))


def quantize_dump(values: Array, observed: dict[str, Array], *, label: dict[str, str], **options: Any) -> Dump:
    """A quantize_blocks of f32."""
    types = {"input": tensor_text(values.shape, "f32")}
    return Dump("quantize_blocks", {"input": values}, types, options, observed, label=label)


def dequantize_dump(parts: dict[str, Array], observed: Array, *, label: dict[str, str], **options: Any) -> Dump:
    """A dequantize_blocks to f32."""
    given = {"output_type": tensor_text(observed.shape, "f32"), **options}
    return Dump("dequantize_blocks", parts, {}, given, {"output": observed}, label=label)
