"""The values of GGUF's blocks beside those of ggml and gguf-py: any codes and scales, and floats of all kinds."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from requant.checkpoint.gguf.tensor_types import FLOATS, READABLE, TENSOR_TYPES, read_elements
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint
from tests.interop.llama_cpp.library import dequantize_rows, needs_llama_cpp
from tests.interop.seed_of_the_day import generator
from tests.support.gguf_blocks import any_blocks

pytestmark = pytest.mark.interop

QUANTIZED = [name for name in READABLE if name not in FLOATS]
# GCC makes an exclusive or of a product with -1: it changes the sign of a NaN, which a multiplication keeps.
SIGNS_OF_NAN = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
# The NaN of infinity * 0 less NaN: ggml has the first one. These are those of the API's block formats.
WHICH_NAN = ("Q4_1", "Q5_1")
# gguf-py 0.19 does not have these.
NOT_IN_GGUF_PY = ("Q1_0", "Q2_0", "Q8_K")


@needs_llama_cpp
@pytest.mark.parametrize("name", QUANTIZED)
def test_values_equal_ggml(name: str) -> None:
    type_ = TENSOR_TYPES[name]
    blocks = any_blocks(name, type_.block_bytes, 20_000, generator(1))
    found = read_elements(blocks.reshape(-1), type_).view(np.uint32)
    theirs = dequantize_rows(name, blocks, found.size).view(np.uint32)
    differs = found != theirs
    if name in SIGNS_OF_NAN + WHICH_NAN:
        neither = np.isnan(found.view(np.float32)) & np.isnan(theirs.view(np.float32))
        assert not (differs & neither & ((found ^ theirs) != 0x80000000)).any() or name in WHICH_NAN
        differs &= ~neither
    assert not differs.any()
    record(systems.LLAMA_CPP, [checkpoint(name, "dequantize", "GGUF")], found.size)


@pytest.mark.parametrize("name", [name for name in QUANTIZED if name not in NOT_IN_GGUF_PY])
def test_values_equal_gguf_py(name: str) -> None:
    type_, number = TENSOR_TYPES[name], gguf.GGMLQuantizationType[name]
    blocks = any_blocks(name, type_.block_bytes, 4000, generator(2))
    found = read_elements(blocks.reshape(-1), type_).view(np.uint32)
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = np.asarray(gguf.quants.dequantize(blocks, number), np.float32).reshape(-1).view(np.uint32)
    differs = found != theirs
    if name in WHICH_NAN:
        differs &= ~(np.isnan(found.view(np.float32)) & np.isnan(theirs.view(np.float32)))
    assert not differs.any()
    record(systems.GGUF, [checkpoint(name, "dequantize", "GGUF")], found.size)
