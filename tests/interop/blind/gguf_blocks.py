"""Dumps of GGUF's blocks: by gguf's Python, and by ggml's C in llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import gguf
import numpy as np

from requant.convert.blocks.gguf import BLOCK, GGUF_FORMATS
from tests.interop.blind import blocks, draws
from tests.interop.blind.dump import Array, Arrays, Dump
from tests.interop.blocks.block_cases import finite_blocks
from tests.interop.llama_cpp.library import dequantize_rows, quantize_rows

EXPONENTS = (-110, 120)
"""Of magnitudes: between them every scale has a reciprocal, and every difference is finite."""
By = Callable[[Array, str], Array]


def by_gguf(values: Array, format_name: str) -> Array:
    with np.errstate(all="ignore"):
        found = gguf.quants.quantize(values, gguf.GGMLQuantizationType[format_name])
    return np.ascontiguousarray(found).view(np.uint8)


def by_ggml(values: Array, format_name: str) -> Array:
    size = values.size // BLOCK * GGUF_FORMATS[format_name].block_bytes
    number = int(gguf.GGMLQuantizationType[format_name])
    return np.frombuffer(quantize_rows(number, values, size), np.uint8)


def quantize(pool: Array, by: By, rng: np.random.Generator) -> Dump:
    format_name = str(rng.choice(list(GGUF_FORMATS)))
    values = blocks.drawn_rows(rng, pool)

    def run(reals: Array) -> dict[str, Array]:
        shape = (len(reals), reals.shape[1] // BLOCK, GGUF_FORMATS[format_name].block_bytes)
        return {"blocks": by(reals, format_name).reshape(shape)}

    return blocks.quantize_dump(values, run, label={"format": format_name})


def back_by_gguf(stored: Array, format_name: str) -> Array:
    with np.errstate(all="ignore"):
        found = gguf.quants.dequantize(stored.reshape(len(stored), -1), gguf.GGMLQuantizationType[format_name])
    return np.asarray(found, np.float32)


def back_by_ggml(stored: Array, format_name: str) -> Array:
    return dequantize_rows(format_name, stored, stored.shape[0] * stored.shape[1] * BLOCK)


def dequantize(pool: Array, by: By, rng: np.random.Generator) -> Dump:
    """Of what the other direction has made, or of random bytes with finite scales."""
    format_name = str(rng.choice(list(GGUF_FORMATS)))
    width = GGUF_FORMATS[format_name].block_bytes
    values = blocks.drawn_rows(rng, pool)
    stored = by_gguf(values, format_name).reshape(len(values), -1, width)
    if rng.random() < 0.5:
        stored = rng.integers(0, 256, stored.shape, dtype=np.uint8)
        stored[..., [1, 3] if GGUF_FORMATS[format_name].has_minimum else [1]] &= 0xBB

    def run(parts: Arrays) -> Array:
        return by(parts["blocks"], format_name).reshape(values.shape)

    return blocks.dequantize_dump({"blocks": stored}, values.shape, run, label={"format": format_name})


def _pool(rng: np.random.Generator) -> Array:
    """Blocks without one of zeros alone, in which systems differ by a sign."""
    found = finite_blocks(rng, BLOCK, *EXPONENTS)
    return np.asarray(found[(found != 0).any(axis=1)])


def dumps_of_gguf(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps of gguf's Python."""
    pool = _pool(rng)
    return draws.some(rng, count, (partial(quantize, pool, by_gguf), partial(dequantize, pool, back_by_gguf)))


def dumps_of_ggml(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps of ggml."""
    pool = _pool(rng)
    return draws.some(rng, count, (partial(quantize, pool, by_ggml), partial(dequantize, pool, back_by_ggml)))
