"""The types whose scales are searched: an oracle that takes one number at a time, and what must not change bits."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.checkpoint.gguf.tensor_types import SEARCHED, TENSOR_TYPES, read_elements, write_elements
from requant.errors import PreconditionError
from requant.kernels.checkpoint import scale_search
from requant.kernels.jit.jit import Kernel
from tests.oracles.ggml_search import BLOCKS
from tests.support.gguf_blocks import odd_rows

Array = NDArray[Any]

RANDOM = np.random.default_rng(17)
ROWS = odd_rows(RANDOM, 1)
IMPORTANCE = {
    "none": None,
    "any": (RANDOM.random(ROWS.shape) ** 3 * 10).astype("<f4"),
    "zeros": (RANDOM.random(ROWS.shape) * (RANDOM.random(ROWS.shape) < 0.4)).astype("<f4"),
    "wide": np.exp2(RANDOM.uniform(-60, 20, ROWS.shape)).astype("<f4"),
}
VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "ggml_blocks.json").read_text())
KERNELS = [each for each in vars(scale_search).values() if isinstance(each, Kernel)]


def decoded(text: str, dtype: str) -> Array:
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.mark.parametrize("name", VECTORS["searched"])
def test_ggml_writes_the_same_bytes(name: str) -> None:
    assert {*BLOCKS} == {*VECTORS["searched"]}
    stored = write_elements(decoded(VECTORS["x"]["data"], "<f4"), TENSOR_TYPES[name])
    assert stored.tobytes() == base64.b64decode(VECTORS["searched"][name])


@pytest.mark.parametrize("name", VECTORS["by_importance"])
def test_ggml_writes_the_same_bytes_by_importance(name: str) -> None:
    assert {*SEARCHED} == {*VECTORS["by_importance"]}
    importance = decoded(VECTORS["importance"]["data"], "<f4")
    stored = write_elements(decoded(VECTORS["x"]["data"], "<f4"), TENSOR_TYPES[name], importance=importance)
    assert stored.tobytes() == base64.b64decode(VECTORS["by_importance"][name])


@pytest.mark.sample(1)
@pytest.mark.parametrize("importance", IMPORTANCE)
@pytest.mark.parametrize("name", BLOCKS)
def test_bytes_equal_the_oracle(name: str, importance: str) -> None:
    block, oracle = BLOCKS[name]
    given = IMPORTANCE[importance]
    found = write_elements(
        ROWS.reshape(-1), TENSOR_TYPES[name], importance=None if given is None else given.reshape(-1)
    )
    values = ROWS.reshape(-1, block)
    weights = [None if given is None else list(given.reshape(-1, block)[i]) for i in range(len(values))]
    # Of small blocks some.
    places = range(0, len(values), 5 if block == 32 else 1)
    with np.errstate(all="ignore"):
        expected = b"".join(oracle(list(values[i]), weights[i]) for i in places)
    assert found.reshape(len(values), -1)[list(places)].tobytes() == expected


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_written_alike_beside_any_others(name: str) -> None:
    type_, given = TENSOR_TYPES[name], IMPORTANCE["any"]
    assert given is not None
    whole = write_elements(ROWS.reshape(-1), type_, importance=given.reshape(-1))
    for rows in (1, 3):
        parts = [
            write_elements(ROWS[at : at + rows].reshape(-1), type_, importance=given[at : at + rows].reshape(-1))
            for at in range(0, len(ROWS), rows)
        ]
        assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_written_is_near(name: str) -> None:
    values = RANDOM.standard_normal(16 * 256).astype("<f4")
    type_ = TENSOR_TYPES[name]
    for importance in (None, np.ones_like(values)):
        error = read_elements(write_elements(values, type_, importance=importance), type_) - values
        bits = {"Q2_K": 8, "Q3_K": 13, "Q4_K": 20, "Q5_K": 27, "Q6_K": 33}.get(name, 19)
        assert -10 * np.log10(np.square(error).mean() / np.square(values).mean()) > bits


@pytest.mark.sample(1)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel.name).rpartition(".")[2])
def test_products_and_sums_are_not_fused(kernel: Kernel) -> None:
    """A fused multiply-add rounds once, and would give other bits than C without it."""
    text = kernel.assembly()
    assert "fmadd" not in text
    assert "fmla" not in text
    assert "mul" in text or "add" in text


@pytest.mark.parametrize("name", BLOCKS)
def test_a_scale_beyond_f16_is_refused(name: str) -> None:
    values = np.ones((3, 256), "<f4")
    values[1, 40] = 1e9 if name in ("Q5_K", "Q6_K") else 5e8
    first = 32 if name == "IQ4_NL" else 0
    with pytest.raises(PreconditionError, match=f"block at index {256 + first} is beyond f16") as error:
        write_elements(values.reshape(-1), TENSOR_TYPES[name])
    assert error.value.index == 256 + first
