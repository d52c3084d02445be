"""Scales of least squared error: against an oracle in exact fractions, and what a search is for."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import inf

import numpy as np
import pytest

from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU, COMPRESSED_TENSORS_CUDA
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.weights.blocks import Block
from requant.checkpoint.weights.compressed_tensors import FloatQuantized, Grouping
from requant.checkpoint.weights.floats import bits_of, values
from requant.checkpoint.weights.search import Search
from requant.errors import ParameterError, UnknownNameError
from tests.oracles import compressed_tensors as oracle
from tests.oracles.searched_ranges import Values, best_range
from tests.support.exact_weights import Blocks
from tests.support.stored_weights import dequantized, extremes, quantized

CPU = COMPRESSED_TENSORS_CPU.name
DTYPES = ("BF16", "F16", "F32")

Back = Callable[[oracle.Weight, oracle.Number, oracle.Dtype], Fraction]
"""What a weight becomes with a scale."""


def weights(shape: tuple[int, int], dtype: str, seed: int = 3) -> np.ndarray:
    """Weights with long tails, of which some rows are small, and one is zero."""
    random = np.random.default_rng(seed)
    found = random.standard_t(4, shape) * np.ldexp(0.02, random.integers(-6, 7, (shape[0], 1)))
    found[shape[0] // 2] = 0
    return bits_of(found.astype(np.float32), dtype)


def times(x: oracle.Number, scale: oracle.Number, dtype: oracle.Dtype) -> Fraction:
    return Fraction(oracle.step(Fraction(x) * Fraction(scale), dtype))


def integer_values(bits: int, block: list[oracle.Weight], dtype: oracle.Dtype, *, symmetric: bool) -> Values:
    def made(low: Fraction, high: Fraction) -> list[Fraction]:
        scale, zero = integer_scale(bits, low, high, dtype, symmetric=symmetric)
        codes = oracle.integer_codes(block, scale, zero, bits, dtype, rounds=True)
        return [Fraction(oracle.integer_value(code, zero, Fraction(scale), dtype)) for code in codes]

    return made


def integer_scale(
    bits: int, low: Fraction, high: Fraction, dtype: oracle.Dtype, *, symmetric: bool
) -> tuple[oracle.Number, int]:
    ends = [(each < 0, abs(each)) for each in (low, high)]
    if symmetric:
        return oracle.symmetric_scale(ends, Fraction(2**bits - 1, 2), dtype), 0
    return oracle.asymmetric_scale(ends, bits, dtype)


INTEGERS = {
    "W4A16:group=32,mse": (4, True, Block(1, 32), (2, 64)),
    "W2A16:group=7,mse": (2, True, Block(1, 7), (3, 14)),
    "W8A8:mse": (8, True, Block(1, 37), (2, 37)),
    "W8A8:asymmetric,mse": (8, False, Block(1, 21), (3, 21)),
    "W3A4:group=16,asymmetric,mse": (3, False, Block(1, 16), (2, 32)),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, dtype: str) -> None:
    bits, symmetric, block, shape = INTEGERS[name]
    rows, exact = weights(shape, dtype), oracle.DTYPES[dtype]
    blocks = Blocks(rows, dtype, block)
    scales, zeros = np.zeros(blocks.shape, np.float32), np.zeros(blocks.shape, np.int8)
    for place, each in blocks:
        low, high = best_range(each, exact, integer_values(bits, each, exact, symmetric=symmetric), grid=100, steps=60)
        scale, zeros[place] = integer_scale(bits, low, high, exact, symmetric=symmetric)
        scales[place] = float(scale)
    found = quantized(scheme_named(name).format(CPU), rows, dtype, 1, None)
    np.testing.assert_array_equal(found["weight_scale"].reshape(scales.shape), bits_of(scales, dtype))
    if not symmetric:
        np.testing.assert_array_equal(found["weight_zero_point"].reshape(zeros.shape), zeros)


def e2m1(weight: oracle.Weight, scale: oracle.Number, dtype: oracle.Dtype) -> Fraction:
    code = oracle.e2m1_code(weight, scale, dtype, rounds=True)
    return times(oracle.E2M1[code & 7] * (-1 if code & 8 else 1), scale, dtype)


def e2m3(weight: oracle.Weight, scale: oracle.Number, dtype: oracle.Dtype) -> Fraction:
    code = oracle.e2m3_code(weight, scale, dtype, rounds=True)
    return times(oracle.E2M3[code & 31] * (-1 if code & 32 else 1), scale, dtype)


def e4m3(weight: oracle.Weight, scale: oracle.Number, dtype: oracle.Dtype) -> Fraction:
    code = oracle.e4m3_code(weight, scale, dtype, rounds=True)
    return times(oracle.E4M3[code & 127] * (-1 if code & 128 else 1), scale, dtype)


def float_values(
    back: Back, scale_of: Callable[[Fraction], oracle.Number], block: list[oracle.Weight], dtype: oracle.Dtype
) -> Values:
    def made(low: Fraction, high: Fraction) -> list[Fraction]:
        scale = scale_of(max(-low, high))
        return [back(each, scale, dtype) if each[1] else Fraction(0) for each in block]

    return made


@pytest.mark.parametrize("dtype", DTYPES)
def test_fp8(dtype: str) -> None:
    rows, exact = weights((2, 29), dtype), oracle.DTYPES[dtype]
    blocks = Blocks(rows, dtype, Block(1, 29))
    scales = np.zeros(blocks.shape, np.float32)

    def scale_of(largest: Fraction) -> oracle.Number:
        return oracle.symmetric_scale([(False, largest)], Fraction(448), exact)

    for place, each in blocks:
        found = best_range(each, exact, float_values(e4m3, scale_of, each, exact), grid=100, steps=60)
        scales[place] = float(scale_of(max(map(abs, found))))
    stored = quantized(scheme_named("FP8_DYNAMIC:mse").format(CPU), rows, dtype, 1, None)
    np.testing.assert_array_equal(stored["weight_scale"].reshape(scales.shape), bits_of(scales, dtype))


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_that_edges_cut_off(dtype: str) -> None:
    """A few steps alone: the oracle is slow."""
    block, steps, exact = Block(128, 128), 2, oracle.DTYPES[dtype]
    rows = weights((3, 131), dtype)
    rows[2:] = 0
    scales = np.zeros((1, 2), np.float32)

    def scale_of(largest: Fraction) -> oracle.Number:
        return oracle.symmetric_scale([(False, largest)], Fraction(448), exact)

    for place in np.ndindex(*scales.shape):
        whole = padded(rows, dtype, block, place)
        found = best_range(whole, exact, float_values(e4m3, scale_of, whole, exact), grid=10, steps=steps)
        scales[place] = float(scale_of(max(map(abs, found))))
    search = Search("memoryless_mse", (), grid=10.0, steps=steps)
    stored = quantized(FloatQuantized(Grouping(128, 128), True, search=search), rows, dtype, 128, None)
    np.testing.assert_array_equal(stored["weight_scale"], bits_of(scales, dtype))


def padded(rows: np.ndarray, dtype: str, block: Block, place: tuple[int, ...]) -> list[oracle.Weight]:
    """The weights of a block, with zeros beyond the edges."""
    found = np.zeros(block, np.float32)
    part = values(np.ascontiguousarray(rows), dtype)[
        place[0] * block.height : (place[0] + 1) * block.height, place[1] * block.width : (place[1] + 1) * block.width
    ]
    found[: part.shape[0], : part.shape[1]] = part
    return [(bool(np.signbit(each)), abs(Fraction(float(each)))) for each in found.reshape(-1)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "bits", "back"), [("MXFP4A16:mse", 4, e2m1), ("MXFP6A16:mse", 6, e2m3), ("MXFP8:mse", 8, e4m3)]
)
def test_mx(name: str, bits: int, back: Back, dtype: str) -> None:
    rows, exact = weights((3, 32), dtype), oracle.DTYPES[dtype]
    blocks = Blocks(rows, dtype, Block(1, 32))
    stored = np.zeros(blocks.shape, np.uint8)
    for place, each in blocks:

        def scale_of(largest: Fraction) -> oracle.Number:
            return oracle.mx_scale([(False, largest)], bits, exact)[0]

        found = best_range(each, exact, float_values(back, scale_of, each, exact), grid=100, steps=60)
        stored[place] = oracle.mx_scale([(False, max(map(abs, found)))], bits, exact)[1]
    np.testing.assert_array_equal(
        quantized(scheme_named(name).format(CPU), rows, dtype, 1, None)["weight_scale"], stored
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nvfp4(dtype: str) -> None:
    rows, exact = weights((3, 16), dtype), oracle.DTYPES[dtype]
    blocks, ranges = Blocks(rows, dtype, Block(1, 16)), {}

    def scale_of(largest: Fraction) -> oracle.Number:
        return oracle.step(largest / 6, exact) or exact.epsilon

    for place, each in blocks:
        values_of = float_values(e2m1, scale_of, each, exact)
        found = best_range(each, exact, values_of, grid=200, steps=111, expand=Fraction(1.8))
        ranges[place] = max(map(abs, found))
    by = oracle.global_scale(max(ranges.values()), exact)
    form = scheme_named("NVFP4A16:mse").format(CPU)
    stored = quantized(form, rows, dtype, 1, extremes(form, rows, dtype, 1))
    assert float(stored["weight_global_scale"].reshape(-1)[0]) == float(by)
    for place, largest in ranges.items():
        assert stored["weight_scale"][place] == oracle.nvfp4_scale([(False, largest)], by, exact)[0]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "gain"),
    [
        ("W2A16", 2.0),
        ("W4A16", 0.5),
        ("W4A16:channel", 1.5),
        ("W4A16_ASYM", 0.1),
        ("NVFP4A16", 0.5),
        ("W8A8", 0.0),
        ("FP8_DYNAMIC", 0.0),
        ("MXFP4A16", 0.0),
    ],
)
def test_the_error_is_smaller(name: str, gain: float) -> None:
    """In dB, at least. Of every block it is at most as large, but for the roundings of the search."""
    rows = bits_of(np.random.default_rng(1).standard_normal((64, 512), np.float32), "F32")
    real = values(rows, "F32").astype(np.float64)
    errors = []
    for each in (name, f"{name}{',' if ':' in name else ':'}mse"):
        form = scheme_named(each).format(CPU)
        found = quantized(form, rows, "F32", form.rows_together, extremes(form, rows, "F32", 64))
        described = {tensor.suffix: (tensor.dtype, tensor.shape) for tensor in form.stored("F32", rows.shape)}
        back = dequantized(form, found, described, "F32", rows.shape, form.rows_together)
        errors.append(((values(back, "F32") - real) ** 2).sum())
    assert 10 * np.log10(errors[0] / errors[1]) >= gain


def test_what_is_not_a_number_stays_what_it_is() -> None:
    """As without a search: the scale of a NaN or an infinity is one, which shows."""
    rows = values(weights((4, 64), "F32"), "F32").copy()
    rows[0, 5], rows[1, 6] = np.nan, inf
    scales = quantized(scheme_named("W4A16:group=32,mse").format(CPU), rows.view("<f4"), "F32", 1, None)["weight_scale"]
    assert np.isnan(scales[0, 0])
    assert np.isinf(scales[1, 0])
    assert np.isfinite(scales).sum() == 6


def test_config_states_the_observer() -> None:
    (group,) = scheme_named("W4A16:mse").quantization_config(["Linear"], [])["config_groups"].values()
    assert group["weights"]["observer"] == "memoryless_mse"
    assert group["weights"]["observer_kwargs"] == {"norm": 2.0, "maxshrink": 0.6, "patience": 60}
    (group,) = scheme_named("NVFP4A16:mse").quantization_config(["Linear"], [])["config_groups"].values()
    assert (group["weights"]["observer"], group["weights"]["observer_kwargs"]) == ("nvfp4_expanded_mse", {"norm": 2.0})


def test_refusals() -> None:
    with pytest.raises(ParameterError, match="compressed-tensors-cuda; available: compressed-tensors-cpu"):
        scheme_named("W4A16:mse").format(COMPRESSED_TENSORS_CUDA.name)
    with pytest.raises(ParameterError, match="one scale for the tensor is not searched; choose"):
        scheme_named("W8A8:tensor,mse")
    with pytest.raises(ParameterError, match="given twice"):
        scheme_named("W8A8:mse,mse")
    with pytest.raises(UnknownNameError, match="mse"):
        scheme_named("NF4:mse")
