"""The values of GGUF's blocks beside those of ggml and gguf-py: any codes and scales, and floats of all kinds."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.checkpoint.gguf.tensor_types import FLOATS, READABLE, TENSOR_TYPES, read_elements
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint
from tests.interop.conformance.systems import System
from tests.interop.llama_cpp.library import dequantize_rows, needs_llama_cpp
from tests.interop.seed_of_the_day import generator
from tests.support.gguf_blocks import any_blocks

pytestmark = pytest.mark.interop

QUANTIZED = [name for name in READABLE if name not in FLOATS]
# GCC makes an exclusive or of a product with -1: it changes the sign of a NaN, which a multiplication keeps.
SIGNS_OF_NAN = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
# The NaN of infinity * 0 less NaN, of which both have the first one, and the block formats of the API the second.
WHICH_NAN = ("Q4_1", "Q5_1")
# gguf-py 0.19 does not have these.
NOT_IN_GGUF_PY = ("Q1_0", "Q2_0", "Q8_K")


def compare(name: str, found: NDArray[Any], theirs: NDArray[Any], system: System, *, any_nan: bool) -> None:
    """Compare all bits; with `any_nan` but for those of what is NaN in both."""
    differs = found.view(np.uint32) != theirs.view(np.uint32)
    left_out = differs & np.isnan(found) & np.isnan(theirs) & any_nan
    assert not (differs & ~left_out).any()
    count = int(left_out.sum())
    divergences = {"nan_bits": count} if any_nan else {}
    record(system, [checkpoint(name, "dequantize", "GGUF")], found.size - count, divergences=divergences)


@needs_llama_cpp
@pytest.mark.parametrize("name", QUANTIZED)
def test_values_equal_ggml(name: str) -> None:
    type_ = TENSOR_TYPES[name]
    blocks = any_blocks(name, type_.block_bytes, 20_000, generator(1))
    found = read_elements(blocks.reshape(-1), type_)
    theirs = dequantize_rows(name, blocks, found.size)
    compare(name, found, theirs, systems.LLAMA_CPP, any_nan=name in SIGNS_OF_NAN + WHICH_NAN)
    if name in SIGNS_OF_NAN:
        assert np.array_equal(found.view(np.uint32) << 1, theirs.view(np.uint32) << 1)


@pytest.mark.parametrize("name", [name for name in QUANTIZED if name not in NOT_IN_GGUF_PY])
def test_values_equal_gguf_py(name: str) -> None:
    type_, number = TENSOR_TYPES[name], gguf.GGMLQuantizationType[name]
    blocks = any_blocks(name, type_.block_bytes, 4000, generator(2))
    found = read_elements(blocks.reshape(-1), type_)
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = np.asarray(gguf.quants.dequantize(blocks, number), np.float32).reshape(-1)
    compare(name, found, theirs, systems.GGUF, any_nan=name in WHICH_NAN)
