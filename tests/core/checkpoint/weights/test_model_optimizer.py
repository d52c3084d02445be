"""The weights of NVIDIA ModelOpt equal an exact oracle, and what ModelOpt computed, whatever the pieces are."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from requant.checkpoint.quantization_config.model_optimizer import formats_from_config
from requant.checkpoint.safetensors.header import DTYPES as STORED
from requant.checkpoint.weights.blocks import Extremes
from requant.checkpoint.weights.floats import bits_of, values
from requant.checkpoint.weights.model_optimizer import ModelOptimizerWeight
from requant.checkpoint.weights.weight_format import PlainRows, StoredRows, StoredTensor, WeightFormat
from requant.errors import CheckpointError
from tests.oracles import model_optimizer as oracle
from tests.support.cases import sample
from tests.support.stored_weights import dequantized, matrix, quantized

VECTORS = Path(__file__).parents[3] / "vectors" / "model_optimizer_weights.json"
DTYPES = ("BF16", "F16", "F32")
Parts = dict[str, tuple[str, np.ndarray]]
HOSTILE = np.array(
    [
        0x7FC00000, 0x7F800000, 0xFF800000, 0, 0x80000000, 1, 0x00400000, 0x7F7FFFFF, 0xBF800000, 0x3F800001,
        0x39B0D20D, 0x3FB50913, 0x47800000, 0x33000001, 0x00800000, 0x3F808000, 0x3F818000,
    ],
    np.uint32,
).view(np.float32)  # fmt: skip
"""NaN, infinities, zeros, subnormals, the largest, a negative one, numbers that other formats take otherwise, one that
f16 cannot hold, and halfway between two of bf16."""


def form(algorithm: str, **members: Any) -> ModelOptimizerWeight:
    stated = formats_from_config({"quant_method": "modelopt", "quant_algo": algorithm, **members}).every
    assert isinstance(stated, ModelOptimizerWeight)
    return stated


def restored(described: WeightFormat, parts: Parts, dtype: str) -> np.ndarray:
    """The whole weight as bits, which all ways to cut it into pieces give."""
    tensors = {suffix: StoredTensor(suffix, name, array.shape) for suffix, (name, array) in parts.items()}
    resolved, shape = described.resolve_from_stored(tensors, None)
    together = resolved.rows_together
    scale = parts["weight_scale"][0]
    stored = resolved.stored(scale if scale in DTYPES else dtype, shape)
    assert {each.suffix: each.dtype for each in stored} == {suffix: name for suffix, (name, _) in parts.items()}
    matrices = {each.suffix: parts[each.suffix][1].reshape(matrix(each.shape)) for each in stored}
    places = {each.suffix: (each.dtype, each.shape) for each in stored}
    whole = -(-shape[0] // together) * together
    first, *others = (
        dequantized(resolved, matrices, places, dtype, shape, rows) for rows in (whole, together, 3 * together)
    )
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


def same(found: np.ndarray, expected: list[list[float]], dtype: str) -> None:
    """Equal bits, but for those of NaN."""
    numbers = np.array(expected, np.float32)
    bits = bits_of(numbers, dtype)
    np.testing.assert_array_equal(np.isnan(values(found, dtype)), np.isnan(numbers))
    integers = np.uint32 if dtype == "F32" else np.uint16
    np.testing.assert_array_equal(found.view(integers)[~np.isnan(numbers)], bits.view(integers)[~np.isnan(numbers)])


def scales_of(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rest = count - len(HOSTILE)
    return np.append(HOSTILE, rng.standard_normal(rest) * 2.0 ** rng.integers(-140, 120, rest)).astype(np.float32)


CODES = np.arange(256, dtype=np.uint8)
ALL_NIBBLES = np.tile(CODES[:16:2] | CODES[1:16:2] << 4, (256, 1))


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ["NVFP4", "w4a16_nvfp4", "W4A8_NVFP4_FP8"])
def test_all_codes_and_scales_of_nvfp4(algorithm: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    seconds = [*HOSTILE, *rng.uniform(2e-6, 4e-3, 4).astype(np.float32)]
    for second in sample(seconds, 8 if algorithm == "NVFP4" else 2):
        parts: Parts = {
            "weight": ("U8", ALL_NIBBLES),
            "weight_scale": ("F8_E4M3", CODES[:, None]),
            "weight_scale_2": ("F32", np.array(second)),
        }
        expected = [[oracle.nvfp4(code, scale, float(second), dtype) for code in range(16)] for scale in range(256)]
        same(restored(form(algorithm), parts, dtype), expected, dtype)


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("algorithm", "scales"), [("MXFP8", "U8"), ("MXFP8", "F8_E8M0"), ("mxfp4", "U8")])
def test_all_codes_and_scales_of_mx(algorithm: str, scales: str, dtype: str) -> None:
    if algorithm == "MXFP8":
        codes: Parts = {"weight": ("F8_E4M3", np.tile(CODES, (256, 1)))}
        magnitudes = [oracle.e4m3(code) for code in range(256)]
    else:
        codes = {"weight": ("U8", np.tile(ALL_NIBBLES, (1, 2)))}
        magnitudes = [oracle.e2m1(code) for code in range(16)] * 2
    bytes_ = np.repeat(CODES[:, None], len(magnitudes) // 32, axis=1)
    expected = [[oracle.mx(each, byte, dtype) for each in magnitudes] for byte in range(256)]
    same(restored(form(algorithm), {**codes, "weight_scale": (scales, bytes_)}, dtype), expected, dtype)


def fp8(codes: np.ndarray) -> tuple[str, np.ndarray]:
    return "F8_E4M3", codes


def int8(codes: np.ndarray) -> tuple[str, np.ndarray]:
    return "I8", codes.view(np.int8)


BY_CHANNEL: list[tuple[str, Callable[[np.ndarray], tuple[str, np.ndarray]], Callable[[int], float]]] = [
    ("FP8_PER_CHANNEL_PER_TOKEN", fp8, oracle.e4m3),
    ("W8A16", int8, lambda code: oracle.signed(code, 8)),
    ("W8A8_SQ_PER_CHANNEL", int8, lambda code: oracle.signed(code, 8)),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("algorithm", "store", "value"), BY_CHANNEL, ids=[each[0] for each in BY_CHANNEL])
def test_scales_of_channels(
    algorithm: str, store: Callable[[np.ndarray], tuple[str, np.ndarray]], value: Callable[[int], float], dtype: str
) -> None:
    scales = scales_of(40)
    parts: Parts = {"weight": store(np.tile(CODES, (40, 1))), "weight_scale": ("F32", scales)}
    expected = [[oracle.scaled(value(code), float(scale), dtype) for code in range(256)] for scale in scales]
    same(restored(form(algorithm), parts, dtype), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_scale_of_fp8(dtype: str) -> None:
    for scale in scales_of(24):
        parts: Parts = {"weight": fp8(CODES.reshape(16, 16)), "weight_scale": ("F32", np.array(scale))}
        expected = [[oracle.scaled(oracle.e4m3(code), float(scale), dtype) for code in range(256)]]
        same(restored(form("FP8"), parts, dtype).reshape(1, -1), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [2, 4])
def test_blocks_of_fp8_that_are_cut_off(rank: int, dtype: str) -> None:
    """With the shape that ModelOpt writes, [out / 128, 1, in / 128, 1], and without ones."""
    random = np.random.default_rng(5)
    codes, scales = random.integers(0, 256, (300, 200), np.uint8), scales_of(24)[-6:].reshape(3, 2)
    shape = (3, 1, 2, 1) if rank == 4 else (3, 2)
    parts: Parts = {"weight": fp8(codes), "weight_scale": ("F32", scales.reshape(shape))}
    found = restored(form("FP8_PB_WO"), parts, dtype)
    rows = sample(range(300), 30)
    expected = [
        [oracle.scaled(oracle.e4m3(int(codes[i, j])), float(scales[i // 128, j // 128]), dtype) for j in range(200)]
        for i in rows
    ]
    same(found[list(rows)], expected, dtype)
    small = form("fp8_pb_real", group_size=64).stored("F32", (300, 200))
    assert [each.shape for each in small] == [(300, 200), (5, 1, 4, 1)]


def packed_pairs(codes: np.ndarray) -> np.ndarray:
    """Rows 2i and 2i + 1 of 4-bit codes in one row of bytes: `pack_int4_in_uint8`."""
    pairs: np.ndarray = codes[::2] | codes[1::2] << 4
    return pairs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smoothing", [None, "BF16", "F16", "F32"])
def test_int4_of_awq(smoothing: str | None, dtype: str) -> None:
    """All codes with each scale, and the scale of activations folded into the columns."""
    codes = np.random.default_rng(9).permuted(np.tile(CODES[:16], (20, 4)), axis=1)
    scales = scales_of(40, 2).reshape(20, 2)
    parts: Parts = {"weight": ("U8", packed_pairs(codes)), "weight_scale": ("F32", scales)}
    expected = [
        [oracle.scaled(oracle.signed(int(codes[i, j]), 4), float(scales[i, j // 32]), dtype) for j in range(64)]
        for i in range(20)
    ]
    if smoothing is not None:
        bits = bits_of(np.random.default_rng(1).uniform(0.01, 30, 64).astype(np.float32), smoothing)
        parts["pre_quant_scale"] = (smoothing, bits)
        factors = [float(each) for each in values(bits, smoothing)]
        expected = [
            [oracle.smoothed(each, by, dtype) for each, by in zip(row, factors, strict=True)] for row in expected
        ]
    same(restored(form("W4A16_AWQ", group_size=32), parts, dtype), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ["NVFP4_AWQ", "W8A8_SQ_PER_CHANNEL"])
def test_the_scale_of_activations_is_folded(algorithm: str, dtype: str) -> None:
    """Whatever the layout: the plain layer gives for an input what the quantized one gives for the scaled input."""
    random = np.random.default_rng(4)
    scales = random.uniform(0.5, 2, 16).astype(np.float32)
    if algorithm == "NVFP4_AWQ":
        parts: Parts = {
            "weight": ("U8", random.integers(0, 256, (8, 8), np.uint8)),
            "weight_scale": ("F8_E4M3", random.integers(0x20, 0x70, (8, 1), np.uint8)),
            "weight_scale_2": ("F32", np.array(0.001, np.float32)),
        }
    else:
        parts = {
            "weight": int8(random.integers(0, 256, (8, 16), np.uint8)),
            "weight_scale": ("F32", random.uniform(0.01, 1, 8).astype(np.float32)),
        }
    plain = values(restored(form(algorithm), parts, dtype), dtype)
    found = restored(form(algorithm), {**parts, "pre_quant_scale": ("F32", scales)}, dtype)
    expected = [
        [oracle.smoothed(float(each), float(by), dtype) for each, by in zip(row, scales, strict=True)] for row in plain
    ]
    same(found, expected, dtype)


def test_codes_and_scales_for_comparisons() -> None:
    """A code's value times its scale is the weight, also with a scale of activations."""
    random = np.random.default_rng(8)
    codes = random.integers(0, 16, (4, 64), np.uint8)
    scales, factors = random.uniform(0.1, 1, (4, 2)).astype(np.float32), random.uniform(0.1, 1, 64).astype(np.float32)
    parts: Parts = {
        "weight": ("U8", packed_pairs(codes)),
        "weight_scale": ("F32", scales),
        "pre_quant_scale": ("F32", factors),
    }
    tensors = {suffix: StoredTensor(suffix, name, array.shape) for suffix, (name, array) in parts.items()}
    resolved, shape = form("W4A16_AWQ", group_size=32).resolve_from_stored(tensors, None)
    matrices = {suffix: np.atleast_2d(array) for suffix, (_, array) in parts.items()}
    rows = StoredRows(matrices, {suffix: name for suffix, (name, _) in parts.items()}, shape, 0, 4)
    found = resolved.codes(rows)
    assert (found.lowest, found.highest, found.uniform) == (-8, 7, True)
    np.testing.assert_allclose(found.codes * found.scales, resolved.dequantize(rows, "F32"), rtol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "parts", "message"),
    [
        ("NVFP4", {"weight": ("U8", (4, 8)), "svdquant_lora_a": ("BF16", (2, 16))}, "without SVDQuant"),
        (
            "NVFP4",
            {"weight": ("U8", (4, 8)), "pre_quant_scale": ("I32", (16,))},
            "pre_quant_scale is I32; expected one of",
        ),
        ("NVFP4", {"weight_scale": ("F8_E4M3", (4, 1))}, "none that determines the shape"),
        ("W4A16_AWQ", {"weight": ("U8", (0, 8))}, "none that determines the shape"),
    ],
)
def test_what_cannot_be_resolved(algorithm: str, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        form(algorithm).resolve_from_stored({name: StoredTensor(name, *each) for name, each in parts.items()}, None)


def test_it_is_read_only() -> None:
    rows = PlainRows(np.zeros((2, 16), np.uint16), "BF16", (2, 16), 0)
    for algorithm in ("FP8", "MXFP8", "W8A16", "W4A16_AWQ"):
        with pytest.raises(CheckpointError, match="is only read; "):
            form(algorithm, group_size=16).quantized(rows, None)


VECTOR_CASES = json.loads(VECTORS.read_text())["cases"]


@pytest.mark.parametrize("case", VECTOR_CASES, ids=lambda case: case["name"])
def test_what_model_optimizer_computed(case: dict[str, Any]) -> None:
    parts: Parts = {
        suffix: (
            each["dtype"],
            np.frombuffer(b64decode(each["data"]), STORED[each["dtype"]].array).reshape(each["shape"]),
        )
        for suffix, each in case["stored"].items()
    }
    for dtype, data in case["values"].items():
        expected = np.frombuffer(b64decode(data), STORED[dtype].array)
        found = restored(form(case["quant_algo"], group_size=case["group_size"]), parts, dtype)
        numbers = values(expected, dtype).astype(float).reshape(found.shape)
        same(found, numbers.tolist(), dtype)


def test_the_oracle_knows_small_floats() -> None:
    """As ml_dtypes, an independent description, does."""
    theirs = CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal([oracle.e4m3(code) for code in range(256)], theirs)
    nibbles = CODES[:16].view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal([oracle.e2m1(code) for code in range(16)], nibbles)


def weights(dtype: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Bits: ties of both codes and their neighbours, rows and groups of zeros, -0, and magnitudes far apart."""
    random = np.random.default_rng(seed)
    steps = random.integers(-24, 25, shape) * 0.25
    far = 2.0 ** random.integers(-12, 3, (shape[0], shape[1] // 16)).astype(float)
    numbers = steps * np.repeat(far, 16, axis=1) * random.choice([1.0, 1.0, 0.37], shape)
    numbers[2] = 0
    numbers[3, 16:32] = -0.0
    numbers[5, :16] *= 2.0**-20
    numbers[7, 40] = 300
    return bits_of(numbers.astype(np.float32), dtype)


def pieces(described: WeightFormat, bits: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    together = described.rows_together
    first, *others = (
        quantized(described, bits, dtype, rows) for rows in (together, 3 * together, 400 // together * together)
    )
    for other in others:
        for suffix, array in first.items():
            np.testing.assert_array_equal(other[suffix].view(np.uint8), array.view(np.uint8), suffix)
    return first


@pytest.mark.parametrize("dtype", DTYPES)
def test_fp8_is_written(dtype: str) -> None:
    bits = weights(dtype, (13, 96), 1)
    found = pieces(form("FP8_PER_CHANNEL_PER_TOKEN"), bits, dtype)
    numbers = values(bits, dtype).astype(float).tolist()
    scales = [oracle.fp8_scale(row) for row in numbers]
    assert found["weight_scale"].tolist() == [scales]
    expected = [[oracle.fp8_code(each, scale) for each in row] for row, scale in zip(numbers, scales, strict=True)]
    np.testing.assert_array_equal(found["weight"], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fp8_is_written_in_blocks(dtype: str) -> None:
    """Those at the edges are cut off."""
    bits = weights(dtype, (35, 96), 2)[:, :90].copy()
    found = pieces(form("FP8_PB_WO", group_size=16), bits, dtype)
    numbers = values(bits, dtype).astype(float)
    scales = [
        [oracle.fp8_scale(numbers[i : i + 16, j : j + 16].reshape(-1).tolist()) for j in range(0, 90, 16)]
        for i in range(0, 35, 16)
    ]
    assert found["weight_scale"].reshape(3, 6).tolist() == scales
    expected = [[oracle.fp8_code(float(numbers[i, j]), scales[i // 16][j // 16]) for j in range(90)] for i in range(35)]
    np.testing.assert_array_equal(found["weight"], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factor", [1.0, 2.0**-13, 1.37])
def test_nvfp4_is_written(factor: float, dtype: str) -> None:
    bits = bits_of(values(weights(dtype, (13, 96), 3), dtype) * np.float32(factor), dtype)
    found = pieces(form("W4A16_NVFP4"), bits, dtype)
    numbers = values(bits, dtype).astype(float)
    second = oracle.nvfp4_second(numbers.reshape(-1).tolist())
    assert found["weight_scale_2"].tolist() == [[second]]
    scales = [[oracle.nvfp4_scale(row[j : j + 16].tolist(), second) for j in range(0, 96, 16)] for row in numbers]
    np.testing.assert_array_equal(found["weight_scale"], scales)
    codes = np.array(
        [
            [oracle.nvfp4_code(float(row[j]), of_row[j // 16], second) for j in range(96)]
            for row, of_row in zip(numbers, scales, strict=True)
        ]
    )
    np.testing.assert_array_equal(found["weight"], codes[:, ::2] | codes[:, 1::2] << 4)


def test_zeros_have_a_scale_of_1() -> None:
    """Where an export of ModelOpt stops, or writes NaN."""
    zeros = np.zeros((2, 16), np.float32)
    for algorithm in ("FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "W4A16_NVFP4"):
        found = quantized(form(algorithm), zeros, "F32", 128)
        assert not found["weight"].any()
        assert (found.get("weight_scale_2", found["weight_scale"]) == 1).all()


def test_a_second_scale_that_underflows() -> None:
    layout = form("W4A16_NVFP4")
    assert not layout.overflows(Extremes(0, 0), "F32")
    assert not layout.overflows(Extremes(-2e-42, 0), "F32")
    assert layout.overflows(Extremes(0, 1e-42), "F32")


@pytest.mark.parametrize("case", [case for case in VECTOR_CASES if "weight" in case], ids=lambda case: case["name"])
def test_what_model_optimizer_wrote(case: dict[str, Any]) -> None:
    weight = case["weight"]
    bits = np.frombuffer(b64decode(weight["data"]), STORED[weight["dtype"]].array).reshape(weight["shape"])
    found = pieces(form(case["quant_algo"], group_size=case["group_size"]), bits, weight["dtype"])
    assert found.keys() == case["stored"].keys()
    for suffix, each in case["stored"].items():
        assert found[suffix].tobytes() == b64decode(each["data"]), suffix
