"""Blocks whose scales are searched beside ggml's, with and without an importance of each column."""

from __future__ import annotations

import numpy as np
import pytest

from requant.checkpoint.gguf.tensor_types import TENSOR_TYPES, write_elements
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint
from tests.interop.llama_cpp.library import needs_llama_cpp, quantize_rows
from tests.interop.seed_of_the_day import generator
from tests.oracles.ggml_search import BLOCKS
from tests.support.gguf_blocks import F16_AT, odd_rows

pytestmark = [pytest.mark.interop, needs_llama_cpp]

IMPORTANCE = ("none", "any", "zeros", "wide", "all zero", "one", "negative")


def importance_of(kind: str, random: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.float32]] | None:
    values = {
        "any": random.random(256) ** 3 * 10,
        "zeros": random.random(256) * (random.random(256) < 0.5),
        "wide": np.exp2(random.uniform(-60, 20, 256)),
        "all zero": np.zeros(256),
        "one": np.eye(1, 256, 7)[0],
        "negative": random.standard_normal(256),
    }
    return None if kind == "none" else values[kind].astype("<f4")


@pytest.mark.parametrize("kind", IMPORTANCE)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_equal_ggml(name: str, kind: str) -> None:
    type_, random = TENSOR_TYPES[name], generator(3)
    rows, importance = odd_rows(random, 400), importance_of(kind, random)
    theirs = np.frombuffer(quantize_rows(type_.number, rows, type_.size(rows.size), importance), "|u1")
    theirs = theirs.reshape(-1, type_.block_bytes)
    # What llama-quantize refuses is left out.
    heads = np.concatenate([theirs[:, at : at + 2] for at in F16_AT[name]], axis=1).view("<f2")
    usable = np.isfinite(heads).all(axis=1)
    assert usable.mean() > 0.9
    values = np.ascontiguousarray(rows.reshape(-1, type_.block)[usable]).reshape(-1)
    given = None
    if importance is not None:
        everywhere = np.broadcast_to(importance, rows.shape).reshape(-1, type_.block)
        given = np.ascontiguousarray(everywhere[usable]).reshape(-1)
    found = write_elements(values, type_, importance=given).reshape(-1, type_.block_bytes)
    assert np.array_equal(found, theirs[usable])
    record(systems.LLAMA_CPP, [checkpoint(name, "quantize", "GGUF")], found.size)
    print(f"ggml_quantize_chunk: {found.size:,} bytes of {name} compared, importance: {kind}")  # noqa: T201
