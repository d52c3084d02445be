"""Every weight format of compressed-tensors, in both profiles, against exact fractions, where bugs live: ties and what
is one place beside them, subnormal scales, zeros of both signs, and the ends of the range."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.weights.blocks import Block, Extremes
from requant.checkpoint.weights.floats import bits_of, values
from requant.checkpoint.weights.weight_format import WeightFormat
from tests.support import exact_weights
from tests.support.cases import sample
from tests.support.stored_weights import dequantized, extremes, quantized

DTYPES_OF_WEIGHTS = ("BF16", "F16", "F32")
PROFILES = {"compressed-tensors-cpu": True, "compressed-tensors-cuda": False}
DIVISORS = (127.5, 63.5, 7.5, 3.5, 1.5, 448.0, 6.0)
LARGEST = {"BF16": 0x7F7F, "F16": 0x7BFF, "F32": 0x7F7FFFFF}
SIGN = {"BF16": 0x8000, "F16": 0x8000, "F32": 0x80000000}


def hard_rows(dtype: str, rows: int, columns: int, seed: int, around: int | None = None) -> np.ndarray:
    """Bits of weights. A row has a largest magnitude from all of the range, or near 2^`around`, and in the others
    mostly halves of what would be a step for one of the divisors, or one place beside them."""
    rng = np.random.default_rng(seed)
    unsigned = np.uint32 if dtype == "F32" else np.uint16
    found = np.zeros((rows, columns), unsigned)
    for row in range(rows):
        # A pattern from all binades, from the subnormals to the last.
        largest = unsigned(rng.integers(1, LARGEST[dtype] + 1)) if row % 3 else unsigned(rng.integers(1, 700))
        if row % 7 == 6:
            largest = unsigned(LARGEST[dtype] - rng.integers(0, 3))
        if around is not None:
            near_power = np.ldexp(np.float32(1 + rng.random()), around - int(rng.integers(10)))
            largest = bits_of(np.array([near_power], np.float32), dtype).view(unsigned)[0]
        top = values(np.array([largest], unsigned).view(DTYPES[dtype].array), dtype)[0]
        with np.errstate(all="ignore"):
            scale = values(bits_of(np.array([top / np.float32(rng.choice(DIVISORS))], np.float32), dtype), dtype)[0]
            multiples = rng.integers(-300, 301, columns).astype(np.float32) / np.float32(rng.choice([2, 4, 8]))
            near = np.clip(multiples * scale, -top, top).astype(np.float32)
        bits = bits_of(near, dtype).view(unsigned).astype(np.int64)
        bits += rng.integers(-1, 2, columns) * (rng.random(columns) < 0.6)
        bits[rng.random(columns) < 0.1] = 0
        bits[rng.random(columns) < 0.1] = SIGN[dtype]
        magnitudes = np.clip(bits & (SIGN[dtype] - 1), 0, largest)
        found[row] = magnitudes | (bits & SIGN[dtype])
        found[row, rng.integers(columns)] = int(largest) | int(rng.choice([0, SIGN[dtype]]))
    # A row of zeros, and one of negative zeros.
    found[rows // 2] = 0
    found[rows // 3] = SIGN[dtype]
    return found.view(DTYPES[dtype].array)


def assert_same(
    form: WeightFormat,
    rows: np.ndarray,
    dtype: str,
    expected: tuple[exact_weights.Stored, np.ndarray],
    whole: Extremes | None = None,
    back: str | None = None,
) -> None:
    """Compare what is stored, and what comes back, in the dtype `back`, where it is finite."""
    shape = (rows.shape[0], rows.shape[1])
    found = quantized(form, rows, dtype, form.rows_together, whole)
    stored, of_values = expected
    assert found.keys() == stored.keys()
    for suffix, array in stored.items():
        np.testing.assert_array_equal(found[suffix], array.reshape(found[suffix].shape), suffix)
    described = {each.suffix: (each.dtype, each.shape) for each in form.stored(dtype, shape)}
    again = values(dequantized(form, found, described, back or dtype, shape, form.rows_together), back or dtype)
    finite = np.isfinite(of_values)
    np.testing.assert_array_equal(np.isfinite(again), finite)
    # As bits: the sign of a zero counts.
    np.testing.assert_array_equal(again.view(np.uint32)[finite], of_values.view(np.uint32)[finite])


INTEGERS = {
    "W8A8": (8, True, Block(1, 37), (12, 37)),
    "W8A8:asymmetric": (8, False, Block(1, 37), (12, 37)),
    "W8A16:group=32": (8, True, Block(1, 32), (12, 64)),
    "W8A16:tensor": (8, True, Block(12, 21), (12, 21)),
    "W7A16:group=32": (7, True, Block(1, 32), (12, 32)),
    "W6A16:channel": (6, True, Block(1, 29), (12, 29)),
    "W5A16:group=16,asymmetric": (5, False, Block(1, 16), (35, 32)),
    "W4A16:group=32": (4, True, Block(1, 32), (21, 64)),
    "W4A16:group=7": (4, True, Block(1, 7), (12, 21)),
    "W4A16:channel": (4, True, Block(1, 27), (12, 27)),
    "W4A16_ASYM:group=18": (4, False, Block(1, 18), (17, 54)),
    "W4A16_ASYM:channel": (4, False, Block(1, 19), (9, 19)),
    "W3A16:channel,asymmetric": (3, False, Block(1, 13), (33, 13)),
    "W2A16:group=16": (2, True, Block(1, 16), (12, 48)),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "dtype", "profile"), sample(list(product(INTEGERS, DTYPES_OF_WEIGHTS, PROFILES)), 16))
def test_integers(name: str, dtype: str, profile: str) -> None:
    bits, symmetric, block, shape = INTEGERS[name]
    rows, packs, rounds = hard_rows(dtype, *shape, seed=bits), "A16" in name, PROFILES[profile]
    expected = exact_weights.integers(rows, dtype, bits, block, symmetric=symmetric, rounds=rounds, packs=packs)
    assert_same(scheme_named(name).format(profile), rows, dtype, expected)


FLOAT8 = {
    "FP8_DYNAMIC": (Block(1, 37), (12, 37)),
    "FP8_DYNAMIC:tensor": (Block(12, 21), (12, 21)),
    "FP8A16": (Block(1, 5), (12, 5)),
    "FP8_BLOCK": (Block(128, 128), (130, 131)),
}


@pytest.mark.parametrize(("name", "dtype", "profile"), sample(list(product(FLOAT8, DTYPES_OF_WEIGHTS, PROFILES)), 5))
def test_float8(name: str, dtype: str, profile: str) -> None:
    block, shape = FLOAT8[name]
    rows = hard_rows(dtype, *shape, seed=8)
    if name == "FP8_BLOCK":
        # Of a whole block, a row and a column are as good as all, and much less work.
        rows[1:128, 1:128] = 0
    expected = exact_weights.float8(rows, dtype, block, rounds=PROFILES[profile])
    assert_same(scheme_named(name).format(profile), rows, dtype, expected)


@pytest.mark.sample(4)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", DTYPES_OF_WEIGHTS)
@pytest.mark.parametrize("name", ["MXFP4A16", "MXFP6A16", "MXFP8A16"])
def test_mx(name: str, dtype: str, profile: str) -> None:
    bits = int(name[4])
    rows = hard_rows(dtype, 21, 64, seed=bits)
    expected = exact_weights.mx(rows, dtype, bits, rounds=PROFILES[profile])
    assert_same(scheme_named(name).format(profile), rows, dtype, expected, back="BF16")


@pytest.mark.sample(1)
@pytest.mark.parametrize("larger", [1.0, 4.0])
@pytest.mark.parametrize("dtype", DTYPES_OF_WEIGHTS)
def test_nvfp4(dtype: str, larger: float) -> None:
    """`larger`: how much larger the largest magnitude of the fused set is."""
    form = scheme_named("NVFP4A16").format("compressed-tensors-cuda")
    for exponent in (-6, 0, 12):
        rows = hard_rows(dtype, 21, 32, seed=exponent + 50, around=exponent)
        own = extremes(form, rows, dtype, 5)
        assert own is not None
        shared = own.union(Extremes(own.minimum * larger, 0.0))
        assert_same(form, rows, dtype, exact_weights.nvfp4(rows, dtype, shared), shared, "BF16")
