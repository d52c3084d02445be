"""GGUF blocks to the byte: the package's own, and the oracle's on many more."""

from __future__ import annotations

import numpy as np
import pytest

from requant.convert.blocks.gguf import BLOCK, GGUF_FORMATS, GgufTensor, dequantize_gguf, quantize_gguf
from requant.errors import PreconditionError, TensorDataError, TypeFitError, UnknownNameError, UnsupportedError
from tests.oracles import blocks as oracle
from tests.support import cases
from tests.vector_cases.conversion import floats, load

# gguf's MXFP4 is a format of F.6 with an exponent by log2; it is not one of the layouts here.
RESULTS = [result for result in load("gguf_blocks")["results"] if result["type"] != "MXFP4"]


def sample() -> np.ndarray:
    rng = np.random.default_rng(9)
    normal = rng.standard_normal((150, BLOCK)) * 10.0 ** rng.uniform(-30, 30, (150, 1))
    grid = rng.integers(-16, 17, (150, BLOCK)) / 2.0
    shifted = rng.uniform(100, 101, (50, BLOCK))
    steps = np.concatenate([np.arange(32) * step / 2 + start for step, start in ((1, -8), (0.5, 0), (-1, 8))])
    fixed = np.zeros((6, BLOCK))
    fixed[1], fixed[2, 5], fixed[3], fixed[4, 0], fixed[5] = -0.0, -3.0, 7.25, 1e-38, -(2.0**-140)
    fixed[4, 1:] = -1e-38
    ties = rng.integers(-127, 127, (50, BLOCK)) + 0.5
    ties[:, 0] = 127  # d = 1, so that every other value is a tie of Q8_0
    blocks = [normal, grid, ties, shifted, steps.reshape(3, BLOCK), fixed[:4]]
    return np.concatenate(blocks).astype("<f4")


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result["type"])
def test_vectors(result: dict[str, list[str]]) -> None:
    data = load("gguf_blocks")
    tensor = quantize_gguf(floats(data["x"]).reshape(data["shape"]), str(result["type"]))
    assert tensor.data.tobytes() == bytes.fromhex("".join(result["blocks"]))
    assert dequantize_gguf(tensor).tobytes() == floats(result["dequant"]).tobytes()


@pytest.mark.parametrize("name", GGUF_FORMATS)
def test_blocks_against_the_oracle(name: str) -> None:
    x = sample()
    tensor = quantize_gguf(x, name)
    size = GGUF_FORMATS[name].block_bytes
    # The last are steps, zeros and constants.
    for index in (*cases.sample(range(len(x) - 7), 80), *range(len(x) - 7, len(x))):
        block = x[index].tolist()
        got = tensor.data[index * size : (index + 1) * size].tobytes()
        assert got.hex() == oracle.quantize_gguf(name, block).hex(), f"block {index}: {block}"


@pytest.mark.parametrize("name", GGUF_FORMATS)
def test_stored_bytes_against_the_oracle(name: str) -> None:
    """Random bytes with finite scales: every code, also those that quantization does not write."""
    rng = np.random.default_rng(10)
    size = GGUF_FORMATS[name].block_bytes
    data = rng.integers(0, 256, (200, size), dtype=np.uint8)
    data[:, [1, 3] if name.endswith("_1") else [1]] &= 0xBB  # no highest exponent
    got = dequantize_gguf(GgufTensor(name, (200, BLOCK), data.reshape(-1)))
    for index in cases.sample(range(200), 40):
        expected = np.array(oracle.dequantize_gguf(name, data[index].tobytes()), "<f4")
        assert got[index].tobytes() == expected.tobytes()


def test_a_scale_beyond_f16_is_stored_as_infinity() -> None:
    tensor = quantize_gguf(np.full(BLOCK, 1e20, "<f4"), "Q8_0")
    assert tensor.data[:2].tobytes() == b"\x00\x7c"
    assert np.isinf(dequantize_gguf(tensor)).all()


@pytest.mark.parametrize("name", GGUF_FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(name: str, value: float) -> None:
    x = np.linspace(-1, 1, 3 * BLOCK).astype("<f4")
    x[40] = value
    with pytest.raises(PreconditionError, match="not finite") as caught:
        quantize_gguf(x, name)
    assert caught.value.index == 40


@pytest.mark.parametrize(("name", "block"), [("Q4_1", [-3e38, 3e38]), ("Q5_1", [-3e38, 3e38]), ("Q8_0", [1e-38, 0])])
def test_scales_beyond_f32(name: str, block: list[float]) -> None:
    x = np.zeros((2, BLOCK), "<f4")
    x[1, :2] = block
    with pytest.raises(PreconditionError, match="reciprocal") as caught:
        quantize_gguf(x, name)
    assert caught.value.index == 32


def test_what_is_refused() -> None:
    with pytest.raises(TypeFitError, match="31 is not a multiple of 32"):
        quantize_gguf(np.zeros((32, 31), "<f4"), "Q8_0")
    with pytest.raises(UnsupportedError, match="float64"):
        quantize_gguf(np.zeros(32), "Q8_0")
    with pytest.raises(UnknownNameError, match="Q5_1"):
        quantize_gguf(np.zeros(32, "<f4"), "Q6_K")
    with pytest.raises(TensorDataError, match="34"):
        dequantize_gguf(GgufTensor("Q8_0", (32,), np.zeros(33, "|u1")))
    assert dequantize_gguf(quantize_gguf(np.empty((2, 0), "<f4"), "Q5_1")).shape == (2, 0)
