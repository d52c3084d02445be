"""Fine-grained fp8, GPTQ, AWQ and NF4 equal the exact oracles, in both directions, whatever the pieces are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8
from requant.checkpoint.weights.floats import E4M3, bits_of, values
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.nf4 import ABSMAX, BLOCK, NESTED_ABSMAX, NESTED_VALUES, NF4, STATE, Nf4
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError
from tests.oracles import reading
from tests.oracles import weight_layouts as oracle
from tests.oracles.profiles import FORMATS
from tests.support.cases import sample
from tests.support.stored_weights import dequantized, quantized

DTYPES = ("BF16", "F16", "F32")
ORACLE_FORMATS = {"BF16": FORMATS["bf16"], "F16": FORMATS["f16"], "F32": FORMATS["f32"]}
# How the elements of a group lie within its largest magnitude: on the steps of 4, 8 and 15 levels and halfway between
# them, one place beside those, on one side of zero, few or none at all.
DENOMINATORS = (15, 30, 7.5, 16, 255, 448)
# The kinds of groups that lie on one side of zero.
ON_ONE_SIDE = {2: 1, 3: -1}


def groups(count: int, size: int, dtype: str, seed: int) -> np.ndarray:
    """Bits of [count, size]: ties of every scheme and their neighbours, subnormals, zeros of both signs."""
    rng = np.random.default_rng(seed)
    found = np.empty((count, size), np.float64)
    for index in range(count):
        most = float(rng.choice([1.0, 1.75, 0.25, 1 + 2**-7, rng.uniform(0.5, 2)]) * 2.0 ** rng.integers(-14, 3))
        steps = rng.integers(-30, 31, size) / rng.choice(DENOMINATORS)
        kind = index % 8
        if kind in ON_ONE_SIDE:
            # The scale of 255 steps is a subnormal f16, which loses up to half of its last place.
            most = 255 * 2.0**-24 * float(rng.integers(160, 260) + rng.choice([-0.499, 0, 0.4, 0.499]))
        spread = [
            steps,
            rng.standard_normal(size),
            np.abs(steps),
            -np.abs(steps),
            steps * 2.0**-12,
            rng.uniform(-1, 1, size),
        ]
        found[index] = most * np.clip(spread[kind], -1, 1) if kind < 6 else 0.0
        if kind <= 6:
            found[index, rng.integers(size)] = most * ON_ONE_SIDE.get(kind, rng.choice([-1, 1]))
    with np.errstate(all="ignore"):
        bits = bits_of(found.astype(np.float32), dtype).copy()
    whole = bits.view(np.uint32 if dtype == "F32" else np.uint16)
    beside = rng.random(bits.shape) < 0.3
    whole[beside] = np.bitwise_xor(whole[beside], whole.dtype.type(1))
    return bits


def floats(bits: np.ndarray, dtype: str) -> list[list[float]]:
    return [[float(each) for each in row] for row in values(np.ascontiguousarray(bits), dtype)]


def bits(numbers: list[list[float]], dtype: str) -> np.ndarray:
    """Bits of exact numbers of f32 or f16, rounded to `dtype`."""
    exact = [[n if n == 0 else ORACLE_FORMATS[dtype].round(Fraction(n)) for n in row] for row in numbers]
    return bits_of(np.array(exact, np.float32), dtype)


def pieces(form: WeightFormat, rows: int) -> Iterator[int]:
    yield from {form.rows_together, 2 * form.rows_together, -(-rows // form.rows_together) * form.rows_together}


def stored(form: WeightFormat, weight: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    """The stored tensors, of which every way to cut the weight into pieces makes the same."""
    first, *others = (quantized(form, weight, dtype, rows) for rows in pieces(form, len(weight)))
    for other in others:
        for suffix, array in first.items():
            np.testing.assert_array_equal(other[suffix].view(np.uint8), array.view(np.uint8), suffix)
    return first


def restored(form: WeightFormat, found: dict[str, np.ndarray], dtype: str, shape: tuple[int, int]) -> np.ndarray:
    described = {each.suffix: (each.dtype, each.shape) for each in form.stored(dtype, shape)}
    first, *others = (dequantized(form, found, described, dtype, shape, rows) for rows in pieces(form, shape[0]))
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


def unpacked(words: np.ndarray, width: int) -> np.ndarray:
    """Codes of words, along the last axis."""
    planes = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    count = planes.shape[-1] // width
    by_code = planes[..., : count * width].reshape(*words.shape[:-1], count, width).astype(int)
    codes: np.ndarray = (by_code << np.arange(width)).sum(-1)
    return codes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scales", ["F32", "F8_E8M0"])
def test_fine_grained_fp8(scales: str, dtype: str) -> None:
    """Blocks of 3 by 20, cut off below and on the right."""
    form = FineGrainedFp8(scales, 3, 20, ragged=True)
    weight = groups(13, 53, dtype, 1)
    found = stored(form, weight, dtype)
    numbers = floats(weight, dtype)
    expected = [[0.0] * 53 for _ in range(13)]
    for top in range(0, 13, 3):
        for left in range(0, 53, 20):
            inside = [
                (row, column) for row in range(top, min(top + 3, 13)) for column in range(left, min(left + 20, 53))
            ]
            group = oracle.fine_grained_fp8([numbers[row][column] for row, column in inside], powers=scales != "F32")
            scale = found["weight_scale_inv"][top // 3, left // 20]
            assert (2.0 ** (int(scale) - 127) if scales != "F32" else float(scale)) == group.scale
            for (row, column), code in zip(inside, group.codes, strict=True):
                assert found["weight"][row, column] == code, (row, column)
                expected[row][column] = oracle.value_of_fp8(code, group.scale)
    for to in DTYPES:
        np.testing.assert_array_equal(restored(form, found, to, (13, 53)), bits(expected, to))


def test_powers_of_two_as_the_logarithm_rounds() -> None:
    """Inverse scales within a few places of every power of two: the logarithm there is that power, as f32."""
    form = FineGrainedFp8("F8_E8M0", 1, 1)
    exponents = range(-100, 100)
    weight = np.array([448.0 * 2.0**exponent for exponent in exponents], np.float32).view(np.uint32)
    weight = (weight[:, None] + np.arange(-3, 60, dtype=np.int64)).astype(np.uint32).view(np.float32)
    found = quantized(form, weight, "F32", 8)
    sampled = {0, *range(3, 40, 3)}
    for row, numbers in enumerate(weight):
        for column in sampled:
            expected = oracle.fine_grained_fp8([float(numbers[column])], powers=True)
            assert 2.0 ** (int(found["weight_scale_inv"][row, column]) - 127) == expected.scale, (row, column)
            assert found["weight"][row, column] == expected.codes[0]


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("width", "symmetric", "version"),
    [
        (4, True, 1),
        (4, False, 2),
        (8, True, 1),
        (8, False, 1),
        (2, False, 1),
        (3, True, 1),
        (3, False, 1),
        (3, False, 2),
    ],
)
def test_gptq(width: int, symmetric: bool, version: int, dtype: str) -> None:
    """Groups of 24, so that a group ends within a vector, and a number of rows that does not fill the last word."""
    rows, columns, size = 2 * (32 // width) + 1, 96, 24
    form = Gptq(width, symmetric, size, version, has_g_idx=True, ragged=True)
    weight = groups(rows * columns // size, size, dtype, width).reshape(rows, columns)
    found = stored(form, weight, dtype)
    np.testing.assert_array_equal(found["g_idx"][0], np.arange(columns) // size)
    codes = unpacked(found["qweight"].T, width)
    zeros = unpacked(found["qzeros"], width)
    assert not zeros[:, rows:].any()
    expected = np.empty((rows, columns))
    for row, numbers in enumerate(floats(weight, dtype)):
        for at in range(0, columns, size):
            group = oracle.gptq(numbers[at : at + size], width, symmetric=symmetric)
            assert list(codes[row, at : at + size]) == group.codes
            assert values(found["scales"], "F16")[at // size, row] == group.scale
            assert zeros[at // size, row] == (group.zero - (version == 1)) % 2**width
            expected[row, at : at + size] = [oracle.value_in_f16(code, group.zero, group.scale) for code in group.codes]
    for to in DTYPES:
        np.testing.assert_array_equal(restored(form, found, to, (rows, columns)), bits(expected.tolist(), to))


def test_gptq_columns_in_another_order() -> None:
    """g_idx, as activations order it: each column has the scale and the zero point of its group."""
    form = Gptq(4, False, 32, version=2, has_g_idx=True)
    weight = groups(64, 32, "BF16", 5).reshape(32, 64)
    order = np.random.default_rng(0).permutation(64)
    found = stored(form, weight, "BF16")
    plain = restored(form, found, "F32", (32, 64))
    codes = unpacked(found["qweight"].T, 4)[:, order]
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    words = np.bitwise_or.reduce(codes.reshape(32, -1, 8) << shifts, axis=2).astype(np.uint32).view(np.int32)
    moved = {**found, "qweight": np.ascontiguousarray(words.T), "g_idx": found["g_idx"][:, order]}
    np.testing.assert_array_equal(restored(form, moved, "F32", (32, 64)), plain[:, order])
    with pytest.raises(CheckpointError, match="g_idx has groups"):
        restored(form, {**moved, "g_idx": moved["g_idx"] + 1}, "F32", (32, 64))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq_of_others(bits: int) -> None:
    """All codes with all stored zero points in version 1, whose + 1 carries into no other, and scales of all kinds."""
    rows, columns, count = 96, 1 << max(bits, 5), 1 << bits
    groups, g_idx = 4, np.random.default_rng(bits).permutation(np.arange(columns) % 4)
    codes = (np.arange(columns)[:, None] + np.arange(rows)) % count
    zeros = (np.arange(rows) * 7 + np.arange(groups)[:, None]) % count
    special = [1.0, -1.5, 0.0, -0.0, 2.0**-24, 65504.0, math.inf, math.nan, 0.1, 1 / 3, -(2.0**-15), 5e-5]
    scales = np.resize(np.array(special, np.float16), (groups, rows))
    scales = np.stack([np.roll(each, 5 * at) for at, each in enumerate(scales)])
    found = {
        "qweight": np.ascontiguousarray(as_words(codes.T, bits).T),
        "qzeros": as_words(zeros, bits),
        "scales": scales.view(np.uint16),
        "g_idx": g_idx.astype(np.int32)[None],
    }
    form = Gptq(bits, False, columns // groups, version=1, has_g_idx=True, ragged=True)
    expected = np.empty((rows, columns))
    for column, group in enumerate(g_idx):
        for row in range(rows):
            zero, scale = (int(zeros[group, row]) + 1) % count, float(scales[group, row])
            difference = int(codes[column, row]) - zero
            expected[row, column] = reading.product(float(difference), scale, reading.F16)
    for to in DTYPES:
        with np.errstate(all="ignore"):
            exact = bits_of(expected.astype(np.float32), to)
        np.testing.assert_array_equal(restored(form, found, to, (rows, columns)), exact)


def as_words(codes: np.ndarray, width: int) -> np.ndarray:
    """Words of rows of codes, the first in the lowest bits."""
    planes = ((codes[..., None] >> np.arange(width)) & 1).astype(np.uint8)
    return np.packbits(planes.reshape(len(codes), -1), axis=1, bitorder="little").view("<i4")


@pytest.mark.parametrize("dtype", DTYPES)
def test_awq(dtype: str) -> None:
    form = Awq(24)
    weight = groups(64, 24, dtype, 7).reshape(16, 96)
    found = stored(form, weight, dtype)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    codes, zeros = (np.empty((96, 16), int), np.empty((4, 16), int))
    for target, name in ((codes, "qweight"), (zeros, "qzeros")):
        target.reshape(len(target), 2, 8)[:, :, order] = unpacked(found[name], 4).reshape(len(target), 2, 8)
    expected = np.empty((16, 96))
    for row, numbers in enumerate(floats(weight, dtype)):
        for at in range(0, 96, 24):
            group = oracle.awq(numbers[at : at + 24])
            assert list(codes[at : at + 24, row]) == group.codes
            assert values(found["scales"], "F16")[at // 24, row] == group.scale
            assert zeros[at // 24, row] == group.zero
            expected[row, at : at + 24] = [oracle.value_in_f16(code, group.zero, group.scale) for code in group.codes]
    for to in DTYPES:
        np.testing.assert_array_equal(restored(form, found, to, (16, 96)), bits(expected.tolist(), to))


@pytest.mark.parametrize(("dtype", "shape"), sample(list(product(DTYPES, [(70, 33), (1, 1), (129, 7), (3, 128)])), 5))
def test_nf4(shape: tuple[int, int], dtype: str) -> None:
    """Blocks run through rows, and the last is not whole."""
    form = Nf4()
    count = shape[0] * shape[1]
    weight = groups(-(-count // BLOCK), BLOCK, dtype, 9).reshape(-1)[:count].reshape(shape)
    found = stored(form, weight, dtype)
    codes = np.stack([found["weight"][:, 0] >> 4, found["weight"][:, 0] & 15], axis=1).reshape(-1)
    assert list(codes[count:]) == [7] * (count % 2)
    numbers = [each for row in floats(weight, dtype) for each in row]
    expected: list[float] = []
    for at in range(0, count, BLOCK):
        block = numbers[at : at + BLOCK]
        group = oracle.nf4_block(block, whole=len(block) == BLOCK)
        assert list(codes[at : at + len(block)]) == group.codes
        assert found[ABSMAX][0, at // BLOCK] == group.scale
        expected += [oracle.value_of_nf4(code, group.scale) for code in group.codes]
    for to in DTYPES:
        same_state = replace(form, state_bytes=found["weight.quant_state.bitsandbytes__nf4"].size)
        np.testing.assert_array_equal(restored(same_state, found, to, shape), bits([expected], to).reshape(shape))


@pytest.mark.parametrize("shape", [(640, 77), (3, 5)])
def test_nf4_scales_that_are_quantized_themselves(shape: tuple[int, int]) -> None:
    """As bitsandbytes stores them with `bnb_4bit_use_double_quant`; pieces begin within the 256 of a nested scale."""
    weight = groups(-(-shape[0] * shape[1] // BLOCK), BLOCK, "F32", 2).reshape(-1)[: shape[0] * shape[1]]
    found = quantized(Nf4(), weight.reshape(shape), "F32", BLOCK)
    rng = np.random.default_rng(8)
    nested, table = rng.random(-(-found[ABSMAX].size // 256), np.float32), rng.standard_normal(256, np.float32)
    codes = rng.integers(0, 256, found[ABSMAX].shape, np.uint8)
    offset = 0.0371
    exact = [
        FORMATS["f32"].round(
            Fraction(FORMATS["f32"].round(Fraction(float(table[code])) * Fraction(float(nested[index // 256]))))
            + Fraction(float(np.float32(offset)))
        )
        for index, code in enumerate(codes[0])
    ]
    plain = {**found, ABSMAX: np.array([exact], np.float32)}
    state = json.dumps({**json.loads(found[STATE].tobytes()), "nested_blocksize": 256, "nested_offset": offset})
    double = {**found, ABSMAX: codes, STATE: np.frombuffer(state.encode(), np.uint8)[None]}
    double |= {NESTED_ABSMAX: nested[None], NESTED_VALUES: table[None]}
    form = Nf4(len(state), nested=True)
    expected = restored(Nf4(), plain, "F32", shape)
    np.testing.assert_array_equal(restored(form, double, "F32", shape), expected)


def beside(numbers: list[float]) -> list[float]:
    """f32 numbers, and those beside each."""
    exact = np.array(numbers, np.float32)
    return [float(n) for n in np.concatenate([np.nextafter(exact, np.float32(-9e9)), exact, np.nextafter(exact, 9e9)])]


def test_fp8_codes_at_midpoints() -> None:
    """Of a block whose scale is 1, all midpoints of codes, and what lies beside them."""
    magnitudes = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    middles = [float(n) for n in (magnitudes[:-1] + magnitudes[1:]) / 2]
    numbers = [448.0, *beside(middles), *(-n for n in beside(middles)), 0.0, -0.0]
    form = FineGrainedFp8("F32", 1, len(numbers))
    found = quantized(form, np.array([numbers], np.float32), "F32", 1)
    assert found["weight_scale_inv"] == 1
    assert list(found["weight"][0]) == oracle.fine_grained_fp8(numbers, powers=False).codes


def test_nf4_codes_at_midpoints() -> None:
    quantiles = np.array(NF4)
    numbers = beside([float(n) for n in (quantiles[:-1] + quantiles[1:]) / np.float32(2)])
    weight = np.array([*numbers, *([1.0] * (BLOCK - len(numbers)))], np.float32).reshape(1, BLOCK)
    found = quantized(Nf4(), weight, "F32", BLOCK)["weight"]
    codes = np.stack([found[:, 0] >> 4, found[:, 0] & 15], axis=1).reshape(-1)
    assert list(codes) == oracle.nf4_block([float(n) for n in weight[0]]).codes


def test_gptq_zero_points_of_version_1() -> None:
    """A zero point of 0 is stored as the highest code, and takes nothing from those beside it."""
    weight = np.ones((32, 32), np.float32)
    weight[1] = -1
    found = quantized(Gptq(4, False, 32), weight, "F32", 8)
    assert list(unpacked(found["qzeros"], 4)[0, :4]) == [15, 14, 15, 15]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "form",
    [
        FineGrainedFp8("F32", 4, 32),
        FineGrainedFp8("F8_E8M0", 4, 32),
        Gptq(4, True, 32),
        Gptq(8, False, 32),
        Awq(32),
        Nf4(),
    ],
    ids=lambda form: type(form).__name__,
)
def test_nan_and_infinity_spoil_their_own_group(form: WeightFormat, dtype: str) -> None:
    weight = groups(64, 64, dtype, 11).reshape(64, 64)
    clean = restored(form, quantized(form, weight, dtype, 64), "F32", (64, 64))
    for special in (math.nan, -math.nan, math.inf, -math.inf):
        spoiled = weight.copy()
        spoiled[5, 40] = bits_of(np.array([special], np.float32), dtype)[0]
        found = restored(form, quantized(form, spoiled, dtype, 64), "F32", (64, 64))
        differing = np.argwhere(found.view(np.uint32) != clean.view(np.uint32))
        assert ((differing >= [4, 0 if isinstance(form, Nf4) else 32]) & (differing < [8, 64])).all()


def test_fp8_scale_overflows() -> None:
    """Of a block that is not zero and below 448 / 2^128: its zeros become NaN, and the others saturate."""
    weight = np.zeros((256, 256), np.float32)
    weight[200, 130:132] = 1e-37, -1e-37
    found = quantized(FineGrainedFp8(), weight, "F32", 128)
    codes, inverses = found["weight"].view(np.uint8), found["weight_scale_inv"].view(np.float32)
    assert inverses.tolist() == [[1, 1], [1, 0]]
    assert FineGrainedFp8().overflowed_scales("weight_scale_inv", inverses).tolist() == [[False, False], [False, True]]
    assert codes[200, 130:132].tolist() == [0x7E, 0xFE]
    codes[200, 130:132] = 0x7F
    assert (codes[128:, 128:] == 0x7F).all()
    assert not codes[:128].any()
    assert not codes[:, :128].any()
    powers = quantized(FineGrainedFp8("F8_E8M0"), weight, "F32", 128)
    assert not np.isnan(E4M3.values[powers["weight"].view(np.uint8)]).any()


def test_awq_beyond_f16() -> None:
    weight = np.zeros((16, 128), np.float32)
    weight[9, 3] = 65520
    with pytest.raises(CheckpointError, match="row 9 has a magnitude above 65504"):
        Awq().quantize(weight, "F32", (16, 128), 0)
