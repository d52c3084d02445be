"""Every type of blocks that GGUF files have, read: an oracle that takes one element at a time, and NaN."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from requant.checkpoint.gguf.i_quants import grid
from requant.checkpoint.gguf.tensor_types import READABLE, TENSOR_TYPES, read_elements
from requant.convert.blocks.gguf import GGUF_FORMATS
from tests.oracles.ggml_quants import VALUES, grids
from tests.support.gguf_blocks import any_blocks

DEFAULT_NAN = 0xFFC00000

# SHA-256 of the numbers as int8, from ggml-common.h.
GRIDS = {
    "IQ1_S": ((2048, 8), "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a"),
    "IQ2_XXS": ((256, 8), "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54"),
    "IQ2_XS": ((512, 8), "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de"),
    "IQ2_S": ((1024, 8), "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88"),
    "IQ3_XXS": ((256, 4), "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d"),
    "IQ3_S": ((512, 4), "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f"),
}


def test_every_type_has_an_oracle() -> None:
    assert {*VALUES, *GGUF_FORMATS, "F32", "F16", "BF16"} == set(READABLE)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", VALUES)
def test_values_equal_the_oracle(name: str) -> None:
    type_ = TENSOR_TYPES[name]
    blocks = any_blocks(name, type_.block_bytes, 300, np.random.default_rng(1))
    found = read_elements(blocks.reshape(-1), type_).reshape(-1, type_.block)
    with np.errstate(invalid="ignore"):
        expected = np.array([list(VALUES[name](block.tobytes())) for block in blocks], np.float32)
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), ~numbers)
    assert np.array_equal(found.view(np.uint32)[numbers], expected.view(np.uint32)[numbers])
    assert numbers.mean() > 0.5


@pytest.mark.parametrize("name", VALUES)
def test_blocks_are_read_alike_in_any_number(name: str) -> None:
    type_ = TENSOR_TYPES[name]
    data = any_blocks(name, type_.block_bytes, 64, np.random.default_rng(2)).reshape(-1)
    whole = read_elements(data, type_).view(np.uint32)
    parts = [
        read_elements(data[at : at + 3 * type_.block_bytes], type_) for at in range(0, data.size, 3 * type_.block_bytes)
    ]
    assert np.array_equal(np.concatenate(parts).view(np.uint32), whole)


def halves(*bits: int) -> bytes:
    return b"".join(each.to_bytes(2, "little") for each in bits)


@pytest.mark.parametrize(
    ("d", "dmin", "expected"),
    [
        (0x7C01, 0x3C00, 0x7FC02000),  # a signalling NaN is quiet
        (0xFE03, 0x7E05, 0xFFC06000),  # of two the first
        (0x3C00, 0x7E05, 0x7FC0A000),
        (0x7C00, 0x7E05, DEFAULT_NAN),  # 0 * infinity comes first
        (0x3C00, 0x7C00, DEFAULT_NAN),
    ],
)
def test_the_bits_of_a_nan(d: int, dmin: int, expected: int) -> None:
    """Q4_K with all scales, minimums and codes 0."""
    block = np.frombuffer(halves(d, dmin) + bytes(140), np.uint8)
    assert set(read_elements(block, TENSOR_TYPES["Q4_K"]).view(np.uint32).tolist()) == {expected}


def test_infinity_less_infinity() -> None:
    block = np.frombuffer(halves(0x7C00, 0x7C00) + b"\xff" * 140, np.uint8)
    assert set(read_elements(block, TENSOR_TYPES["Q4_K"]).view(np.uint32).tolist()) == {DEFAULT_NAN}


def test_a_binary_nan_has_both_signs() -> None:
    block = np.frombuffer(halves(0x7E01) + b"\x0f" * 16, np.uint8)
    assert (
        read_elements(block, TENSOR_TYPES["Q1_0"]).view(np.uint32).tolist()
        == ([0x7FC02000] * 4 + [0xFFC02000] * 4) * 16
    )


@pytest.mark.parametrize("name", GRIDS)
def test_the_grids_are_those_of_ggml(name: str) -> None:
    shape, digest = GRIDS[name]
    vectors = grid(name)
    assert vectors.shape == shape
    assert vectors.dtype == np.int8
    assert hashlib.sha256(vectors.tobytes()).hexdigest() == digest
    assert vectors.tolist() == grids()[name]
