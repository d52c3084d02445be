"""Blocks of GGUF against gguf's Python and ggml's C: the bytes that they store, and what those stand for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.checkpoint.gguf.tensor_types import TENSOR_TYPES, write_elements
from requant.convert.blocks.gguf import BLOCK, GGUF_FORMATS, GgufTensor, dequantize_gguf, quantize_gguf
from tests.interop.blocks.block_cases import finite_blocks
from tests.interop.comparison import Comparison
from tests.interop.conformance import subject, systems
from tests.interop.llama_cpp.library import needs_llama_cpp, quantize_rows
from tests.interop.seed_of_the_day import generator

gguf: Any = pytest.importorskip("gguf")

pytestmark = pytest.mark.interop

Array = NDArray[Any]

EXPONENTS = (-110, 120)
"""Between them every scale has a reciprocal, and every difference is finite; beyond them we refuse."""


def in_zeros(values: Array, data: Array) -> Array:
    """Which bytes are those of blocks of zeros."""
    return np.repeat((values == 0).all(1), data.size // len(values))


@pytest.mark.parametrize("format_name", GGUF_FORMATS)
def test_gguf_quantize(format_name: str) -> None:
    values = finite_blocks(generator(141), BLOCK, *EXPONENTS)
    number = gguf.GGMLQuantizationType[format_name]
    ours = quantize_gguf(values, format_name).data
    with np.errstate(all="ignore"):
        theirs = np.ascontiguousarray(gguf.quants.quantize(values, number)).view(np.uint8).reshape(-1)
    comparison = Comparison(f"gguf {format_name} quantize", systems.GGUF, subject.blocks(format_name, "quantize"))
    comparison.add(format_name, ours, ours, theirs, {"gguf_sign_of_zeros": in_zeros(values, ours)})
    comparison.finish(100_000)


@needs_llama_cpp
@pytest.mark.parametrize("format_name", GGUF_FORMATS)
def test_ggml_quantize(format_name: str) -> None:
    values = finite_blocks(generator(142), BLOCK, *EXPONENTS)
    ours = quantize_gguf(values, format_name).data
    number = int(gguf.GGMLQuantizationType[format_name])
    theirs = np.frombuffer(quantize_rows(number, values, ours.size), np.uint8)
    comparison = Comparison(f"ggml {format_name} quantize", systems.LLAMA_CPP, subject.blocks(format_name, "quantize"))
    comparison.add(format_name, ours, ours, theirs, {"gguf_sign_of_zeros": in_zeros(values, ours)})
    comparison.finish(100_000)


@needs_llama_cpp
@pytest.mark.parametrize("format_name", GGUF_FORMATS)
def test_whose_sign_of_zeros_each_follows(format_name: str) -> None:
    """As docs/checkpoints_onnx_gguf.md says: with a zero of the other sign in every place, and in none."""
    number = gguf.GGMLQuantizationType[format_name]
    for sign, place in itertools.product((0.0, -0.0), range(BLOCK + 1)):
        values = np.full((1, BLOCK), sign, np.float32)
        values[0, place % BLOCK] = -sign if place < BLOCK else sign
        by_python = np.ascontiguousarray(gguf.quants.quantize(values, number)).tobytes()
        by_ggml = quantize_rows(int(number), values, len(by_python))
        of_api = quantize_gguf(values, format_name).data.tobytes()
        assert write_elements(values.reshape(-1), TENSOR_TYPES[format_name]).tobytes() == bytes(by_ggml)
        assert of_api == (by_python if format_name in ("Q4_0", "Q5_0") else bytes(by_ggml))
        if format_name in ("Q4_0", "Q5_0"):
            assert (by_python != bytes(by_ggml)) == np.signbit(values[0, 0])


@pytest.mark.parametrize("format_name", GGUF_FORMATS)
def test_gguf_dequantize(format_name: str) -> None:
    """Random bytes: all codes, and scales of every pattern of f16, NaN and infinities among them."""
    rng = generator(143)
    format_ = GGUF_FORMATS[format_name]
    count = 1 << 16
    blocks = rng.integers(0, 256, (count, format_.block_bytes), dtype=np.uint8)
    blocks[:, :2] = np.arange(count, dtype="<u2").view(np.uint8).reshape(-1, 2)
    ours = dequantize_gguf(GgufTensor(format_name, (count, BLOCK), blocks.reshape(-1)))
    with np.errstate(all="ignore"):
        theirs = np.asarray(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[format_name]), np.float32)
    comparison = Comparison(f"gguf {format_name} dequantize", systems.GGUF, subject.blocks(format_name, "dequantize"))
    comparison.add(format_name, ours, ours, theirs.reshape(ours.shape))
    comparison.finish(1_900_000)
